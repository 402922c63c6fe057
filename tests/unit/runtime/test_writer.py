from collections.abc import Iterator, Mapping

import pytest
from tests.unit.runtime.conftest import config_maps

from navarchos.client import Client, ClientConfig, NotFound
from navarchos.informers import SharedInformer
from navarchos.meta import Object
from navarchos.runtime import CachedClient
from navarchos.testing.apiserver import ApiServer, Fault


class ConfigMap(Object, frozen=True):
    data: Mapping[str, str] = {}


MAPS = config_maps(ConfigMap)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def maps(server: ApiServer) -> Iterator[CachedClient[ConfigMap]]:
    """A cache that hears of nothing after its first list."""
    server.faults.add(Fault(verb="watch", stall_after=0, times=None))
    with Client(ClientConfig(server.url)) as client:
        informer = SharedInformer(client.resource(MAPS), streaming=False, idle_timeout=None)
        informer.start()
        assert informer.wait_for_sync(20)
        yield CachedClient(client.resource(MAPS), informer)
        informer.stop()
        assert informer.join(20)


def body(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


@pytest.mark.rule("RT-32")
def test_every_write_is_seen_before_the_watch_brings_it(maps: CachedClient[ConfigMap]) -> None:
    created = maps.create(body("a", x="1"), "default")
    assert maps.lister.get("a", "default") == created
    patched = maps.patch(
        "a",
        {"data": {"y": "2"}},
        "default",
        resource_version=created.metadata.resource_version,
        uid=created.metadata.uid,
    )
    assert maps.lister.get("a", "default").data == patched.data == {"x": "1", "y": "2"}
    replaced = maps.replace("a", body("a", z="3"), "default")
    assert maps.lister.get("a", "default") == replaced
    assert maps.lister.get("a", "default").data == {"z": "3"}
    maps.delete("a", "default", uid=created.metadata.uid)
    assert maps.lister.find("a", "default") is None
    with pytest.raises(NotFound):
        maps.live.get("a", "default")


def test_a_write_that_fails_changes_no_read(maps: CachedClient[ConfigMap]) -> None:
    with pytest.raises(NotFound):
        maps.patch("a", {"data": {}}, "default")
    with pytest.raises(NotFound):
        maps.delete("a", "default")
    assert maps.lister.list() == []
    assert maps.resource == MAPS
