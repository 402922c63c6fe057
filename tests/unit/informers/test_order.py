"""What client-go promises of its queue of deltas; here nothing is queued before the store."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from prometheus_client import Gauge

from navarchos.informers.overlay import Overlay
from navarchos.informers.position import CachePosition
from navarchos.informers.processor import EventProcessor
from navarchos.informers.store import WritableStore
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource

Make = Callable[..., Any]


class Hold:
    """A transform or index function that stays in the call for one object until `go` is set."""

    def __init__(self, name: str, clock: FakeClock) -> None:
        self.name = name
        self.reached = False
        self.go = StopToken(clock=clock)

    def transform(self, obj: Any) -> Any:
        if obj.metadata.name == self.name:
            self.reached = True
            self.go.wait()
        return obj

    def index(self, obj: Any) -> list[str]:
        self.transform(obj)
        return []


@pytest.fixture
def slow(fake_clock: FakeClock) -> Iterator[Hold]:
    """A hold for the object `slow`."""
    hold = Hold("slow", fake_clock)
    yield hold
    hold.go.stop()


class Busy:
    """Passes on to a recorder, once `go` is set."""

    def __init__(self, recorder: Any, clock: FakeClock) -> None:
        self.recorder = recorder
        self.go = StopToken(clock=clock)

    def on_add(self, obj: Any, is_in_initial_list: bool) -> None:
        self.go.wait()
        self.recorder.on_add(obj, is_in_initial_list)

    def on_update(self, old: Any, new: Any) -> None:
        self.recorder.on_update(old, new)

    def on_delete(self, obj: Any) -> None:
        self.recorder.on_delete(obj)


@pytest.fixture
def busy(recorder: Any, fake_clock: FakeClock) -> Iterator[Busy]:
    handler = Busy(recorder, fake_clock)
    yield handler
    handler.go.stop()


@pytest.fixture
def registration(
    source: FakeSource[Any], informer_of: Make, busy: Busy, thing: Make, fake_clock: FakeClock
) -> Any:
    """The registration of a handler that is busy with the object `first`."""
    source.put(thing("first"))
    informer = informer_of(source)
    registration = informer.add_handler(busy)
    informer.start()
    fake_clock.settle()
    return registration


def relist(source: FakeSource[Any], clock: FakeClock) -> None:
    """Let the informer find a gap in the history, and list."""
    source.compact()
    source.break_watches()
    clock.advance(2)


@pytest.mark.rule("FQ-01")
def test_a_busy_handler_gets_every_event_in_the_order_of_arrival(
    source: FakeSource[Any],
    registration: Any,
    busy: Busy,
    recorder: Any,
    thing: Make,
    fake_clock: FakeClock,
) -> None:
    for name, value in [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)]:
        source.put(thing(name, value))
    source.delete("ns/b")
    source.put(thing("b", 4))
    fake_clock.settle()
    assert registration.pending == 7, "nothing was merged, not even a deletion and an addition"
    busy.go.stop()
    fake_clock.settle()
    assert recorder.calls[1:] == [
        ("add", "a", 1, False),
        ("add", "b", 1, False),
        ("update", "a", 1, 2),
        ("update", "b", 1, 2),
        ("update", "a", 2, 3),
        ("delete", "b", 2),
        ("add", "b", 4, False),
    ]


@pytest.mark.rule("FQ-03", "RT-01")
def test_what_came_and_went_while_a_handler_was_busy_ends_for_it_and_leaves_no_phantom(
    source: FakeSource[Any],
    registration: Any,
    busy: Busy,
    recorder: Any,
    thing: Make,
    fake_clock: FakeClock,
) -> None:
    source.put(thing("brief", 1))
    fake_clock.settle()
    source.delete("ns/brief", notify=False)
    source.put(thing("after"), notify=False)
    relist(source, fake_clock)
    assert registration.pending == 4
    busy.go.stop()
    fake_clock.settle()
    assert recorder.calls[1:] == [
        ("add", "brief", 1, False),
        ("gone", "ns/brief"),
        ("update", "first", 0, 0),
        ("add", "after", 0, False),
    ]


@pytest.mark.rule("FQ-04", "RT-03")
def test_a_relist_keeps_an_object_that_was_re_created_before_its_deletion_was_handled(
    source: FakeSource[Any],
    registration: Any,
    busy: Busy,
    recorder: Any,
    thing: Make,
    fake_clock: FakeClock,
) -> None:
    source.put(thing("again", 1))
    fake_clock.settle()
    source.delete("ns/again")
    fake_clock.settle()
    assert registration.pending == 2, "the addition and the end"
    source.put(thing("again", 2), notify=False)
    relist(source, fake_clock)
    busy.go.stop()
    fake_clock.settle()
    assert recorder.calls[1:] == [
        ("add", "again", 1, False),
        ("delete", "again", 1),
        ("update", "first", 0, 0),
        ("add", "again", 2, False),
    ]


def new_processor() -> tuple[EventProcessor[Any], CachePosition]:
    store = WritableStore[Any]()
    gauge = Gauge("objects", "Objects.", registry=None)
    processor = EventProcessor(store, Overlay(store), name="things", objects=gauge)
    return processor, store.position


@pytest.mark.rule("FQ-07")
@pytest.mark.parametrize(
    "take",
    [
        lambda processor, obj: processor.put("ns/a", obj, ResourceVersion("1")),
        lambda processor, obj: processor.delete("ns/a", obj, ResourceVersion("1")),
        lambda processor, obj: processor.replace({}, ResourceVersion("1")),
    ],
    ids=["put", "delete", "empty list"],
)
def test_a_plain_event_or_an_empty_list_is_a_whole_initial_list(
    take: Callable[[EventProcessor[Any], Any], None], thing: Make
) -> None:
    processor, position = new_processor()
    processor.bookmark(ResourceVersion("1"))
    assert not position.synced, "a bookmark brings no objects"
    take(processor, thing("a"))
    assert position.synced


@pytest.mark.rule("FQ-07", "RT-06")
def test_synced_is_not_said_while_the_last_object_of_the_list_is_being_stored(
    source: FakeSource[Any], informer_of: Make, thing: Make, slow: Hold, fake_clock: FakeClock
) -> None:
    source.put(thing("a"))
    source.put(thing("slow"))
    informer = informer_of(source, indexers={"held": slow.index})
    registration = informer.add_handler(on_add=lambda obj, initial: None)
    informer.start()
    fake_clock.settle()
    assert slow.reached
    assert not informer.has_synced()
    assert not registration.has_synced()
    slow.go.stop()
    fake_clock.settle()
    assert informer.has_synced()
    assert registration.has_synced()
    assert len(informer.store) == 2


@pytest.mark.rule("FQ-08")
def test_initial_is_what_the_first_list_brought_and_nothing_later(
    source: FakeSource[Any], informer_of: Make, recorder: Any, thing: Make, fake_clock: FakeClock
) -> None:
    source.put(thing("listed"))
    informer = informer_of(source)
    informer.add_handler(recorder)
    informer.start()
    fake_clock.settle()
    source.put(thing("watched"))
    fake_clock.settle()
    source.put(thing("relisted"), notify=False)
    relist(source, fake_clock)
    assert [(call[1], call[3]) for call in recorder.calls if call[0] == "add"] == [
        ("listed", True),
        ("watched", False),
        ("relisted", False),
    ]


@pytest.mark.rule("FQ-13", "FQ-14")
def test_nothing_is_read_on_while_a_change_is_taken_in_and_a_bookmark_waits_its_turn(
    source: FakeSource[Any], informer_of: Make, thing: Make, slow: Hold, fake_clock: FakeClock
) -> None:
    informer = informer_of(source, transform=slow.transform)
    informer.start()
    fake_clock.settle()
    listed = informer.last_resource_version
    source.put(thing("slow"))
    source.put(thing("next"))
    source.pass_time(5)
    source.bookmark()
    fake_clock.settle()
    assert slow.reached
    assert source.streams[0].unread == 2
    assert informer.last_resource_version == listed
    assert informer.store.keys() == []
    slow.go.stop()
    fake_clock.settle()
    assert informer.last_resource_version == source.version
    assert informer.store.keys() == ["ns/slow", "ns/next"]


@pytest.mark.rule("FQ-16")
@pytest.mark.parametrize("seconds", [0.09, 0.2])
def test_a_change_that_takes_long_to_store_is_logged(
    source: FakeSource[Any],
    informer_of: Make,
    thing: Make,
    slow: Hold,
    fake_clock: FakeClock,
    seconds: float,
) -> None:
    informer = informer_of(source, indexers={"held": slow.index})
    informer.start()
    fake_clock.settle()
    source.put(thing("slow"))
    with structlog.testing.capture_logs() as logs:
        fake_clock.advance(seconds)
        slow.go.stop()
        fake_clock.settle()
    lines = [line for line in logs if line["event"] == "cache_is_slow"]
    assert len(lines) == (seconds > 0.1)
    for line in lines:
        assert (line["resource"], line["objects"]) == ("things", 1)
        assert line["seconds"] == pytest.approx(seconds)


@pytest.mark.rule("FQ-16")
@pytest.mark.parametrize("can_stream", [True, False])
@pytest.mark.parametrize(("objects", "limit"), [(2, 0.2), (20, 1.0)])
def test_a_list_may_take_longer_but_not_for_ever(
    source: FakeSource[Any],
    informer_of: Make,
    thing: Make,
    slow: Hold,
    fake_clock: FakeClock,
    can_stream: bool,
    objects: int,
    limit: float,
) -> None:
    source.can_stream = can_stream
    for number in range(objects - 1):
        source.put(thing(f"quick-{number}"))
    source.put(thing("slow"))
    informer = informer_of(source, indexers={"held": slow.index})
    informer.start()
    with structlog.testing.capture_logs() as logs:
        fake_clock.advance(limit + 0.01)
        slow.go.stop()
        fake_clock.settle()
    (line,) = [line for line in logs if line["event"] == "cache_is_slow"]
    assert line["objects"] == objects


@pytest.mark.rule("LS-07")
def test_reads_are_complete_once_synced_however_busy_handlers_are(
    source: FakeSource[Any], informer_of: Make, busy: Busy, thing: Make, fake_clock: FakeClock
) -> None:
    source.put(thing("a", 1))
    source.put(thing("b", 2))
    informer = informer_of(source)
    registration = informer.add_handler(busy)
    informer.start()
    fake_clock.settle()
    assert informer.has_synced()
    assert not registration.has_synced()
    assert [obj.value for obj in informer.lister.list()] == [1, 2]
    assert informer.lister.get("a", "ns") is informer.store.get("ns/a"), "shared: read-only"
