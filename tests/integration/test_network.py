"""Informers behind a faulty network, on a server with scaled times.

Tests for any server are in `framework/test_network.py`.

All times are divided by `SCALE`: the server sends a bookmark every minute, a watch counts
as dead after 75 seconds of silence, and must recover within 15 more seconds.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.informers import make_informer

from navarchos.backoff import Backoff
from navarchos.client import Client, ClientConfig, Resource
from navarchos.informers import InformerOptions, Scope, SharedInformer
from navarchos.informers.options import IDLE_TIMEOUT, REFLECTOR_BACKOFF
from navarchos.instrument import Instruments
from navarchos.meta import Object
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, Fault
from navarchos.testing.faultproxy import Direction, FaultProxy, WireFault, WireFaultKind

SCALE = 25.0
BOOKMARKS = 60.0 / SCALE
IDLE = IDLE_TIMEOUT / SCALE
HEALED = 90.0 / SCALE
LIMIT = 30.0
KEPT = 5
POOLED = 2
"""Connections that a client keeps for later, with one informer at a time."""

PROMPT = Backoff(base=REFLECTOR_BACKOFF.base / SCALE, cap=REFLECTOR_BACKOFF.cap / SCALE)


class ConfigMap(Object, frozen=True):
    """An object with metadata only."""


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=ConfigMap)


def config_map(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


class Setting:
    """A server, a network, an informer behind it, and a client that bypasses the network."""

    def __init__(self, server: ApiServer, **options: Any) -> None:
        self.server = server
        self.instruments = Instruments()
        self.proxy = FaultProxy(server.url).start()
        config = ClientConfig(self.proxy.url)
        assert config.timeout is not None
        self.client = Client(replace(config, timeout=config.timeout / SCALE))
        self.direct = Client(ClientConfig(server.url))
        self.writer = self.direct.resource(CONFIG_MAPS)
        self.informer: SharedInformer[ConfigMap] = make_informer(
            self.client.resource(CONFIG_MAPS),
            namespace="default",
            instruments=self.instruments,
            **{"backoff": PROMPT, **options},
        )
        self.changed = threading.Condition()
        self.informer.add_handler(
            on_add=self._notice, on_update=self._notice, on_delete=self._notice
        )

    def close(self) -> None:
        self.informer.stop()
        assert self.informer.join(LIMIT)
        self.client.close()
        self.direct.close()
        self.proxy.stop()

    def _notice(self, *_: object) -> None:
        with self.changed:
            self.changed.notify_all()

    def truth(self) -> dict[str, str]:
        """Return the resourceVersion of each object on the server."""
        found = self.server.list("configmaps", "default")
        return {str(o["metadata"]["name"]): str(o["metadata"]["resourceVersion"]) for o in found}

    def is_right(self) -> bool:
        cached = self.informer.store.values()
        known = {obj.metadata.name: obj.metadata.resource_version for obj in cached}
        return known == self.truth()

    def wait_until_right(self, timeout: float) -> bool:
        """Wait until the cache equals the server's list, checked on every notification."""
        with self.changed:
            return self.changed.wait_for(self.is_right, timeout)

    def wait_for_connections(self, most: int) -> bool:
        """Wait until the proxy and the server have noticed the closed connections."""
        pause, tries = StopToken(), int(LIMIT / 0.01)
        return any(self.proxy.open_connections <= most or pause.wait(0.01) for _ in range(tries))

    def see_a_bookmark(self) -> None:
        """Wait for a bookmark: from then on the informer treats silence as a fault."""
        assert self.informer.wait_for_sync(LIMIT)
        # An object out of scope changes: only a bookmark shows that.
        made = self.writer.create({"metadata": {"name": "elsewhere"}}, "kube-system")
        version = made.metadata.resource_version
        assert self.informer._position.wait_for(lambda at: at.version == version, LIMIT)

    def wait_until_stale(self, timeout: float) -> bool:
        return self.informer._position.wait_for(lambda at: at.disconnected, timeout)

    def count(self, metric: str) -> float:
        found = self.instruments.registry.get_sample_value(
            f"navarchos_informer_{metric}", {"resource": "configmaps"}
        )
        assert found is not None
        return found


