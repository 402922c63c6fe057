import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from navarchos.client import Resource
from navarchos.errors import AlreadyStopped, ConfigError, NotStarted, Stopped
from navarchos.informers import (
    NAMESPACE_INDEX,
    FactoryOptions,
    InformerFactory,
    KindNotCached,
    KindOptions,
    NamespaceNotCached,
    SharedInformer,
    SyncTimeout,
    field_index,
)
from navarchos.informers.gc_freeze import GC_FREEZER
from navarchos.informers.lister import UnionReader
from navarchos.informers.store import WritableStore
from navarchos.instrument import Instruments
from navarchos.meta import Object, ObjectMeta, ResourceVersion
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource

Make = Callable[..., Any]


class Sources:
    """A client of fake sources: one for each kind, for all its projections."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.made: dict[str, FakeSource[Any]] = {}
        self.before: dict[str, Callable[[FakeSource[Any]], object]] = {}
        self.broken: set[str] = set()

    def resource(self, resource: Resource[Any]) -> FakeSource[Any]:
        source = FakeSource(resource, clock=self._clock)
        if resource.plural in self.broken:
            source.fail("watch", *[ConnectionError("down")] * 99)
            source.fail("list", *[ConnectionError("down")] * 99)
        if resource.plural in self.before:
            self.before[resource.plural](source)
        self.made[resource.plural] = source
        return source


class Wide(Object, frozen=True):
    size: int = 0
    colour: str = ""


class Wider(Wide, frozen=True):
    weight: int = 0


BOXES = Resource("", "v1", "boxes", "Box", namespaced=True, type=Wide)
BAGS = Resource("", "v1", "bags", "Bag", namespaced=True, type=Wide)
THINGS = Resource("", "v1", "things", "Thing", namespaced=True, type=Object)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, type=Object)


def box(name: str, namespace: str = "ns", *, colour: str = "") -> Wide:
    return Wide(metadata=ObjectMeta(name=name, namespace=namespace), colour=colour)


def colour_of(box: Wide) -> list[str]:
    return [box.colour]


@pytest.fixture
def sources(fake_clock: FakeClock) -> Sources:
    return Sources(fake_clock)


@pytest.fixture
def factory(sources: Sources, fake_clock: FakeClock) -> Iterator[InformerFactory]:
    factory = InformerFactory(sources, FactoryOptions(freeze=False), clock=fake_clock)
    yield factory
    assert factory.shutdown()


@pytest.mark.rule("IF-01")
def test_equal_requests_get_the_same_informer(factory: InformerFactory) -> None:
    first = factory.informer(BOXES)
    assert factory.informer(BOXES) is first
    assert factory.informer(BOXES, namespace="ns") is not first
    assert factory.informer(BOXES, label_selector="a=b") is not first
    assert factory.informer(BOXES, field_selector="a=b") is not first
    assert factory.find(BOXES) is first


@pytest.mark.rule("IF-06")
def test_a_projection_that_contains_the_other_serves_both(factory: InformerFactory) -> None:
    wider = factory.informer(BOXES.projected(Wider))
    assert factory.informer(BOXES) is wider
    slim = factory.informer(BOXES.projected(Object))
    assert slim is wider
    untyped = factory.informer(BOXES.projected(dict))
    assert id(untyped) != id(wider)


@pytest.mark.rule("IF-05")
def test_finding_makes_no_informer(factory: InformerFactory, sources: Sources) -> None:
    with pytest.raises(KindNotCached) as caught:
        factory.find(BOXES, namespace="ns")
    assert caught.value.resource == "boxes in ns"
    assert sources.made == {}


@pytest.mark.rule("IF-07")
def test_indexers_are_added_to_the_shared_informer(factory: InformerFactory) -> None:
    factory.informer(BOXES)
    informer = factory.informer(BOXES, indexers={"size": lambda box: [str(box.size)]})
    assert "size" in informer.store.index_names()


@pytest.mark.rule("IF-10")
def test_a_cluster_scoped_kind_takes_no_namespace(factory: InformerFactory) -> None:
    for ask in (factory.informer, factory.find, factory.remove):
        with pytest.raises(ConfigError, match="cluster-scoped"):
            ask(NODES, namespace="ns")


def options_of(informer: SharedInformer[Any]) -> tuple[str, str, str, float]:
    scope = informer.scope
    return (
        scope.namespace,
        scope.label_selector,
        scope.field_selector,
        informer._options.resync_period,
    )


@pytest.mark.rule("IF-01", "IF-10")
def test_the_settings_of_a_request_precede_the_kinds_and_the_factorys(sources: Sources) -> None:
    factory = InformerFactory(
        sources,
        FactoryOptions(
            namespace="everywhere",
            resync_period=60,
            kinds={
                BOXES: KindOptions(
                    namespace="attic",
                    label_selector="kind=1",
                    field_selector="a=1",
                    resync_period=30,
                ),
                BAGS: KindOptions(namespace="", label_selector="bag=1"),
            },
        ),
    )
    assert options_of(factory.informer(THINGS)) == ("everywhere", "", "", 60)
    assert options_of(factory.informer(BOXES)) == ("attic", "kind=1", "a=1", 30)
    assert options_of(factory.informer(BAGS)) == ("", "bag=1", "", 60)
    assert options_of(factory.informer(NODES)) == ("", "", "", 60), "cluster-scoped"
    own = factory.informer(BOXES, namespace="mine", label_selector="x=1", field_selector="b=2")
    assert options_of(own) == ("mine", "x=1", "b=2", 30)


@pytest.mark.rule("IF-10")
@pytest.mark.parametrize(
    ("asked", "narrowed"),
    [
        (("", "metadata.namespace=x"), ("x", "")),
        (("x", "metadata.namespace==x,a=b"), ("x", "a=b")),
        (("", "a=b, metadata.namespace = x"), ("x", "a=b")),
        (("y", "metadata.namespace=x"), ("y", "metadata.namespace=x")),
        (("", "metadata.namespace!=x"), ("", "metadata.namespace!=x")),
        (("", "a=metadata.namespace=x"), ("", "a=metadata.namespace=x")),
    ],
)
def test_a_namespace_in_the_field_selector_narrows_the_request(
    factory: InformerFactory, asked: tuple[str, str], narrowed: tuple[str, str]
) -> None:
    namespace, fields = asked
    informer = factory.informer(BOXES, namespace=namespace, field_selector=fields)
    assert (informer.scope.namespace, informer.scope.field_selector) == narrowed
    assert factory.informer(BOXES, namespace=narrowed[0], field_selector=narrowed[1]) is informer


def test_a_cluster_scoped_kind_is_not_narrowed(factory: InformerFactory) -> None:
    informer = factory.informer(NODES, field_selector="metadata.namespace=x")
    assert options_of(informer)[:3] == ("", "", "metadata.namespace=x")


@pytest.mark.rule("IF-12")
def test_a_kinds_transform_goes_before_the_factorys(
    sources: Sources, fake_clock: FakeClock, request: pytest.FixtureRequest
) -> None:
    factory = InformerFactory(
        sources,
        FactoryOptions(
            transform=lambda obj: msgspec.structs.replace(obj, colour="grey"),
            kinds={BOXES: KindOptions(transform=lambda obj: msgspec.structs.replace(obj, size=1))},
            freeze=False,
        ),
        clock=fake_clock,
    )
    request.addfinalizer(factory.shutdown)
    found: list[Wide] = []
    for resource in (BOXES, BAGS):
        informer = factory.informer(resource)
        metadata = ObjectMeta(name="a", namespace="ns")
        sources.made[resource.plural].put(Wide(metadata=metadata, size=9, colour="red"))
        factory.start()
        fake_clock.settle()
        found += informer.store.values()
    assert [(wide.size, wide.colour) for wide in found] == [(1, "red"), (9, "grey")]


@pytest.mark.rule("RF-27")
def test_a_kind_may_do_without_streaming_lists(
    sources: Sources, fake_clock: FakeClock, request: pytest.FixtureRequest
) -> None:
    kinds = {BOXES: KindOptions[Any](streaming=False)}
    factory = InformerFactory(sources, FactoryOptions(kinds=kinds, freeze=False), clock=fake_clock)
    request.addfinalizer(factory.shutdown)
    for resource in (BOXES, BAGS):
        factory.informer(resource)
    factory.start()
    fake_clock.settle()
    first = {plural: source.requests[0] for plural, source in sources.made.items()}
    assert (first["boxes"].verb, first["boxes"].streaming) == ("list", False)
    assert (first["bags"].verb, first["bags"].streaming) == ("watch", True)


@pytest.mark.rule("IF-12")
def test_kinds_that_are_cached_differently_share_nothing(sources: Sources) -> None:
    trimmed = {BOXES: KindOptions[Wide](transform=lambda obj: obj)}
    often = {BOXES: KindOptions[Wide](resync_period=5)}
    for kinds in (trimmed, often):
        factory = InformerFactory(sources, FactoryOptions(kinds=kinds))
        wider = factory.informer(BOXES.projected(Wider))
        assert factory.informer(BOXES) is not wider
        assert factory.informer(BOXES.projected(Object)) is wider


@pytest.mark.rule("IF-09")
@pytest.mark.parametrize(("rand", "hours"), [(0.0, 9.0), (0.5, 10.0), (0.999, 10.998)])
def test_the_default_resync_comes_every_ten_hours_or_so(
    sources: Sources, rand: float, hours: float
) -> None:
    factory = InformerFactory(sources, FactoryOptions(resync_period=None, rand=lambda: rand))
    assert options_of(factory.informer(BOXES))[3] == pytest.approx(hours * 3600)


def test_a_negative_period_is_refused() -> None:
    with pytest.raises(ConfigError, match="resync_period"):
        KindOptions[Any](resync_period=-1)


@pytest.mark.rule("IF-04")
def test_a_read_of_an_unwatched_kind_starts_the_watch_and_waits_for_it(
    factory: InformerFactory, sources: Sources, fake_clock: FakeClock
) -> None:
    with pytest.raises(NotStarted):
        factory.lister(BOXES)
    assert sources.made == {}
    factory.start()
    sources.before["boxes"] = lambda source: source.put(box("a"))
    assert [obj.metadata.name for obj in factory.lister(BOXES).list()] == ["a"]
    factory.lister(BOXES)
    assert len(sources.made["boxes"].streams) == 1


@pytest.mark.rule("IF-04")
def test_such_a_read_ends_with_its_time_and_names_the_kind(
    factory: InformerFactory, sources: Sources
) -> None:
    sources.broken.add("boxes")
    factory.start()
    with pytest.raises(SyncTimeout) as caught:
        factory.lister(BOXES, timeout=0)
    assert caught.value.unsynced == ("boxes",)
    stop = StopToken()
    stop.stop("enough")
    with pytest.raises(Stopped, match="enough"):
        factory.lister(BOXES, stop=stop)
    assert factory.shutdown()
    with pytest.raises(AlreadyStopped):
        factory.lister(BOXES)


def test_what_a_read_started_stops_with_the_rest(
    factory: InformerFactory, fake_clock: FakeClock
) -> None:
    stop = StopToken(clock=fake_clock)
    factory.start(stop)
    factory.lister(BOXES)
    stop.stop()
    assert factory.find(BOXES).join()


@pytest.mark.rule("IF-11")
def test_some_namespaces_are_read_as_one_and_others_are_refused(
    factory: InformerFactory, sources: Sources, fake_clock: FakeClock
) -> None:
    factory.start()
    sources.before["boxes"] = lambda source: [
        source.put(box("a", "one", colour="red")),
        source.put(box("b", "two", colour="red")),
        source.put(box("c", "other", colour="red")),
    ]
    lister = factory.lister(BOXES, namespaces=["one", "two", "one"])
    assert [str(obj.metadata.key) for obj in lister.list()] == ["one/a", "two/b"]
    assert lister.list(namespace="two") == [lister.get("b", "two")]
    assert lister.find("a", "two") is None
    colours = field_index("colour", colour_of)
    for namespace in ("one", "two"):
        factory.informer(BOXES, namespace=namespace, indexers=colours)
    assert len(lister.list(fields={"colour": "red"})) == 2
    assert lister.by_index("field:colour", "blue") == []
    for read in (
        lambda: lister.get("c", "other"),
        lambda: lister.with_copies().find("c", "other"),
        lambda: lister.list(namespace="other"),
        lambda: lister.list(fields={"colour": "red"}, namespace="other"),
    ):
        with pytest.raises(NamespaceNotCached) as caught:
            read()
        assert caught.value.namespace == "other"
        assert caught.value.cached == ("one", "two")


@pytest.mark.rule("IF-11")
def test_some_namespaces_are_synced_when_all_are(
    factory: InformerFactory, sources: Sources
) -> None:
    factory.start()
    factory.lister(BOXES, namespaces=["one"])
    sources.broken.add("boxes")
    with pytest.raises(SyncTimeout) as caught:
        factory.lister(BOXES, namespaces=["one", "two"], timeout=0)
    assert caught.value.unsynced == ("boxes in two",)
    with pytest.raises(ConfigError, match="cluster-scoped"):
        factory.lister(NODES, namespaces=["one", "two"])


def test_a_union_counts_and_contains_what_its_parts_do(thing: Make) -> None:
    one, two = WritableStore[Any](), WritableStore[Any]()
    one.put("one/a", thing("a", namespace="one"), ResourceVersion("1"))
    two.put("two/b", thing("b", namespace="two"), ResourceVersion("1"))
    union = UnionReader({"one": one, "two": two})
    assert len(union) == 2
    assert union.keys() == ["one/a", "two/b"]
    assert "two/b" in union
    assert "two/a" not in union
    assert len(union.by_index(NAMESPACE_INDEX, "one")) == 1


@pytest.mark.rule("IF-08")
def test_a_removed_informer_stops_and_the_next_request_gets_a_new_one(
    factory: InformerFactory, sources: Sources, fake_clock: FakeClock
) -> None:
    old = factory.informer(BOXES)
    factory.remove(BOXES, namespace="other")
    factory.start()
    fake_clock.settle()
    factory.remove(BOXES)
    factory.remove(BOXES)
    assert old.join()
    assert old.has_ended()
    fresh = factory.informer(BOXES)
    assert fresh is not old
    factory.start()
    factory.wait_for_sync(None)
    assert fresh.has_synced()
    assert sources.made["boxes"].open_streams(), "the fresh one watches"


def test_informers_that_were_removed_and_have_ended_are_not_held_on_to(
    factory: InformerFactory, fake_clock: FakeClock
) -> None:
    def add_and_remove() -> "weakref.ref[SharedInformer[Any]]":
        informer = factory.informer(BOXES)
        factory.start()
        factory.wait_for_sync(None)
        factory.remove(BOXES)
        assert informer.join()
        return weakref.ref(informer)

    first = add_and_remove()
    add_and_remove()
    gc.collect()
    assert first() is None


@pytest.mark.rule("IF-08")
def test_the_sync_of_a_removed_informer_is_not_waited_for(
    factory: InformerFactory, sources: Sources, fake_clock: FakeClock
) -> None:
    sources.broken.add("boxes")
    factory.informer(BOXES)
    factory.informer(NODES)
    factory.start()
    factory.remove(BOXES)
    factory.wait_for_sync(None)


@pytest.mark.rule("IF-08")
def test_shutdown_waits_for_removed_ones_too(
    factory: InformerFactory, sources: Sources, fake_clock: FakeClock
) -> None:
    go = StopToken(clock=fake_clock)
    informer = factory.informer(BOXES)
    informer.add_handler(on_add=lambda obj, initial: go.wait())
    sources.made["boxes"].put(box("a"))
    factory.start()
    fake_clock.settle()
    factory.remove(BOXES)
    fake_clock.settle()
    assert not informer.has_ended()
    assert not factory.shutdown(0)
    go.stop()
    assert factory.shutdown()
    assert informer.has_ended()


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
def test_waiting_for_sync_names_unsynced_informers(
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
    informers: list[SharedInformer[Any]] = [factory.informer(BOXES), factory.informer(NODES)]
    factory.start(stop)
    stop.stop()
    assert all(informer.join() for informer in informers)


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("freeze", [True, False])
def test_filled_caches_are_taken_out_of_the_collectors_reach_if_wanted_and_garbage_is_not(
    sources: Sources, fake_clock: FakeClock, freeze: bool
) -> None:
    factory = InformerFactory(sources, FactoryOptions(freeze=freeze), clock=fake_clock)
    factory.informer(BOXES)
    factory.start()
    before = gc.get_freeze_count()
    garbage = weakref.ref(Ring())
    gc.disable()
    try:
        factory.wait_for_sync(None)
        assert (gc.get_freeze_count() > before) == freeze
        assert (garbage() is None) == freeze
    finally:
        gc.enable()
        gc.unfreeze()
        assert factory.shutdown()


def test_informers_report_to_their_factorys_instruments(
    sources: Sources, fake_clock: FakeClock
) -> None:
    instruments = Instruments()
    factory = InformerFactory(
        sources, FactoryOptions(freeze=False), clock=fake_clock, instruments=instruments
    )
    factory.informer(BOXES)
    sources.made["boxes"].put(box("a"))
    factory.start()
    factory.wait_for_sync(None)
    assert factory.shutdown()
    lists = "navarchos_informer_relists_total"
    labels = {"resource": "boxes", "reason": "start"}
    assert instruments.registry.get_sample_value(lists, labels) == 1


def test_filled_caches_are_taken_out_of_the_collectors_reach_once(
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


def test_a_factory_that_has_shut_down_needs_nothing_frozen_any_more(
    sources: Sources, fake_clock: FakeClock
) -> None:
    factory = InformerFactory(sources, clock=fake_clock)
    factory.informer(BOXES)
    factory.start()
    factory.wait_for_sync(None)
    assert GC_FREEZER.is_frozen_for(factory)
    assert factory.shutdown()
    assert not GC_FREEZER.is_frozen_for(factory)
