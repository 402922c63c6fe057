import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from tests.informers import present

from navarchos.client import WatchEvent
from navarchos.errors import (
    AlreadyStopped,
    ConfigError,
    NotStarted,
    SelfJoin,
    Stopped,
    ThreadCrashed,
)
from navarchos.informers import (
    FilteringHandler,
    HandlerOptions,
    IndexFailed,
    SharedInformer,
    TransformFailed,
)
from navarchos.instrument import Instruments
from navarchos.stopping import StopToken
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource

Make = Callable[..., Any]


@pytest.fixture
def informer(source: FakeSource[Any], informer_of: Make, thing: Make) -> SharedInformer[Any]:
    """An informer that has not been started, of a source with objects a=1 and b=2."""
    source.put(thing("a", 1))
    source.put(thing("b", 2))
    made: SharedInformer[Any] = informer_of(source)
    return made


class Gate:
    """A handler that stays in its first call until the gate is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.seen: list[str] = []

    def on_add(self, obj: Any, is_in_initial_list: bool) -> None:
        self.seen.append(obj.metadata.name)
        self.entered.set()
        assert self.opened.wait(20)

    def on_update(self, old: Any, new: Any) -> None:
        self.seen.append(f"{new.metadata.name}={new.value}")

    def on_delete(self, obj: Any) -> None:
        self.seen.append("deleted")


class Lying:
    """A notification that counts as initial only after it was counted as none."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def initial(self) -> bool:
        self.asked += 1
        return self.asked > 1

    def deliver(self, handler: Any) -> None: ...


# Life cycle


@pytest.mark.rule("SI-01")
def test_a_second_start_changes_nothing_and_a_stopped_informer_stays_stopped(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock
) -> None:
    informer.start()
    informer.start()
    fake_clock.settle()
    assert len(source.streams) == 1
    informer.stop()
    assert informer.join()
    informer.start()
    fake_clock.settle()
    assert len(source.streams) == 1
    assert len(informer.store) == 2, "cached objects may still be read"


@pytest.mark.rule("SI-02")
def test_indexes_may_be_added_until_the_stop(
    informer: SharedInformer[Any], fake_clock: FakeClock
) -> None:
    informer.add_indexers({"value": lambda obj: [str(obj.value)]})
    informer.start()
    fake_clock.settle()
    informer.add_indexers({"name": lambda obj: [obj.metadata.name]})
    assert informer.store.index_keys("value", "2") == informer.store.index_keys("name", "b")
    informer.stop()
    informer.join()
    with pytest.raises(AlreadyStopped, match="things"):
        informer.add_indexers({"other": lambda obj: []})


@pytest.mark.rule("SI-03")
def test_a_handler_is_refused_after_the_stop_and_its_removal_is_not(
    informer: SharedInformer[Any], recorder: Any, fake_clock: FakeClock
) -> None:
    registration = informer.add_handler(recorder)
    informer.start()
    fake_clock.settle()
    informer.stop()
    informer.join()
    with pytest.raises(AlreadyStopped):
        informer.add_handler(recorder)
    registration.remove()
    assert registration.shutdown(0)


@pytest.mark.rule("SI-01", "SI-03")
def test_an_informer_that_is_stopped_before_its_start_is_over(
    informer: SharedInformer[Any], source: FakeSource[Any], recorder: Any
) -> None:
    registration = informer.add_handler(recorder)
    informer.stop()
    assert not registration.wait_for_sync(None)
    with pytest.raises(AlreadyStopped):
        informer.add_handler(recorder)
    informer.start()
    assert informer.join()
    assert source.requests == []


def test_a_running_informer_without_handlers_is_not_joined(
    informer: SharedInformer[Any], fake_clock: FakeClock
) -> None:
    informer.start()
    fake_clock.settle()
    assert not informer.join(0)
    informer.stop()
    assert informer.join()


def test_neither_a_handler_that_is_gone_nor_a_stopped_informer_is_held_on_to(
    source: FakeSource[Any], fake_clock: FakeClock
) -> None:
    """A process may add and remove them for months, under one token that stops all."""

    class Handler:
        def on_add(self, obj: Any, is_in_initial_list: bool) -> None: ...
        def on_update(self, old: Any, new: Any) -> None: ...
        def on_delete(self, obj: Any) -> None: ...

    outer = StopToken(clock=fake_clock)
    informer = SharedInformer(source, clock=fake_clock)
    informer.start(outer)
    handler = Handler()
    gone = weakref.ref(handler)
    informer.add_handler(handler).shutdown()
    informer.add_handler(Handler()).shutdown()
    del handler
    gc.collect()
    assert gone() is None
    informer.stop()
    assert informer.join()
    stopped = weakref.ref(informer)
    del informer
    gc.collect()
    assert stopped() is None
    assert not outer.is_set()


@pytest.mark.rule("SI-04", "RT-10")
def test_a_stop_drops_the_buffer_and_waits_for_the_call_in_flight(
    informer: SharedInformer[Any], fake_clock: FakeClock
) -> None:
    gate = Gate()
    registration = informer.add_handler(gate)
    informer.start()
    assert gate.entered.wait(20)
    informer.stop()
    assert informer._stopped.wait(), "the reflector ends first, and does not wait for handlers"
    assert not informer.join(0)
    gate.opened.set()
    assert informer.join()
    assert gate.seen == ["a"]
    assert registration.pending == 0
    assert not registration.has_synced()


