import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from navarchos.client import Resource
from navarchos.errors import AlreadyStopped, ConfigError, Stopped
from navarchos.informers import InformerFactory, KindNotCached, SyncTimeout
from navarchos.meta import Object
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource

Make = Callable[..., Any]


class Sources:
    """A client of fake sources: one for each kind, whatever it is projected to."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.made: dict[str, FakeSource[Any]] = {}
        self.broken: set[str] = set()

    def resource(self, resource: Resource[Any]) -> FakeSource[Any]:
        source = FakeSource(resource, clock=self._clock)
        if resource.plural in self.broken:
            source.fail("watch", *[ConnectionError("down")] * 99)
            source.fail("list", *[ConnectionError("down")] * 99)
        self.made[resource.plural] = source
        return source


class Wide(Object, frozen=True):
    size: int = 0
    colour: str = ""


class Wider(Wide, frozen=True):
    weight: int = 0


BOXES = Resource("", "v1", "boxes", "Box", namespaced=True, type=Wide)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=Object)


@pytest.fixture
def sources(fake_clock: FakeClock) -> Sources:
    return Sources(fake_clock)


@pytest.fixture
def factory(sources: Sources, fake_clock: FakeClock) -> Iterator[InformerFactory]:
    factory = InformerFactory(sources, clock=fake_clock, freeze=False)
    yield factory
    assert factory.shutdown()


@pytest.mark.rule("IF-01")
def test_equal_wishes_get_the_same_informer(factory: InformerFactory) -> None:
    first = factory.informer(BOXES)
    assert factory.informer(BOXES) is first
    assert factory.informer(BOXES, namespace="ns") is not first
    assert factory.informer(BOXES, label_selector="a=b") is not first
    assert factory.informer(BOXES, field_selector="a=b") is not first
    assert factory.find(BOXES) is first


def test_a_projection_that_contains_the_other_serves_both(factory: InformerFactory) -> None:
    wider = factory.informer(BOXES.projected(Wider))
    assert factory.informer(BOXES) is wider
    slim = factory.informer(BOXES.projected(Object))
    assert slim is wider
    untyped = factory.informer(BOXES.projected(dict))
    assert untyped is not wider


@pytest.mark.rule("IF-05")
def test_finding_makes_no_informer(factory: InformerFactory) -> None:
    with pytest.raises(KindNotCached) as caught:
        factory.find(BOXES, namespace="ns")
    assert caught.value.resource == "boxes in ns"


@pytest.mark.rule("IF-07")
def test_indexers_are_added_to_the_shared_informer(factory: InformerFactory) -> None:
    factory.informer(BOXES)
    informer = factory.informer(BOXES, indexers={"size": lambda box: [str(box.size)]})
    assert "size" in informer.store.index_names()


@pytest.mark.rule("IF-10")
def test_a_cluster_scoped_kind_takes_no_namespace(factory: InformerFactory) -> None:
    with pytest.raises(ConfigError, match="cluster-scoped"):
        factory.informer(NODES, namespace="ns")


@pytest.mark.rule("IF-02")
def test_start_starts_what_does_not_run_yet(
    factory: InformerFactory, sources: Sources, fake_clock: FakeClock
) -> None:
    boxes = factory.informer(BOXES)
    factory.start()
    factory.start()
    factory.wait_for_sync(None)
    nodes = factory.informer(NODES)
    fake_clock.settle()
    assert boxes.has_synced()
    assert not nodes.has_synced()
    factory.start()
    factory.wait_for_sync(None)
    assert nodes.has_synced()
    assert len(sources.made["boxes"].streams) == 1


@pytest.mark.rule("IF-02")
def test_shutdown_waits_for_all_and_forbids_starts(factory: InformerFactory) -> None:
    boxes = factory.informer(BOXES)
    factory.start()
    assert factory.shutdown()
    assert factory.shutdown(0)
    assert not boxes._threads[0].running()
    with pytest.raises(AlreadyStopped):
        factory.start()


@pytest.mark.rule("IF-03")
def test_waiting_for_sync_names_who_is_late(
    factory: InformerFactory, sources: Sources, fake_clock: FakeClock
) -> None:
    sources.broken.add("nodes")
    factory.informer(BOXES)
    factory.informer(NODES)
    factory.start()
    fake_clock.settle()
    with pytest.raises(SyncTimeout) as caught:
        factory.wait_for_sync(0)
    assert caught.value.unsynced == ("nodes",)
    stop = StopToken()
    stop.stop("enough")
    with pytest.raises(Stopped, match="enough"):
        factory.wait_for_sync(None, stop)


def test_an_outer_token_stops_all(factory: InformerFactory, fake_clock: FakeClock) -> None:
    stop = StopToken(clock=fake_clock)
    informers = [factory.informer(BOXES), factory.informer(NODES)]
    factory.start(stop)
    stop.stop()
    assert all(informer.join() for informer in informers)


def test_filled_caches_are_taken_out_of_the_collectors_reach(
    sources: Sources, fake_clock: FakeClock
) -> None:
    factory = InformerFactory(sources, clock=fake_clock)
    factory.informer(BOXES)
    factory.start()
    before = gc.get_freeze_count()
    try:
        factory.wait_for_sync(None)
        frozen = gc.get_freeze_count()
        assert frozen > before
        factory.wait_for_sync(None)
        assert gc.get_freeze_count() <= frozen, "once for each informer is enough"
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        assert factory.shutdown()
