from collections.abc import Callable, Iterator

import pytest
import structlog
from tests.unit.runtime.conftest import THINGS, Thing, make_thing

from navarchos.errors import AlreadyStarted
from navarchos.informers import InformerOptions, SharedInformer, Tombstone
from navarchos.runtime import (
    LOW_PRIORITY,
    Channel,
    ChannelSource,
    EnqueueMapped,
    EnqueueObject,
    InformerSource,
    Predicate,
    Request,
    RequestMap,
    all_of,
    any_of,
    resource_version_changed,
    when,
)
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource


class Queue:
    """Records requests."""

    def __init__(self) -> None:
        self.added: list[tuple[str, int]] = []

    def add(self, key: Request, *, priority: int = 0) -> None:
        self.added.append((key.name, priority))

    def take(self) -> list[tuple[str, int]]:
        taken, self.added = self.added, []
        return taken


@pytest.fixture
def server(fake_clock: FakeClock) -> FakeSource[Thing]:
    return FakeSource(THINGS, clock=fake_clock)


@pytest.fixture
def informer(fake_clock: FakeClock, server: FakeSource[Thing]) -> Iterator[SharedInformer[Thing]]:
    informer = SharedInformer(
        server, options=InformerOptions(resync_period=60, rand=lambda: 0.0), clock=fake_clock
    )
    yield informer
    informer.stop()
    assert informer.join(10)


@pytest.fixture
def queue() -> Queue:
    return Queue()


Start = Callable[..., InformerSource[Thing]]


@pytest.fixture
def started(fake_clock: FakeClock, informer: SharedInformer[Thing], queue: Queue) -> Start:
    def start(mapping: RequestMap[Thing], *predicates: Predicate[Thing]) -> InformerSource[Thing]:
        source = InformerSource(informer, mapping, *predicates)
        source.start(queue)
        informer.start()
        fake_clock.settle()
        return source

    return start


@pytest.mark.rule("CT-17")
def test_requests_without_a_change_have_low_priority(
    fake_clock: FakeClock, server: FakeSource[Thing], queue: Queue, started: Start
) -> None:
    server.put(make_thing("old"))
    started(EnqueueObject())
    assert queue.take() == [("old", LOW_PRIORITY)]
    server.put(make_thing("new"))
    fake_clock.settle()
    assert queue.take() == [("new", 0)]
    server.put(make_thing("new", size=2))
    fake_clock.settle()
    assert queue.take() == [("new", 0)]
    fake_clock.advance(60)
    fake_clock.settle()
    assert sorted(queue.take()) == [("new", LOW_PRIORITY), ("old", LOW_PRIORITY)]
    server.delete("ns/new")
    fake_clock.settle()
    assert queue.take() == [("new", 0)]


@pytest.mark.rule("CT-18")
def test_a_source_has_synced_when_every_first_object_was_mapped(
    fake_clock: FakeClock, server: FakeSource[Thing], informer: SharedInformer[Thing], queue: Queue
) -> None:
    source = InformerSource(informer, EnqueueObject())
    assert not source.wait_for_sync(0, StopToken())
    server.put(make_thing("a"))
    source.start(queue)
    assert not source.wait_for_sync(0, StopToken())
    informer.start()
    fake_clock.settle()
    assert source.wait_for_sync(0, StopToken())
    assert queue.take() == [("a", LOW_PRIORITY)]
    assert (source.name, source.resource) == ("things.example.org", THINGS)


def test_a_source_is_started_once(started: Start, queue: Queue) -> None:
    source = started(EnqueueObject())
    with pytest.raises(AlreadyStarted):
        source.start(queue)


def test_a_stopped_source_delivers_no_requests(
    fake_clock: FakeClock, server: FakeSource[Thing], queue: Queue, started: Start
) -> None:
    started(EnqueueObject()).stop()
    server.put(make_thing("a"))
    fake_clock.settle()
    assert queue.take() == []


@pytest.mark.rule("CT-20")
def test_every_predicate_must_agree(
    fake_clock: FakeClock, server: FakeSource[Thing], queue: Queue, started: Start
) -> None:
    is_big: Predicate[Thing] = when(lambda thing: thing.spec.size > 5)
    started(EnqueueObject(), resource_version_changed, is_big)
    server.put(make_thing("big", size=7))
    server.put(make_thing("small"))
    fake_clock.settle()
    assert queue.take() == [("big", 0)]
    server.put(make_thing("small", size=7))
    server.delete("ns/big")
    fake_clock.settle()
    assert queue.take() == [("small", 0), ("big", 0)]
    fake_clock.advance(60)
    fake_clock.settle()
    assert queue.take() == []


