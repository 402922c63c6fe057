"""Informers over real sockets, against an API server that misbehaves, in real time.

What holds for each API server is in `tests/integration/framework/test_informers.py`.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.informers import make_informer

from navarchos.backoff import Backoff
from navarchos.client import Client, ClientConfig, Resource
from navarchos.informers import SharedInformer, Tombstone
from navarchos.meta import Object
from navarchos.testing.apiserver import ApiServer, Fault

LIMIT = 30.0


class ConfigMap(Object, frozen=True):
    data: Mapping[str, str] = {}


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=ConfigMap)


class Seen:
    """A handler, and a way to wait until it has heard of something."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.calls: list[tuple[str, str]] = []

    def on_add(self, obj: ConfigMap, is_in_initial_list: bool) -> None:
        self._note("add", obj.metadata.name)

    def on_update(self, old: ConfigMap, new: ConfigMap) -> None:
        if old.metadata.resource_version != new.metadata.resource_version:
            self._note("update", new.metadata.name)

    def on_delete(self, obj: ConfigMap | Tombstone[ConfigMap]) -> None:
        name = obj.key if isinstance(obj, Tombstone) else obj.metadata.name
        self._note("gone" if isinstance(obj, Tombstone) else "delete", name)

    def _note(self, what: str, name: str) -> None:
        with self._changed:
            self.calls.append((what, name))
            self._changed.notify_all()

    def wait(self, *calls: tuple[str, str]) -> None:
        with self._changed:
            there = self._changed.wait_for(lambda: set(calls) <= set(self.calls), LIMIT)
        assert there, f"missing {set(calls) - set(self.calls)} of {self.calls}"


@pytest.fixture(params=[True, False], ids=["streaming", "listing"])
def server(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    with ApiServer(bookmark_interval=0.2, serve_streaming_lists=request.param) as server:
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(host=server.url)) as client:
        yield client


@pytest.fixture
def informer_of(client: Client) -> Iterator[Callable[..., "SharedInformer[ConfigMap]"]]:
    made: list[SharedInformer[ConfigMap]] = []

    def make(**options: Any) -> "SharedInformer[ConfigMap]":
        options = {"namespace": "default", "backoff": Backoff(base=0.02, cap=0.2), **options}
        made.append(make_informer(client.resource(CONFIG_MAPS), **options))
        return made[-1]

    yield make
    for informer in made:
        informer.stop("the test is over")
        assert informer.join(LIMIT)


def create(client: Client, name: str, **data: str) -> ConfigMap:
    obj = {"metadata": {"name": name}, "data": data}
    return client.resource(CONFIG_MAPS).create(obj, "default")


def see_a_bookmark(client: Client, informer: SharedInformer[ConfigMap]) -> None:
    """Return once a bookmark has come: from then on silence is known to be a fault."""
    assert informer.wait_for_sync(LIMIT)
    # The change of an object out of scope: only a bookmark can show it.
    elsewhere = {"metadata": {"name": "elsewhere"}}
    version = (
        client.resource(CONFIG_MAPS).create(elsewhere, "kube-system").metadata.resource_version
    )
    assert informer._position.wait_for(lambda at: at.version == version, LIMIT)


@pytest.mark.parametrize(
    "fault",
    [
        {"drop_after": 4},
        {"half_close_after": 4},
        {"truncate_after": 4},
        {"stall_after": 4},
        {"duplicate": 4},
    ],
    ids=lambda fault: next(iter(fault)),
)
def test_a_watch_that_goes_wrong_loses_nothing(
    server: ApiServer,
    client: Client,
    informer_of: Callable[..., Any],
    fault: dict[str, int],
) -> None:
    informer = informer_of(idle_timeout=0.6)
    seen = Seen()
    informer.add_handler(seen)
    informer.start()
    see_a_bookmark(client, informer)
    server.faults.add(Fault(verb="watch", resource="configmaps", times=2, **fault))  # type: ignore[arg-type]  # one number each
    informer._reflector.relist(informer.last_resource_version)
    # A list has them in this order, too: the one asked for may come among them.
    names = [f"c{number:02}" for number in range(12)]
    for name in names:
        create(client, name)
    seen.wait(*(("add", name) for name in names))
    adds = [name for what, name in seen.calls if what == "add"]
    assert adds == names, "in order, and each once"


def test_a_lost_event_is_made_good_by_the_next_list(
    server: ApiServer, client: Client, informer_of: Callable[..., Any]
) -> None:
    server.faults.add(Fault(verb="watch", resource="configmaps", lose=2))
    informer = informer_of(streaming=False)
    seen = Seen()
    informer.add_handler(seen)
    informer.start()
    assert informer.wait_for_sync(LIMIT)
    for name in ("a", "b", "c"):
        create(client, name)
    seen.wait(("add", "a"), ("add", "c"))
    assert "default/b" not in informer.store
    informer._reflector.relist(informer.last_resource_version)
    seen.wait(("add", "b"))