@pytest.fixture
def setting() -> Iterator[Callable[..., Setting]]:
    made: list[Setting] = []
    servers: list[ApiServer] = []

    def make(*, bookmarks: float = 0.1, **options: Any) -> Setting:
        servers.append(ApiServer(bookmark_interval=bookmarks).start())
        made.append(Setting(servers[-1], **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
    for server in servers:
        server.stop()


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    began = time.monotonic()
    yield lambda: time.monotonic() - began


@pytest.mark.rule("RF-14")
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "listing"])
def test_idle_watches_stay_open_and_a_dead_watch_is_reported_and_resumed_in_time(
    setting: Callable[..., Setting], streaming: bool
) -> None:
    """A server without changes also sends a bookmark every minute."""
    given = setting(bookmarks=BOOKMARKS, idle_timeout=IDLE, streaming=streaming)
    given.server.install(config_map("a"))
    given.informer.start()
    given.see_a_bookmark()
    # 1. No change for three times the limit of a dead watch.
    assert not StopToken().wait(3 * IDLE)
    assert (given.count("watches_total"), given.proxy.open_connections) == (1, 1)
    assert not given.informer.is_disconnected
    # 2. The connection dies without a reset. An object changes.
    for direction in Direction:
        given.proxy.strike(WireFault(WireFaultKind.DROP, direction))
    given.proxy.refuse()
    given.server.install(config_map("b"))
    with stopwatch() as elapsed:
        assert given.wait_until_stale(LIMIT)
        assert elapsed() <= IDLE * 1.1
        assert given.count("disconnected") == 1
        assert not given.is_right()
        # 3. The network recovers.
        given.proxy.heal()
        assert given.wait_until_right(LIMIT)
        assert elapsed() <= HEALED
    assert not given.informer.is_disconnected


def test_idle_connections_that_died_with_the_watch_do_not_delay_the_next_watch(
    setting: Callable[..., Setting],
) -> None:
    """The next watch uses the connection object that was closed last, so it connects again.

    Each of the other connections would cost a whole timeout.
    """
    given = setting(bookmarks=BOOKMARKS, idle_timeout=IDLE)
    given.informer.start()
    assert given.informer.wait_for_sync(LIMIT)
    maps = given.client.resource(CONFIG_MAPS)
    given.server.faults.add(Fault(verb="list", times=KEPT, delay=0.3))  # enough for all of them
    with ThreadPoolExecutor(KEPT) as threads:
        for listed in [threads.submit(maps.list, "default") for _ in range(KEPT)]:
            listed.result(LIMIT)
    assert given.proxy.open_connections == 1 + KEPT
    for direction in Direction:
        given.proxy.strike(WireFault(WireFaultKind.DROP, direction))
    with stopwatch() as elapsed:
        given.server.install(config_map("b"))
        assert given.wait_until_right(LIMIT)
        assert elapsed() <= HEALED


def test_a_thousand_starts_and_stops_leave_no_thread_and_no_descriptor(
    setting: Callable[..., Setting], open_descriptors: Callable[[], int]
) -> None:
    """The stops interrupt connecting, listing, watching and pausing."""
    given = setting()
    given.server.install(config_map("a"))
    maps = given.client.resource(CONFIG_MAPS)

    def cycle(number: int) -> None:
        informer = SharedInformer(
            maps, Scope(namespace="default"), InformerOptions(streaming=number % 2 == 0)
        )
        informer.add_handler(on_add=lambda obj, is_in_initial_list: None)
        informer.start()
        if number % 3:
            assert informer.wait_for_sync(LIMIT)
        informer.stop()
        assert informer.join(LIMIT)

    for number in range(12):  # fills the connection pool
        cycle(number)
    threads = threading.active_count()
    assert given.wait_for_connections(POOLED)
    descriptors = open_descriptors()
    for number in range(1000):
        cycle(number)
    assert threading.active_count() == threads
    assert given.wait_for_connections(POOLED)
    assert open_descriptors() <= descriptors + 3 * POOLED