@pytest.mark.rule("CT-23")
def test_an_update_asks_for_what_old_and_new_name_once_each(
    fake_clock: FakeClock, server: FakeSource[Thing], queue: Queue, started: Start
) -> None:
    started(EnqueueMapped(lambda thing: [Request("", "all"), Request("", str(thing.spec.size))]))
    server.put(make_thing("a", size=1))
    fake_clock.settle()
    queue.take()
    server.put(make_thing("a", size=2))
    fake_clock.settle()
    assert queue.take() == [("all", 0), ("1", 0), ("2", 0)]


@pytest.mark.rule("CT-20")
def test_a_tombstone_counts_as_the_object_it_holds(
    informer: SharedInformer[Thing], queue: Queue
) -> None:
    source = InformerSource(informer, EnqueueObject())
    source.start(queue)
    source.on_delete(Tombstone("ns/a", make_thing("a")))
    with structlog.testing.capture_logs() as logs:
        source.on_delete(Tombstone("ns/b", None))
    assert queue.take() == [("a", 0)]
    assert [line["event"] for line in logs] == ["deleted_object_unknown"]


class Ends:
    """A predicate that records deletions."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def create(self, obj: Thing) -> bool:
        return True

    def update(self, old: Thing, new: Thing) -> bool:
        return True

    def delete(self, obj: Thing, *, state_unknown: bool) -> bool:
        self.told.append((obj.metadata.name, state_unknown))
        return not state_unknown


@pytest.mark.rule("CT-20")
@pytest.mark.parametrize("combine", [all_of, any_of])
def test_predicates_learn_when_the_final_state_is_unknown(
    combine: Callable[[Ends], Predicate[Thing]],
    fake_clock: FakeClock,
    server: FakeSource[Thing],
    queue: Queue,
    started: Start,
) -> None:
    for name in ("seen", "missed"):
        server.put(make_thing(name))
    ends = Ends()
    started(EnqueueObject(), combine(ends))
    queue.take()
    server.delete("ns/seen")
    fake_clock.settle()
    # It is deleted while no watch is open; the next list is without it.
    server.delete("ns/missed", notify=False)
    server.compact()
    server.break_watches()
    fake_clock.settle()
    fake_clock.advance(5)
    fake_clock.settle()
    assert ends.told == [("seen", False), ("missed", True)]
    assert queue.take() == [("seen", 0)]


@pytest.mark.rule("CT-20")
def test_an_object_without_metadata_is_logged_and_dropped(
    informer: SharedInformer[Thing], queue: Queue
) -> None:
    source = InformerSource(informer, EnqueueObject())
    source.start(queue)
    with structlog.testing.capture_logs() as logs:
        source.on_add({"kind": "Thing"}, False)  # type: ignore[arg-type]  # the point of the test
    assert queue.take() == []
    assert [line["event"] for line in logs] == ["object_without_metadata"]


@pytest.mark.rule("CT-19")
def test_a_channel_keeps_what_was_sent_early_once_each(queue: Queue) -> None:
    channel = Channel()
    for name, priority in (("a", 0), ("b", -5), ("a", 3), ("b", -100)):
        channel.send(Request("", name), priority=priority)
    source = ChannelSource(channel, "wake-ups")
    source.start(queue)
    assert queue.take() == [("a", 3), ("b", -5)]
    channel.send(Request("", "c"))
    assert queue.take() == [("c", 0)]
    source.stop()
    channel.send(Request("", "d"))
    assert queue.take() == []
    source.start(queue)
    assert queue.take() == [("d", 0)]


@pytest.mark.rule("CT-19")
def test_a_channel_has_nothing_to_wait_for(queue: Queue) -> None:
    source = ChannelSource(Channel(), "wake-ups")
    assert source.wait_for_sync(0, StopToken())
    assert source.name == "wake-ups"


def test_a_channel_feeds_one_controller(queue: Queue) -> None:
    channel = Channel()
    ChannelSource(channel).start(queue)
    with pytest.raises(AlreadyStarted):
        ChannelSource(channel).start(queue)