def test_an_outer_stop_token_stops_the_informer_and_run_returns(
    informer: SharedInformer[Any], recorder: Any
) -> None:
    stop = StopToken()
    informer.add_handler(on_add=lambda obj, initial: stop.stop("seen enough"))
    informer.run(stop)
    assert informer.join(0)


def test_run_raises_the_error_that_crashed_the_informer(
    source: FakeSource[Any], informer_of: Make
) -> None:
    def broken() -> float:
        raise RuntimeError("a bug in the framework")

    # The source of jitter is asked for the length of the pause after a failure.
    informer = informer_of(source, rand=broken)
    source.fail("watch", ConnectionError("down"))
    source.fail("list", ConnectionError("down"))
    with pytest.raises(ThreadCrashed):
        informer.run(StopToken())
    assert isinstance(informer.failure, RuntimeError)


def test_a_closed_client_ends_the_informer(
    informer: SharedInformer[Any], source: FakeSource[Any]
) -> None:
    source.fail("watch", Stopped("the client was closed"))
    informer.run(StopToken())
    assert not informer.has_synced()


@pytest.mark.rule("RT-09")
def test_waiting_for_oneself_is_refused(
    informer: SharedInformer[Any], fake_clock: FakeClock
) -> None:
    refused: list[Exception] = []

    def handle(obj: Any, is_in_initial_list: bool) -> None:
        for wait in (informer.join, registration.shutdown):
            try:
                wait()
            except SelfJoin as error:
                refused.append(error)

    registration = informer.add_handler(on_add=handle)
    informer.start()
    fake_clock.settle()
    assert len(refused) == 2, "and the handler is removed, so there is no second call"


@pytest.mark.rule("SI-05")
def test_synced_means_that_the_list_is_in_the_store_even_if_handlers_block(
    informer: SharedInformer[Any],
) -> None:
    gate = Gate()
    registration = informer.add_handler(gate, HandlerOptions(name="slow"))
    assert not informer.has_synced()
    assert informer.unsynced() == ["things", "things handler slow"]
    informer.start()
    assert gate.entered.wait(20)
    assert informer.wait_for_sync(0)
    assert len(informer.lister.list()) == 2
    assert not registration.has_synced()
    assert informer.unsynced() == ["things handler slow"]
    assert informer.last_resource_version == "12"
    gate.opened.set()
    assert registration.wait_for_sync(None)
    assert informer.unsynced() == []


@pytest.mark.rule("SI-06")
def test_waiting_for_sync_ends_with_the_time_the_token_or_the_informer(
    informer: SharedInformer[Any], fake_clock: FakeClock
) -> None:
    stop = StopToken()
    stop.stop()
    assert not informer.wait_for_sync(0)
    assert not informer.wait_for_sync(None, stop)
    informer.stop()
    assert not informer.wait_for_sync(None)


# Handlers


@pytest.mark.rule("FQ-06", "SI-08")
def test_handlers_hear_of_additions_changes_and_ends(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    recorder: Any,
    thing: Make,
) -> None:
    informer.add_handler(recorder)
    informer.start()
    fake_clock.settle()
    assert recorder.take() == [("add", "a", 1, True), ("add", "b", 2, True)]
    source.put(thing("c", 3))
    source.put(thing("a", 4))
    source.delete("ns/b")
    fake_clock.settle()
    assert recorder.take() == [("add", "c", 3, False), ("update", "a", 1, 4), ("delete", "b", 2)]


def test_the_store_has_the_change_before_the_handler_is_called(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, thing: Make
) -> None:
    agreed: list[bool] = []
    informer.add_handler(
        on_add=lambda obj, _: agreed.append(informer.store.get("ns/" + obj.metadata.name) is obj),
        on_delete=lambda obj: agreed.append(informer.store.get("ns/b") is None),
    )
    informer.start()
    fake_clock.settle()
    source.delete("ns/b")
    fake_clock.settle()
    assert agreed == [True, True, True]


@pytest.mark.rule("FQ-02", "FQ-05", "SI-15", "RT-01")
def test_a_missed_deletion_is_notified_once_as_a_tombstone_and_first(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    recorder: Any,
    thing: Make,
) -> None:
    informer.add_handler(recorder)
    informer.start()
    fake_clock.settle()
    recorder.take()
    source.delete("ns/a", notify=False)
    source.put(thing("b", 5), notify=False)
    source.put(thing("c", 6), notify=False)
    source.fail_watches(RuntimeError("the connection is lost"))
    fake_clock.advance(1)
    assert recorder.take() == [("gone", "ns/a"), ("update", "b", 2, 5), ("add", "c", 6, False)]
    source.fail_watches(RuntimeError("and again"))
    fake_clock.advance(5)
    assert [call for call in recorder.take() if call[0] == "gone"] == []


