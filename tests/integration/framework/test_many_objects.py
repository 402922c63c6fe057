"""Informers of a kind with many objects: thousands in this process, 20,000 on a real server."""

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.integration.framework.kinds import CONFIG_MAPS, ConfigMap
from tests.integration.framework.sources import GatedWatches
from tests.integration.framework.waiting import LIMIT, until
from tests.servers import IN_PROCESS, Served, serve

from navarchos.backoff import Backoff
from navarchos.client import Client
from navarchos.client.options import ListOptions
from navarchos.informers import InformerOptions, Scope, SharedInformer, Tombstone, deletion_key
from navarchos.instrument import Instruments
from navarchos.meta import Object, key_of
from navarchos.parallel import parallelize
from navarchos.stopping import StopToken
from navarchos.testing.faultproxy import FaultProxy, WireFault, WireFaultKind

pytestmark = pytest.mark.timeout(300)

PAGE = 500
PATIENCE = 4 * LIMIT
NAMES = CONFIG_MAPS.projected(Object)
NAMESPACE = "crowd"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
TEXT = "x" * 1000


class SlimMeta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What the framework itself needs, and nothing else."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Slim(msgspec.Struct, frozen=True, gc=False):
    metadata: SlimMeta = SlimMeta()


class Crowd:
    """A server of this module's own, with many objects.

    Attributes:
        served: The server.
        client: A way to it.
        count: How many objects were made.
    """

    def __init__(self, served: Served, client: Client) -> None:
        self.served = served
        self.client = client
        self.count = 2_000 if served.kind == IN_PROCESS else 20_000

    def fill(self) -> None:
        self._post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        parallelize(range(self.count), self.create, workers=8, stop=StopToken())

    def create(self, number: int) -> None:
        labels = {"tenth": str(number % 10)}
        metadata = {"name": f"m{number}", "labels": labels}
        self._post(PATH, {"metadata": metadata, "data": {"text": TEXT}})

    def change(self, count: int) -> list[str]:
        """Delete, change and make so many; return the keys of those deleted."""
        maps = self.client.resource(CONFIG_MAPS)
        for number in range(count):
            maps.delete(f"m{number}", NAMESPACE)
            maps.patch(f"m{count + number}", {"data": {"text": "y"}}, NAMESPACE)
            self.create(self.count + number)
        return [f"{NAMESPACE}/m{number}" for number in range(count)]

    def truth(self) -> dict[str, tuple[str, str]]:
        """Return uid and version of each object, as an ordinary list has them."""
        found = self.client.resource(NAMES).list(NAMESPACE, ListOptions(limit=0)).items
        return {key_of(obj): (obj.metadata.uid, obj.metadata.resource_version) for obj in found}

    def raw_size(self) -> float:
        """Return the size of an object on the wire, in bytes, on the average."""
        return len(self.client.raw("GET", PATH).body) / self.count

    def _post(self, path: str, body: object) -> None:
        made = self.client.raw("POST", path, body=body)
        assert made.status == 201, made.body


@pytest.fixture(scope="module")
def crowd(pytestconfig: pytest.Config) -> Iterator[Crowd]:
    """A server that is filled once; what one test changes, the next one finds changed."""
    with serve(pytestconfig.getoption("--server")) as served, Client(served.config) as client:
        if served.server is None:
            pytest.skip("the server does not belong to this run: it must not get so many objects")
        crowd = Crowd(served, client)
        crowd.fill()
        yield crowd


