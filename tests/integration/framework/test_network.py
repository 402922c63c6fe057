"""Informers behind a network that misbehaves: over TLS where the server is a real one."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

import pytest
from tests.integration.framework.kinds import CONFIG_MAPS, ConfigMap
from tests.integration.framework.waiting import LIMIT, Seen, until
from tests.seeds import runs
from tests.servers import IN_PROCESS, Served

from navarchos.client import Client, ResourceClient
from navarchos.client.options import ListOptions
from navarchos.informers import SharedInformer
from navarchos.testing.faultproxy import Direction, FaultProxy, WireFault, WireFaultKind

MakeInformer = Callable[..., SharedInformer[Any]]
Maps = ResourceClient[ConfigMap]

TIMEOUT: Final = 1.0
"""Seconds for requests, and of silence in watches, so that no test waits for minutes."""

LONG: Final = 24
WIDE: Final = 8_000
"""Objects, and letters in each: a list that real servers compress, which short ones they do not."""


@dataclass
class Setting:
    """A client behind the network, and a client that writes directly to the server."""

    network: FaultProxy
    client: Client
    direct: Maps
    namespace: str

    def is_right(self, informer: SharedInformer[Any]) -> bool:
        """Tell whether a cache equals the server's list."""
        found = self.direct.list(self.namespace, ListOptions(label_selector="test=yes")).items
        return _versions(informer.store.values()) == _versions(found)

    def change(self, number: int) -> None:
        """Create, change and delete."""
        for name in (f"a{number}", f"b{number}"):
            metadata = {"name": name, "labels": {"test": "yes"}}
            self.direct.create({"metadata": metadata}, self.namespace)
        self.direct.patch(f"b{number}", {"data": {"n": str(number)}}, self.namespace)
        self.direct.delete(f"a{number}", self.namespace)


def _versions(objects: list[ConfigMap]) -> dict[str, str]:
    return {obj.metadata.name: obj.metadata.resource_version for obj in objects}


@contextmanager
def behind(
    network: FaultProxy, served: Served, maps: Maps, namespace: str, **options: Any
) -> Iterator[Setting]:
    config = replace(served.config, host=network.url, timeout=TIMEOUT, **options)
    with Client(config) as client:
        yield Setting(network, client, maps, namespace)


@pytest.fixture
def setting(network: FaultProxy, served: Served, maps: Maps, namespace: str) -> Iterator[Setting]:
    with behind(network, served, maps, namespace) as setting:
        yield setting


@pytest.fixture
def informer(setting: Setting, informer_of: MakeInformer) -> SharedInformer[Any]:
    """Provide a running informer that treats silence as a fault.

    It does so after the first bookmark of the server. A streamed list ends with one; the
    others come once a minute.
    """
    watched = setting.client.resource(CONFIG_MAPS)
    options = {"client": watched, "idle_timeout": TIMEOUT}
    first = informer_of(**options, streaming=True)
    informer = informer_of(**options)
    for each in (first, informer):
        each.start()
        assert each.wait_for_sync(LIMIT)
    first.stop()
    assert first.join(LIMIT)
    return informer


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("kind", WireFaultKind)
def test_each_fault_ends_in_a_cache_that_is_the_servers_list(
    setting: Setting, informer: SharedInformer[Any], kind: WireFaultKind, direction: Direction
) -> None:
    """On the open watch at once or in a while, and on the next connection in the same two ways."""
    network, seconds = setting.network, 0.05 if kind is WireFaultKind.DELAY else 0.0
    for number, after_bytes in enumerate((0, 300)):
        fault = WireFault(kind, direction, after_bytes=after_bytes, seconds=seconds)
        network.strike(fault)
        setting.change(2 * number)
        until(lambda: setting.is_right(informer))
        network.heal()
        network.strike_next(fault)
        network.strike(WireFault(WireFaultKind.CUT))
        setting.change(2 * number + 1)
        until(lambda: setting.is_right(informer))
        network.heal()
    assert network.strikes >= 2