def test_the_deletion_of_an_unknown_object_is_not_notified(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    recorder: Any,
    thing: Make,
) -> None:
    """A server, or something on the way, may repeat an event."""
    informer.add_handler(recorder)
    informer.start()
    fake_clock.settle()
    recorder.take()
    last = source.delete("ns/a")
    source.streams[-1].send(WatchEvent("DELETED", last, last.metadata.resource_version))
    fake_clock.settle()
    assert recorder.take() == [("delete", "a", 1)]


@pytest.mark.rule("SI-15", "RT-02")
def test_a_recreation_in_a_gap_may_look_like_an_update_with_two_uids(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, thing: Make
) -> None:
    uids: list[tuple[str, str]] = []
    informer.add_handler(
        on_update=lambda old, new: uids.append((old.metadata.uid, new.metadata.uid))
    )
    informer.start()
    fake_clock.settle()
    source.delete("ns/a", notify=False)
    source.put(thing("a", 9), notify=False)
    source.fail_watches(RuntimeError("the connection is lost"))
    fake_clock.advance(1)
    assert ("uid-1", "uid-3") in uids


@pytest.mark.rule("FQ-11")
def test_the_transform_applies_to_store_and_notifications(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make, recorder: Any
) -> None:
    def tenfold(obj: Any) -> Any:
        if obj.value == 13:
            raise ValueError("unlucky")
        return thing(obj.metadata.name, obj.value * 10)

    instruments = Instruments()
    source.put(thing("a", 1))
    informer = informer_of(source, transform=tenfold, instruments=instruments)
    informer.add_handler(recorder)
    informer.start()
    fake_clock.settle()
    source.put(thing("a", 2))
    source.put(thing("a", 13))
    source.put(thing("x", 13))
    source.delete("ns/a")
    fake_clock.settle()
    assert recorder.take() == [("add", "a", 10, True), ("update", "a", 10, 20), ("gone", "ns/a")]
    failures = "navarchos_informer_decode_failures_total"
    assert instruments.registry.get_sample_value(failures, {"resource": "things"}) == 3
    assert {key: type(why) for key, why in informer.skipped().items()} == {"ns/x": TransformFailed}


@pytest.mark.rule("FQ-11")
@pytest.mark.parametrize("can_stream", [True, False])
def test_an_object_passes_the_transform_once_in_each_state(
    source: FakeSource[Any],
    informer_of: Make,
    fake_clock: FakeClock,
    thing: Make,
    recorder: Any,
    can_stream: bool,
) -> None:
    def add_one(obj: Any) -> Any:
        return thing(obj.metadata.name, obj.value + 1)

    source.can_stream = can_stream
    source.put(thing("a", 1))
    informer = informer_of(source, transform=add_one)
    informer.add_handler(recorder)
    informer.start()
    fake_clock.settle()
    source.put(thing("a", 5))
    source.delete("ns/a")
    fake_clock.settle()
    assert recorder.take() == [("add", "a", 2, True), ("update", "a", 2, 6), ("delete", "a", 6)]


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (lambda thing: None, "KeyFailed"),
        (lambda thing: thing("other"), "it returned ns/other"),
        (lambda thing: thing("a", namespace=""), "it returned a"),
    ],
    ids=["nothing", "another name", "no namespace"],
)
def test_a_transform_that_loses_its_object_leaves_that_one_out(
    source: FakeSource[Any],
    informer_of: Make,
    fake_clock: FakeClock,
    thing: Make,
    returned: Callable[[Make], Any],
    why: str,
) -> None:
    source.put(thing("a"))
    source.put(thing("b"))
    informer = informer_of(
        source, transform=lambda obj: returned(thing) if obj.metadata.name == "a" else obj
    )
    informer.start()
    fake_clock.settle()
    assert informer.store.keys() == ["ns/b"]
    assert why in str(informer.skipped()["ns/a"])