class Ends:
    """A handler that records deletions, and whether they were watched."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.missed: list[str] = []

    def on_add(self, obj: ConfigMap, is_in_initial_list: bool) -> None: ...

    def on_update(self, old: ConfigMap, new: ConfigMap) -> None: ...

    def on_delete(self, obj: ConfigMap | Tombstone[ConfigMap]) -> None:
        (self.missed if isinstance(obj, Tombstone) else self.seen).append(deletion_key(obj))


@contextmanager
def running(informer: SharedInformer[Any]) -> Iterator[SharedInformer[Any]]:
    informer.start()
    try:
        assert informer.wait_for_sync(PATIENCE)
        yield informer
    finally:
        informer.stop()
        assert informer.join(LIMIT)


def shown(informer: SharedInformer[Any]) -> dict[str, tuple[str, str]]:
    found = informer.store.snapshot()
    return {key: (obj.metadata.uid, obj.metadata.resource_version) for key, obj in found.items()}


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "pages"])
def test_all_of_many_objects_are_cached(crowd: Crowd, streaming: bool) -> None:
    source = GatedWatches(crowd.client.resource(CONFIG_MAPS), from_etcd=True)
    informer = SharedInformer(
        source, Scope(namespace=NAMESPACE), InformerOptions(streaming=streaming, page_size=PAGE)
    )
    with running(informer):
        truth = crowd.truth()
        assert len(truth) >= crowd.count
        assert shown(informer) == truth
        assert source.pages == (0 if streaming else -(-len(truth) // PAGE))


class Follower:
    """An informer behind a gate, with its events and its metrics."""

    def __init__(self, client: Client, *, streaming: bool) -> None:
        self.source = GatedWatches(client.resource(CONFIG_MAPS), from_etcd=True)
        self.ends = Ends()
        self._instruments = Instruments()
        self.informer = SharedInformer(
            self.source,
            Scope(namespace=NAMESPACE),
            InformerOptions(
                streaming=streaming, page_size=PAGE, backoff=Backoff(base=0.02, cap=0.2)
            ),
            instruments=self._instruments,
        )
        self.informer.add_handler(self.ends)

    def count(self, name: str, **labels: str) -> float | None:
        labels = {"resource": "configmaps", **labels}
        name = f"navarchos_informer_{name}_total"
        return self._instruments.registry.get_sample_value(name, labels)


@pytest.mark.rule("RF-21", "RT-01")
def test_many_objects_are_right_after_a_relist_that_forgotten_history_made_necessary(
    crowd: Crowd,
) -> None:
    with (
        FaultProxy(crowd.served.config.host) as network,
        Client(replace(crowd.served.config, host=network.url)) as client,
    ):
        followers = [Follower(client, streaming=streaming) for streaming in (True, False)]
        with running(followers[0].informer), running(followers[1].informer):
            for each in followers:
                until(lambda: each.count("watches") == 1)  # noqa: B023 - called at once
                each.source.gate.clear()
            network.strike(WireFault(WireFaultKind.CUT))
            for each in followers:
                assert each.source.is_waiting.wait(LIMIT)
            deleted = crowd.change(3)
            crowd.served.forget()
            truth = crowd.truth()
            for each in followers:
                each.source.gate.set()
                until(lambda: len(each.ends.missed) == len(deleted))  # noqa: B023 - called at once
                assert shown(each.informer) == truth
                assert sorted(each.ends.missed) == deleted
                assert each.ends.seen == []
                assert each.count("relists", reason="expired") == 1


@pytest.mark.usefixtures("no_detector")  # it keeps a copy of each
def test_an_object_costs_what_its_projection_lists_and_not_what_it_has(crowd: Crowd) -> None:
    """Measured against the bytes on the wire: a thousand bytes of text and the metadata.

    The least of three counts: a server in this process frees its responses meanwhile.
    """
    raw = crowd.raw_size()

    def cost(source: Any) -> float:
        """Return the bytes of an object; what else this process holds stays out of it."""
        gc.collect()
        tracemalloc.start()
        try:
            with running(
                SharedInformer(source, Scope(namespace=NAMESPACE, label_selector="tenth=9"))
            ) as informer:
                count = len(informer.store)
            gc.collect()
            filled, _ = tracemalloc.get_traced_memory()
            del informer
            gc.collect()
            return (filled - tracemalloc.get_traced_memory()[0]) / count
        finally:
            tracemalloc.stop()

    slim = crowd.client.resource(CONFIG_MAPS.projected(Slim))
    full = crowd.client.resource(CONFIG_MAPS.projected(dict))
    projected = min(cost(slim) for _ in range(3))
    whole = min(cost(full) for _ in range(3))
    sizes = f"{raw:.0f} bytes on the wire, {projected:.0f} projected, {whole:.0f} whole"
    assert projected < 0.6 * raw, sizes
    assert projected < 0.3 * whole, sizes