@pytest.mark.parametrize("seed", range(runs(2, at_most=100)))
def test_any_sequence_of_faults_ends_in_a_cache_that_is_the_servers_list(
    setting: Setting, informer: SharedInformer[Any], served: Served, seed: int
) -> None:
    rand, network = random.Random(seed), setting.network
    for number in range(12):
        fault = WireFault.draw(rand, bytes_at_most=2000, seconds_at_most=0.1)
        match rand.randrange(5):
            case 0:
                network.strike(fault)
            case 1:
                network.strike_next(fault)
            case 2:
                network.strike_new(fault)
            case 3:
                network.refuse()
            case 4 if served.kind == IN_PROCESS:  # a real one has to be started again for it
                served.forget()
        setting.change(number)
        if rand.random() < 0.5:
            network.heal()
    network.heal()
    until(lambda: setting.is_right(informer))


@pytest.mark.parametrize(
    "kind",
    [
        WireFaultKind.CUT,
        WireFaultKind.RESET,
        WireFaultKind.HALF_CLOSE,
        WireFaultKind.STALL,
        WireFaultKind.DROP,
    ],
)
def test_a_compressed_list_that_breaks_in_the_middle_is_listed_again(
    client: Client,
    network: FaultProxy,
    served: Served,
    maps: Maps,
    namespace: str,
    informer_of: MakeInformer,
    kind: WireFaultKind,
) -> None:
    """An incomplete list is not stored, not even its complete objects."""
    rand = random.Random(0)
    for number in range(LONG):
        metadata = {"name": f"c{number:02}", "labels": {"test": "yes"}}
        # Letters that do not compress well: there is much to cut.
        data = {"noise": rand.randbytes(WIDE // 2).hex()}
        maps.create({"metadata": metadata, "data": data}, namespace)
    assert served.kind == IN_PROCESS or is_compressed(client, namespace)
    seen = Seen()
    with behind(network, served, maps, namespace, compression=True) as setting:
        network.strike_next(WireFault(kind, after_bytes=30_000))
        informer = informer_of(
            client=setting.client.resource(CONFIG_MAPS), streaming=False, idle_timeout=TIMEOUT
        )
        informer.add_handler(seen)
        informer.start()
        assert network.wait_for_strikes(1, LIMIT)
        assert not informer.has_synced()
        network.heal()
        assert informer.wait_for_sync(LIMIT)
        assert setting.is_right(informer)
        seen.wait(*(("initial", f"c{number:02}") for number in range(LONG)))
        informer.stop()
        assert informer.join(LIMIT)
    assert len(seen.calls) == LONG


def is_compressed(client: Client, namespace: str) -> bool:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    answer = client.raw("GET", path, headers={"Accept-Encoding": "gzip"})
    assert answer.status == HTTPStatus.OK
    return answer.headers.get("content-encoding") == "gzip"


@pytest.mark.parametrize("when", ["in the request", "in the read"])
def test_a_stop_frees_an_informer_whose_network_is_dead_within_a_second(
    setting: Setting, informer_of: MakeInformer, when: str
) -> None:
    """The thread may wait in a request for a watch or list, or in the read of a silent watch."""
    network = setting.network
    if when == "in the request":
        network.strike_new(WireFault(WireFaultKind.DROP, Direction.TO_SERVER))
    # Nothing but the stop may end the wait.
    with Client(replace(setting.client.config, timeout=None)) as patient:
        informer = informer_of(client=patient.resource(CONFIG_MAPS), idle_timeout=None)
        informer.start()
        if when == "in the request":
            assert network.wait_for_strikes(1, LIMIT)
        else:
            assert informer.wait_for_sync(LIMIT)
            # A delivered change proves that the informer reads its watch.
            setting.change(0)
            until(lambda: setting.is_right(informer))
            for direction in Direction:
                network.strike(WireFault(WireFaultKind.DROP, direction))
        informer.stop()
        assert informer.join(1.0)