class Inverse:
    """An informer with an index that refuses the value 0, and its metrics."""

    name = "inverse"

    def __init__(self, source: FakeSource[Any], informer_of: Make) -> None:
        self.instruments = Instruments()
        self.informer: SharedInformer[Any] = informer_of(
            source,
            indexers={self.name: lambda obj: [str(12 // obj.value)]},
            instruments=self.instruments,
        )

    def count(self, what: str) -> float:
        name = f"navarchos_informer_{what}"
        found = self.instruments.registry.get_sample_value(name, {"resource": "things"})
        assert found is not None
        return found

    def skipped(self) -> list[str]:
        """Return the keys, once it is certain that index and gauge agree on them."""
        whys = self.informer.skipped()
        for key, why in whys.items():
            assert isinstance(why, IndexFailed)
            assert (why.index, why.key) == (self.name, key)
        assert self.count("objects_skipped") == len(whys)
        return list(whys)


@pytest.fixture
def inverse(source: FakeSource[Any], informer_of: Make) -> Inverse:
    return Inverse(source, informer_of)


@pytest.mark.rule("RF-12", "ST-12")
@pytest.mark.parametrize("can_stream", [True, False])
def test_an_object_that_cannot_be_indexed_is_skipped_and_others_of_its_list_are_stored(
    source: FakeSource[Any],
    inverse: Inverse,
    fake_clock: FakeClock,
    thing: Make,
    recorder: Any,
    can_stream: bool,
) -> None:
    source.can_stream = can_stream
    for name, value in [("a", 1), ("bad", 0), ("c", 3)]:
        source.put(thing(name, value))
    registration = inverse.informer.add_handler(recorder)
    inverse.informer.start()
    fake_clock.settle()
    assert inverse.informer.has_synced()
    assert registration.has_synced()
    assert inverse.informer.store.keys() == ["ns/a", "ns/c"]
    assert inverse.skipped() == ["ns/bad"]
    assert inverse.count("decode_failures_total") == 1
    assert inverse.informer.last_resource_version == source.version
    source.put(thing("bad", 4))
    fake_clock.settle()
    assert inverse.skipped() == []
    assert recorder.take()[-1] == ("add", "bad", 4, False)


@pytest.mark.rule("FQ-15", "RF-16", "ST-12")
def test_a_state_that_cannot_be_indexed_leaves_the_one_before_and_does_not_hide_it(
    source: FakeSource[Any], inverse: Inverse, fake_clock: FakeClock, thing: Make, recorder: Any
) -> None:
    for name, value in [("a", 1), ("b", 2)]:
        source.put(thing(name, value))
    inverse.informer.add_handler(recorder)
    inverse.informer.start()
    fake_clock.settle()
    recorder.take()
    source.put(thing("a", 0))
    source.put(thing("new", 0))
    source.put(thing("b", 3))
    fake_clock.settle()
    assert recorder.take() == [("update", "b", 2, 3)], "no end is made up"
    assert present(inverse.informer.store.get("ns/a")).value == 1
    assert [obj.value for obj in inverse.informer.lister.by_index("inverse", "12")] == [1]
    assert inverse.skipped() == ["ns/a", "ns/new"]
    assert inverse.count("decode_failures_total") == 2


@pytest.mark.rule("ST-12")
@pytest.mark.parametrize("can_stream", [True, False])
def test_what_was_left_out_heals_with_its_next_state_its_end_or_a_list(
    source: FakeSource[Any],
    inverse: Inverse,
    fake_clock: FakeClock,
    thing: Make,
    recorder: Any,
    can_stream: bool,
) -> None:
    source.can_stream = can_stream
    names = ["changes", "ends", "ends unseen", "is listed", "stays"]
    for name in names:
        source.put(thing(name, 1))
    inverse.informer.add_handler(recorder)
    inverse.informer.start()
    fake_clock.settle()
    for name in names:
        source.put(thing(name, 0))
    fake_clock.settle()
    assert inverse.skipped() == [f"ns/{name}" for name in names]
    source.put(thing("changes", 6))
    source.delete("ns/ends")
    fake_clock.settle()
    assert inverse.skipped() == [f"ns/{name}" for name in names[2:]]
    source.delete("ns/ends unseen", notify=False)
    source.put(thing("is listed", 4), notify=False)
    source.compact()
    source.break_watches()
    fake_clock.advance(2)
    assert inverse.skipped() == ["ns/stays"]
    shown = {obj.metadata.name: obj.value for obj in inverse.informer.store.values()}
    assert shown == {"changes": 6, "is listed": 4, "stays": 1}
    assert [call for call in recorder.take() if call[0] in {"delete", "gone"}] == [
        ("delete", "ends", 0),
        ("gone", "ns/ends unseen"),
    ]
    inverse.informer.stop()
    assert inverse.informer.join()
    assert inverse.count("objects_skipped") == 0, "a stopped cache counts no more"


def test_indexers_that_fail_on_stored_objects_are_refused(
    informer: SharedInformer[Any], fake_clock: FakeClock
) -> None:
    informer.start()
    fake_clock.settle()
    with pytest.raises(IndexFailed):
        informer.add_indexers({"bad": lambda obj: [str(1 // 0)]})


@pytest.mark.rule("SI-07")
def test_a_slow_handler_does_not_delay_others(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    recorder: Any,
    thing: Make,
) -> None:
    gate = Gate()
    slow = informer.add_handler(gate)
    fast = informer.add_handler(recorder)
    seen = threading.Event()
    informer.add_handler(on_update=lambda old, new: seen.set())
    informer.start()
    assert gate.entered.wait(20)
    assert fast.wait_for_sync(None)
    source.put(thing("a", 7))
    assert seen.wait(20)
    assert slow.pending == 2
    gate.opened.set()
    assert slow.wait_for_sync(None)


@pytest.mark.rule("SI-09", "RT-08")
def test_a_handler_that_fails_loses_that_call_pauses_and_never_syncs(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, recorder: Any, thing: Make
) -> None:
    source.put(thing("a"))
    source.put(thing("b"))
    instruments = Instruments()
    informer = informer_of(source, instruments=instruments)
    seen: list[str] = []

    def fail_on_a(obj: Any, is_in_initial_list: bool) -> None:
        seen.append(obj.metadata.name)
        if obj.metadata.name == "a":
            raise RuntimeError("cannot stand a")

    failing = informer.add_handler(options=HandlerOptions(name="picky"), on_add=fail_on_a)
    sound = informer.add_handler(recorder)
    with structlog.testing.capture_logs() as logs:
        informer.start()
        fake_clock.settle()
    failed = [line for line in logs if line["event"] == "handler_failed"]
    assert [(line["handler"], line["notification"]) for line in failed] == [("picky", "added")]
    assert seen == ["a"]
    assert sound.has_synced()
    fake_clock.advance(1)
    assert seen == ["a", "b"]
    assert not failing.has_synced()
    assert informer.unsynced() == ["things handler picky"]
    labels = {"resource": "things", "handler": "picky"}
    errors = "navarchos_informer_handler_errors_total"
    assert instruments.registry.get_sample_value(errors, labels) == 1
    pending = "navarchos_informer_pending_notifications"
    assert instruments.registry.get_sample_value(pending, labels) == 0


@pytest.mark.rule("SI-19")
@pytest.mark.parametrize(
    ("pending", "seconds", "reported"), [(1025, 0.2, True), (1024, 0.2, False), (1025, 0.09, False)]
)
def test_a_slow_call_is_logged_when_many_wait(
    source: FakeSource[Any],
    informer_of: Make,
    fake_clock: FakeClock,
    thing: Make,
    pending: int,
    seconds: float,
    reported: bool,
) -> None:
    for number in range(pending + 1):
        source.put(thing(f"t{number}"))
    go = StopToken(clock=fake_clock)
    informer = informer_of(source)
    informer.add_handler(options=HandlerOptions(name="slow"), on_add=lambda obj, initial: go.wait())
    informer.start()
    with structlog.testing.capture_logs() as logs:
        fake_clock.advance(seconds)
        go.stop()
        fake_clock.settle()
    lines = [line for line in logs if line["event"] == "handler_is_slow"]
    assert [(line["handler"], line["pending"]) for line in lines] == [("slow", pending)] * reported


def test_a_handler_that_does_not_return_shows_in_the_metrics_though_nothing_waits(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    source.put(thing("a"))
    go = StopToken(clock=fake_clock)
    instruments = Instruments()
    informer = informer_of(source, instruments=instruments)
    registration = informer.add_handler(
        options=HandlerOptions(name="stuck"), on_add=lambda obj, initial: go.wait()
    )
    informer.start()
    fake_clock.advance(3600)
    labels = {"resource": "things", "handler": "stuck"}
    gauge = "navarchos_informer_pending_notifications"
    assert registration.pending == 0
    assert instruments.registry.get_sample_value(gauge, labels) == 1
    go.stop()
    fake_clock.settle()
    assert instruments.registry.get_sample_value(gauge, labels) == 0


def test_a_handler_that_a_foreign_token_cancelled_continues(
    informer: SharedInformer[Any], fake_clock: FakeClock
) -> None:
    """`Stopped` would otherwise end the delivery thread without a word."""
    seen: list[str] = []

    def give_up(obj: Any, is_in_initial_list: bool) -> None:
        seen.append(obj.metadata.name)
        raise Stopped("a request of the handler was cancelled")

    informer.add_handler(on_add=give_up)
    informer.start()
    fake_clock.advance(1)
    assert seen == ["a", "b"]


@pytest.mark.rule("SI-10", "SI-11")
def test_a_handler_added_late_gets_the_content_as_its_initial_list(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    recorder: Any,
    thing: Make,
) -> None:
    informer.start()
    fake_clock.settle()
    registration = informer.add_handler(recorder)
    assert registration.wait_for_sync(None)
    source.put(thing("a", 3))
    fake_clock.settle()
    assert recorder.take() == [
        ("add", "a", 1, True),
        ("add", "b", 2, True),
        ("update", "a", 1, 3),
    ]


@pytest.mark.rule("SI-11")
def test_a_count_below_zero_ends_the_informer_loudly(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, recorder: Any
) -> None:
    """It is a bug of the framework: no handler may continue or count as synced."""
    heard: list[BaseException] = []
    informer = informer_of(source, on_failure=heard.append)
    registration = informer.add_handler(recorder)
    informer.start()
    fake_clock.settle()
    assert registration.has_synced()
    registration._delivery.enqueue([Lying()])
    assert informer.join()
    with pytest.raises(AlreadyStopped):
        informer.add_handler(recorder)
    assert heard == [informer.failure]
    assert isinstance(informer.failure, AssertionError)
    assert "handled more than it was sent" in str(informer.failure)
    assert not registration.has_synced()
    with pytest.raises(ThreadCrashed, match="handle-things"):
        informer.run(StopToken())


@pytest.mark.rule("SI-13")
def test_a_removed_handler_is_not_called_again_and_others_are(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    recorder: Any,
    thing: Make,
) -> None:
    first, second = informer.add_handler(recorder), informer.add_handler(recorder)
    informer.start()
    fake_clock.settle()
    assert len(recorder.take()) == 4, "the same handler twice is two registrations"
    first.remove()
    first.remove()
    source.put(thing("a", 3))
    fake_clock.settle()
    assert recorder.take() == [("update", "a", 1, 3)]
    assert second.has_synced()


@pytest.mark.rule("SI-14")
def test_shutting_a_handler_down_waits_for_its_call(
    informer: SharedInformer[Any],
) -> None:
    gate = Gate()
    registration = informer.add_handler(gate)
    assert registration.shutdown(0), "it has no thread yet"
    registration = informer.add_handler(gate)
    informer.start()
    assert gate.entered.wait(20)
    assert not registration.shutdown(0)
    assert informer.unsynced() == [], "a removed handler is not waited for"
    gate.opened.set()
    assert registration.shutdown()
    assert gate.seen == ["a"]


def test_a_handler_is_either_an_object_or_functions(
    informer: SharedInformer[Any], recorder: Any
) -> None:
    with pytest.raises(ConfigError):
        informer.add_handler()
    with pytest.raises(ConfigError):
        informer.add_handler(recorder, on_add=print)


def test_a_handler_without_all_methods_is_refused(
    informer: SharedInformer[Any],
) -> None:
    class Partial:
        on_delete = None

        def on_update(self, old: Any, new: Any) -> None: ...

    partial: Any = Partial()
    wrong: Any = Partial
    for add in (informer.add_handler, lambda each: FilteringHandler(each, passes=bool)):
        with pytest.raises(ConfigError, match="lacks on_add and on_delete; add them"):
            add(partial)
        with pytest.raises(ConfigError, match="it must be an instance, not a class"):
            add(wrong)


def test_a_handler_that_is_an_empty_collection_is_called(
    informer: SharedInformer[Any], fake_clock: FakeClock
) -> None:
    class Seen(list[Any]):
        def on_add(self, obj: Any, is_in_initial_list: bool) -> None:
            self.append(obj.metadata.name)

        def on_update(self, old: Any, new: Any) -> None: ...
        def on_delete(self, obj: Any) -> None: ...

    seen = Seen()
    informer.add_handler(seen)
    informer.start()
    fake_clock.settle()
    assert seen == ["a", "b"]


@pytest.mark.rule("SI-20")
def test_a_handlers_name_is_that_of_the_code_that_runs(
    informer: SharedInformer[Any], recorder: Any
) -> None:
    assert informer.add_handler(recorder).name == "Recorder"
    assert informer.add_handler(recorder, HandlerOptions(name="mine")).name == "mine"
    assert informer.add_handler(on_add=recorder.on_add).name == "Recorder.on_add"
    filtered = FilteringHandler(recorder, passes=bool)
    assert informer.add_handler(filtered).name == "Recorder"


@pytest.mark.rule("SI-08")
def test_a_filter_turns_changes_into_additions_and_ends(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    recorder: Any,
    thing: Make,
) -> None:
    informer.add_handler(FilteringHandler(recorder, passes=lambda obj: obj.value >= 2))
    informer.start()
    fake_clock.settle()
    assert recorder.take() == [("add", "b", 2, True)]
    for value in (2, 3, 0, 1):
        source.put(thing("a", value))
    source.delete("ns/a")
    source.delete("ns/b")
    fake_clock.settle()
    assert recorder.take() == [
        ("add", "a", 2, False),
        ("update", "a", 2, 3),
        ("delete", "a", 3),
        ("delete", "b", 2),
    ]


def test_updates_that_the_projection_does_not_show_can_be_skipped(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    recorder: Any,
    thing: Make,
) -> None:
    informer.add_handler(recorder, HandlerOptions(skip_unchanged=True))
    informer.start()
    fake_clock.settle()
    recorder.take()
    source.put(thing("a", 1))
    source.put(thing("a", 1, labels={"now": "labelled"}))
    source.put(thing("a", 1, labels={"now": "labelled"}))
    source.put(thing("a", 2, labels={"now": "labelled"}))
    fake_clock.settle()
    assert recorder.take() == [("update", "a", 1, 1), ("update", "a", 1, 2)]
    assert present(informer.store.get("ns/a")).metadata.resource_version == "16"


# Resync


@pytest.mark.rule("SI-16", "SI-17", "FQ-10")
def test_resync_replays_the_store_to_each_handler_at_its_period(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    """The effective period is a multiple of the check period, which is the smallest."""
    source.put(thing("a", 1))
    informer = informer_of(source, resync_period=10.0)
    fast: list[Any] = []
    slow: list[Any] = []
    never: list[Any] = []
    informer.add_handler(
        options=HandlerOptions(resync_period=4.0),
        on_update=lambda old, new: fast.append(old is new),
    )
    informer.add_handler(on_update=lambda old, new: slow.append(old is new))
    informer.add_handler(
        options=HandlerOptions(resync_period=0.0),
        on_update=lambda old, new: never.append(old is new),
    )
    informer.start()
    fake_clock.advance(12)
    assert (fast, slow, never) == ([True] * 3, [True], [])
    asked = len(source.requests)
    fake_clock.advance(12)
    assert (len(fast), len(slow), never) == (6, 2, [])
    assert len(source.requests) == asked, "a resync asks no server"


@pytest.mark.rule("SI-16")
def test_a_period_below_a_second_is_raised(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    source.put(thing("a", 1))
    informer = informer_of(source, resync_period=10.0)
    seen: list[Any] = []
    informer.add_handler(
        options=HandlerOptions(resync_period=0.1), on_update=lambda old, new: seen.append(new)
    )
    informer.start()
    fake_clock.advance(3)
    assert len(seen) == 3


@pytest.mark.rule("SI-17")
def test_after_the_start_a_period_is_raised_to_the_check_period(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    source.put(thing("a", 1))
    informer = informer_of(source, resync_period=10.0)
    informer.start()
    fake_clock.settle()
    seen: list[Any] = []
    informer.add_handler(
        options=HandlerOptions(resync_period=2.0), on_update=lambda old, new: seen.append(new)
    )
    fake_clock.advance(20)
    assert len(seen) == 2


@pytest.mark.rule("SI-17")
def test_without_a_resync_period_no_handler_is_resynced(
    informer: SharedInformer[Any], fake_clock: FakeClock
) -> None:
    seen: list[Any] = []
    informer.add_handler(
        options=HandlerOptions(resync_period=2.0), on_update=lambda old, new: seen.append(new)
    )
    informer.start()
    fake_clock.advance(20)
    assert seen == []


@pytest.mark.rule("RT-14", "RF-23")
def test_reconnects_do_not_put_the_resync_off(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    source.put(thing("a", 1))
    informer = informer_of(source, resync_period=10.0)
    seen: list[Any] = []
    informer.add_handler(on_update=lambda old, new: seen.append(new))
    informer.start()
    for _ in range(12):
        fake_clock.advance(2)
        source.end_watches()
    fake_clock.advance(0)
    assert len(seen) == 2


class ResyncsBreak(FakeClock):
    """Fails on the thread of resyncs, once `broken` is set."""

    broken = False

    def monotonic(self) -> float:
        if self.broken and threading.current_thread().name.startswith("nav-resync-"):
            raise OSError("no clock")
        return super().monotonic()


@pytest.mark.rule("RF-23")
def test_a_crash_of_the_resync_thread_is_reported_and_ends_the_informer(
    informer_of: Make, things: Any
) -> None:
    clock, heard = ResyncsBreak(), list[BaseException]()
    source = FakeSource(things, clock=clock)
    informer = informer_of(source, clock=clock, resync_period=10.0, on_failure=heard.append)
    informer.start()
    clock.settle()
    clock.broken = True
    clock.advance(10)
    assert informer.join(20)
    assert [str(error) for error in heard] == ["no clock"]
    assert informer.failure is heard[0]
    with pytest.raises(ThreadCrashed, match="resync-things"):
        informer.run(StopToken())


@pytest.mark.rule("SI-18")
def test_a_relist_that_changes_nothing_reaches_whom_resyncs_reach(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    source.put(thing("a", 1))
    informer = informer_of(source, resync_period=10.0)
    fast: list[Any] = []
    slow: list[Any] = []
    informer.add_handler(on_update=lambda old, new: fast.append(new))
    informer.add_handler(
        options=HandlerOptions(resync_period=100.0), on_update=lambda old, new: slow.append(new)
    )
    informer.start()
    fake_clock.settle()
    source.fail_watches(RuntimeError("a relist"))
    fake_clock.advance(1)
    assert (len(fast), len(slow)) == (1, 1), "before the first check every handler takes part"
    fake_clock.advance(9)
    assert (len(fast), len(slow)) == (2, 1)
    source.fail_watches(RuntimeError("a relist"))
    fake_clock.advance(4)
    assert (len(fast), len(slow)) == (3, 1), "then only who was due at the last check"


def test_a_negative_period_is_refused(source: FakeSource[Any], informer_of: Make) -> None:
    with pytest.raises(ConfigError, match="resync_period"):
        informer_of(source, resync_period=-1.0)


# Own writes and catching up


@pytest.mark.rule("ST-17", "RT-32")
def test_reads_include_own_writes_until_the_watch_has_them(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, thing: Make
) -> None:
    informer.start()
    fake_clock.settle()
    written = source.put(thing("a", 5), notify=False)
    informer.observe_write(written)
    assert informer.lister.get("a", "ns").value == 5
    assert present(informer.store.get("ns/a")).value == 1
    gone = source.delete("ns/b", notify=False)
    informer.observe_delete(gone)
    assert informer.lister.find("b", "ns") is None
    source.put(thing("a", 6))
    fake_clock.settle()
    assert informer.lister.get("a", "ns").value == 6


def test_own_writes_out_of_scope_are_not_shown(
    source: FakeSource[Any], informer_of: Make, thing: Make
) -> None:
    informer = informer_of(source, namespace="ns", label_selector="role=worker")
    inside = source.put(thing("in", labels={"role": "worker"}))
    for written in (
        inside,
        source.put(thing("other", labels={"role": "other"})),
        source.put(thing("elsewhere", namespace="else", labels={"role": "worker"})),
    ):
        informer.observe_write(written)
    assert informer.lister.list() == [inside]


def test_catching_up_is_immediate_when_nothing_is_missing(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock
) -> None:
    informer.start()
    fake_clock.settle()
    assert informer.catch_up(0.5)
    assert [request.verb for request in source.requests] == ["watch", "list"]
    assert source.requests[-1].limit == 1
    assert source.requests[-1].resource_version == ""


def test_catching_up_waits_for_the_watch_first(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, in_thread: Make
) -> None:
    informer.start()
    fake_clock.settle()
    source.pass_time()
    result = in_thread(lambda: informer.catch_up(30))
    fake_clock.settle(threads=1)
    source.bookmark()
    assert result() is True
    assert len(source.streams) == 1, "the bookmark was proof enough"


def test_catching_up_forces_a_list_when_no_bookmark_comes(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    in_thread: Make,
    thing: Make,
) -> None:
    informer.start()
    fake_clock.settle()
    source.put(thing("a", 9), notify=False)
    result = in_thread(lambda: informer.catch_up(30))
    fake_clock.settle(threads=1)
    assert present(informer.store.get("ns/a")).value == 1
    fake_clock.advance(1)
    assert result() is True
    assert present(informer.store.get("ns/a")).value == 9
    assert source.requests[-1].resource_version == "13"


@pytest.mark.usefixtures("no_detector")
def test_catching_up_in_a_pause_does_not_wait_for_its_end(
    informer: SharedInformer[Any],
    source: FakeSource[Any],
    fake_clock: FakeClock,
    in_thread: Make,
    thing: Make,
) -> None:
    informer.start()
    fake_clock.advance(300)
    source.fail("watch", *[ConnectionError("down")] * 10)
    source.fail("list", *[ConnectionError("down")] * 10)
    source.fail_watches(ConnectionError("down"))
    fake_clock.advance(60)
    source._failures.watch.clear()
    source._failures.list.clear()
    source.pass_time()
    waiting = fake_clock.next_deadline() or 0
    assert waiting > 5
    result = in_thread(lambda: informer.catch_up(3))
    fake_clock.settle(threads=1)
    fake_clock.advance(1)
    assert result() is True


def test_catching_up_ends_with_its_time_its_token_or_the_informer(
    informer: SharedInformer[Any], source: FakeSource[Any], fake_clock: FakeClock, in_thread: Make
) -> None:
    with pytest.raises(NotStarted):
        informer.catch_up()
    source.fail("watch", *[ConnectionError("down")] * 20)
    source.fail("list", ConnectionError("down"))
    informer.start()
    fake_clock.settle()
    stop = StopToken(clock=fake_clock)
    timed = in_thread(lambda: informer.catch_up(0))
    told = in_thread(lambda: informer.catch_up(None, stop))
    ended = in_thread(informer.catch_up)
    assert timed() is False
    stop.stop()
    assert told() is False
    informer.stop()
    assert ended() is False


# Cost


@pytest.mark.usefixtures("no_detector")
def test_an_informer_has_two_threads_and_ends_both(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, recorder: Any
) -> None:
    before = set(threading.enumerate())
    for _ in range(100):
        informer = informer_of(source)
        informer.add_handler(recorder)
        informer.start()
        assert informer.wait_for_sync()
        names = sorted(thread.name for thread in set(threading.enumerate()) - before)
        assert names == ["nav-handle-things-Recorder", "nav-watch-things"]
        informer.stop()
        assert informer.join()
        assert set(threading.enumerate()) == before


def test_the_objects_of_all_informers_of_a_kind_are_counted_together(
    source: FakeSource[Any], informer_of: Make, fake_clock: FakeClock, thing: Make
) -> None:
    instruments = Instruments()

    def count() -> float | None:
        name = "navarchos_informer_objects"
        return instruments.registry.get_sample_value(name, {"resource": "things"})

    source.put(thing("a"))
    source.put(thing("b"))
    informers = [informer_of(source, instruments=instruments) for _ in range(2)]
    for informer in informers:
        informer.start()
    fake_clock.settle()
    assert count() == 4
    source.delete("ns/a")
    fake_clock.settle()
    assert count() == 2
    for informer in informers:
        informer.stop()
        informer.join()
    assert count() == 0


@pytest.mark.rule("RT-31")
def test_a_started_informer_refuses_every_use_in_a_forked_child(
    source: FakeSource[Any],
    informer_of: Make,
    fake_clock: FakeClock,
    thing: Make,
    recorder: Any,
    in_child: Make,
) -> None:
    """Its cache would never change there again, and its locks may be held for ever."""
    source.put(thing("a"))
    informer, new = informer_of(source), informer_of(source)
    informer.start()
    fake_clock.settle()
    lister = informer.lister.with_copies()
    with informer._state_lock, informer._processor._order_lock:
        for use in (
            informer.start,
            informer.stop,
            lambda: informer.join(1),
            informer.has_synced,
            lambda: informer.wait_for_sync(1),
            lambda: informer.catch_up(1),
            lambda: informer.add_handler(recorder),
            lambda: informer.add_indexers({}),
            lambda: informer.lister.get("a", "ns"),
            lambda: lister.find("a", "ns"),
            lister.list,
            lambda: lister.by_index("namespace", "ns"),
        ):
            assert in_child(use).startswith("Forked: informer things was started before")
        assert in_child(new.lister.list) == ""
    assert lister.get("a", "ns").metadata.name == "a"
