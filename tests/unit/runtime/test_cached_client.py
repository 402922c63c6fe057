from collections.abc import Iterator, Mapping

import pytest
from tests.unit.runtime.conftest import config_maps

from navarchos.client import Client, ClientConfig, Conflict, NotFound
from navarchos.informers import InformerOptions, SharedInformer
from navarchos.meta import Object
from navarchos.runtime import CachedClient, list_all
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
    """A client whose cache receives nothing after its first list."""
    server.faults.add(Fault(verb="watch", stall_after=0, times=None))
    with Client(ClientConfig(server.url)) as client:
        informer = SharedInformer(
            client.resource(MAPS), options=InformerOptions(streaming=False, idle_timeout=None)
        )
        informer.start()
        assert informer.wait_for_sync(20)
        yield CachedClient(client.resource(MAPS), informer)
        informer.stop()
        assert informer.join(20)


def body(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


@pytest.mark.rule("RT-32")
def test_reads_show_every_write_before_the_watch_does(maps: CachedClient[ConfigMap]) -> None:
    created = maps.create(body("a", x="1"), "default")
    assert maps.find("a", "default") == created
    patched = maps.patch(created, {"data": {"y": "2"}})
    assert maps.find("a", "default") == patched
    assert patched.data == {"x": "1", "y": "2"}
    patched = maps.patch_any_version(created, {"data": {"x": None}})
    assert maps.list(namespace="default") == [patched]
    assert patched.data == {"y": "2"}
    replaced = maps.replace(patched, body("a", z="3"))
    assert maps.lister.get("a", "default") == replaced
    assert replaced.data == {"z": "3"}
    maps.delete(replaced)
    assert maps.find("a", "default") is None
    assert maps.fetch("a", "default") is None


def test_a_write_that_fails_changes_no_read(maps: CachedClient[ConfigMap]) -> None:
    created = maps.create(body("a"), "default")
    maps.client.delete("a", "default")
    with pytest.raises(NotFound):
        maps.patch(created, {"data": {"x": "1"}})
    assert maps.list() == [created]
    assert maps.resource == MAPS


def test_a_change_of_an_outdated_object_is_refused(maps: CachedClient[ConfigMap]) -> None:
    outdated = maps.create(body("a", x="1"), "default")
    current = maps.patch(outdated, {"data": {"x": "2"}})
    with pytest.raises(Conflict):
        maps.patch(outdated, {"data": {"x": "3"}})
    with pytest.raises(Conflict):
        maps.replace(outdated, body("a", x="3"))
    assert maps.fetch("a", "default") == current


def test_no_write_reaches_another_object_of_the_same_name(maps: CachedClient[ConfigMap]) -> None:
    gone = maps.create(body("a", x="1"), "default")
    maps.client.delete("a", "default")
    successor = maps.client.create(body("a", x="2"), "default")
    for write in (maps.patch, maps.patch_any_version, maps.replace):
        with pytest.raises(Conflict):
            write(gone, body("a", x="3"))
    maps.delete(gone)
    assert maps.fetch("a", "default") == successor


@pytest.mark.parametrize("is_known", [True, False])
def test_a_deleted_object_with_a_finalizer_is_shown_as_terminating(
    maps: CachedClient[ConfigMap], is_known: bool
) -> None:
    """Also if it got the finalizer after the caller had read it."""
    read = maps.create(body("a"), "default")
    kept = maps.client.patch("a", {"metadata": {"finalizers": ["example.com/x"]}}, "default")
    maps.delete(kept if is_known else read)
    shown = maps.find("a", "default")
    assert shown is not None
    assert shown.metadata.deletion_timestamp is not None
    assert shown.metadata.finalizers == ("example.com/x",)
    assert shown == maps.fetch("a", "default")


def test_an_empty_change_of_the_status_sends_no_request(
    server: ApiServer, maps: CachedClient[ConfigMap]
) -> None:
    created = maps.create(body("a"), "default")
    server.faults.add(Fault(verb="patch", status=500, times=None))
    assert maps.patch_status(created, {}) is created


def test_a_read_from_the_server_can_be_shown_by_later_reads(maps: CachedClient[ConfigMap]) -> None:
    maps.client.create(body("a"), "default")
    assert maps.find("a", "default") is None
    found = maps.fetch("a", "default")
    assert found is not None
    maps.observe(found)
    assert maps.find("a", "default") == found


def test_list_all_returns_the_objects_of_the_server(
    server: ApiServer, maps: CachedClient[ConfigMap]
) -> None:
    created = maps.client.create(body("a"), "default")
    with Client(ClientConfig(server.url)) as client:
        assert created in list_all(client, MAPS)
