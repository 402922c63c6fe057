"""Races of informers: forced first, then repeated at random.

Invariants:
- a handler added during changes gets each later state of each object once;
- a registration is synced only after its handler has returned from the initial list;
- the states of an object that a handler gets never go back in time, resyncs included;
- a read that includes own writes never goes back in time;
- start and stop in any order leave no thread;
- a handler that blocks delays only itself;
- with any concurrent actions, each handler ends up with the server's objects.
"""

import itertools
import random
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import Gauge
from tests.informers import make_informer
from tests.seeds import runs

from navarchos.backoff import Backoff
from navarchos.client import Resource, WatchExpired
from navarchos.clock import SystemClock
from navarchos.informers import CacheMutated, Registration, SharedInformer, deletion_key
from navarchos.informers.overlay import Overlay
from navarchos.informers.processor import EventProcessor
from navarchos.informers.store import WritableStore
from navarchos.meta import Object, ObjectMeta, ResourceVersion, key_of
from navarchos.testing.source import FakeSource

LIMIT = 30.0
ROUNDS = 300


class Thing(Object, frozen=True):
    value: int = 0


THINGS = Resource("", "v1", "things", "Thing", namespaced=True, type=Thing)


def thing(name: str, value: int = 0) -> Thing:
    metadata = ObjectMeta(
        name=name, namespace="ns", uid="u", resource_version=ResourceVersion(str(value))
    )
    return Thing(metadata=metadata, value=value)


class SequencePoint:
    """An index function that can block a change of the store while it is made."""

    def __init__(self) -> None:
        self.armed = threading.Event()
        self.reached = threading.Event()
        self.passed = threading.Event()

    def __call__(self, obj: Thing) -> list[str]:
        if self.armed.is_set():
            self.armed.clear()
            self.reached.set()
            assert self.passed.wait(LIMIT)
        return []


class Heard:
    """A handler that records the values of each object, and the initial ones.

    The deletion of an object is the last action of a test.
    """

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.values: dict[str, list[int]] = defaultdict(list)
        self.initial: list[str] = []

    def on_add(self, obj: Thing, is_in_initial_list: bool) -> None:
        assert key_of(obj) not in self.values, "added twice"
        self.values[key_of(obj)].append(obj.value)
        if is_in_initial_list:
            self.initial.append(key_of(obj))

    def on_update(self, old: Thing, new: Thing) -> None:
        self.values[key_of(new)].append(new.value)

    def on_delete(self, obj: Any) -> None:
        self.ended.set()


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def source() -> FakeSource[Thing]:
    return FakeSource(THINGS)


@pytest.fixture
def informer_of() -> Iterator[Callable[..., "SharedInformer[Thing]"]]:
    made: list[SharedInformer[Thing]] = []

    def make(source: "FakeSource[Thing]", **options: Any) -> "SharedInformer[Thing]":
        made.append(make_informer(source, **options))
        return made[-1]

    yield make
    for informer in made:
        informer.stop("the test is over")
        assert informer.join(LIMIT)
        assert not isinstance(informer.failure, CacheMutated)


@pytest.fixture
def run() -> Iterator[Callable[[Callable[[], object]], threading.Thread]]:
    """Run a function on a thread; its exception fails the test."""
    threads: list[threading.Thread] = []
    failures: list[BaseException] = []

    def start(target: Callable[[], object]) -> threading.Thread:
        def guarded() -> None:
            try:
                target()
            except BaseException as failure:  # noqa: BLE001 - raised below, by the test
                failures.append(failure)

        thread = threading.Thread(target=guarded)
        thread.start()
        threads.append(thread)
        return thread

    yield start
    for thread in threads:
        thread.join(LIMIT)
    assert failures == []


class ShiftedClock(SystemClock):
    """The real clock, which a test can advance so that handlers are due for a resync."""

    shift = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.shift


def resync(informer: SharedInformer[Thing], clock: ShiftedClock) -> None:
    """Replay the store now, on this thread, as the resync thread does at its time."""
    clock.shift += 3600.0
    informer._processor.resync()


def new_processor(point: Callable[[Thing], list[str]] | None = None) -> EventProcessor[Thing]:
    store = WritableStore[Thing]({"point": point} if point else {})
    gauge = Gauge("objects", "Objects.", registry=None)
    return EventProcessor(store, Overlay(store), name="things", objects=gauge)


@pytest.mark.rule("SI-10", "RT-05")
def test_a_handler_added_during_a_change_gets_it_once(
    source: FakeSource[Thing], informer_of: Callable[..., Any], run: Callable[..., Any]
) -> None:
    point = SequencePoint()
    informer = informer_of(source, indexers={"point": point})
    informer.start()
    assert informer.wait_for_sync(LIMIT)
    # 1. The change is in progress: neither stored nor reported.
    point.armed.set()
    source.put(thing("a", 1))
    assert point.reached.wait(LIMIT)
    # 2. A handler is added; it must wait until the change is complete.
    heard, registered = Heard(), threading.Event()
    registrations: list[Registration[Thing]] = []

    def register() -> None:
        registrations.append(informer.add_handler(heard))
        registered.set()

    run(register)
    assert not registered.wait(0.05), "a snapshot taken now would miss the change"
    # 3. It therefore gets the change in its initial list, and only there.
    point.passed.set()
    assert registered.wait(LIMIT)
    assert registrations[0].wait_for_sync(LIMIT)
    source.put(thing("b", 1))
    assert informer.catch_up(LIMIT)
    assert informer.add_handler(Heard()).wait_for_sync(LIMIT)
    assert heard.initial == ["ns/a"]
    assert heard.values["ns/a"] == [1]


@pytest.mark.rule("SI-10", "RT-05")
def test_handlers_added_all_the_time_get_every_later_change_once(
    source: FakeSource[Thing], informer_of: Callable[..., Any], run: Callable[..., Any]
) -> None:
    informer = informer_of(source)
    informer.start()
    assert informer.wait_for_sync(LIMIT)
    writer = run(lambda: [source.put(thing(f"t{n % 3}", n // 3)) for n in range(ROUNDS)])
    handlers: list[Heard] = []
    while writer.is_alive() and len(handlers) < 60:
        handlers.append(Heard())
        informer.add_handler(handlers[-1])
    writer.join(LIMIT)
    source.delete("ns/t0")
    for heard in handlers:
        assert heard.ended.wait(LIMIT)
        for values in heard.values.values():
            # In either order, no later state is missing or repeated.
            assert values == list(range(values[0], ROUNDS // 3))


@pytest.mark.rule("SI-11", "RT-06")
def test_a_registration_is_not_synced_before_its_handler_has_returned(
    source: FakeSource[Thing], informer_of: Callable[..., Any]
) -> None:
    for number in range(3):
        source.put(thing(f"t{number}"))
    informer = informer_of(source)
    informer.start()
    assert informer.wait_for_sync(LIMIT)
    for _ in range(50):
        early = Early()
        early.registration = informer.add_handler(on_add=early.look)
        early.look(thing("none"), True, wait=False)
        early.registered.set()
        assert early.registration.wait_for_sync(LIMIT)
        assert early.seen == [False] * 4
        early.registration.remove()


class Early:
    """Checks a registration during its initial list."""

    def __init__(self) -> None:
        self.registration: Registration[Thing] | None = None
        self.registered = threading.Event()
        self.seen: list[bool] = []

    def look(self, obj: Thing, is_in_initial_list: bool, *, wait: bool = True) -> None:
        assert not wait or self.registered.wait(LIMIT)
        assert self.registration is not None
        self.seen.append(self.registration.has_synced())


@pytest.mark.rule("SI-11", "RT-06")
def test_a_handler_added_while_the_first_list_is_stored_is_not_synced_by_its_absence(
    source: FakeSource[Thing], informer_of: Callable[..., Any], run: Callable[..., Any]
) -> None:
    """The end of the list is reported after its objects were buffered, never before."""
    point = SequencePoint()
    source.put(thing("a"))
    informer = informer_of(source, indexers={"point": point})
    before = informer.add_handler(Heard())
    point.armed.set()
    informer.start()
    assert point.reached.wait(LIMIT)
    gate, entered = threading.Event(), threading.Event()

    def wait(obj: Thing, is_in_initial_list: bool) -> None:
        entered.set()
        assert gate.wait(LIMIT)

    during: list[Registration[Thing]] = []
    run(lambda: during.append(informer.add_handler(on_add=wait)))
    assert not informer.has_synced()
    assert not before.has_synced()
    point.passed.set()
    assert entered.wait(LIMIT)
    assert before.wait_for_sync(LIMIT)
    assert informer.unsynced() != []
    gate.set()
    assert informer.wait_for_sync(LIMIT)


@pytest.mark.rule("FQ-10", "RT-04")
def test_a_resync_in_the_middle_of_an_update_does_not_replay_the_older_state(
    source: FakeSource[Thing], informer_of: Callable[..., Any], run: Callable[..., Any]
) -> None:
    point, clock = SequencePoint(), ShiftedClock()
    source.put(thing("a", 1))
    informer = informer_of(source, clock=clock, resync_period=3600.0, indexers={"point": point})
    heard = Heard()
    registration = informer.add_handler(heard)
    informer.start()
    assert registration.wait_for_sync(LIMIT)
    # 1. An update is in progress. 2. A resync starts. 3. It must wait for the update.
    point.armed.set()
    source.put(thing("a", 2))
    assert point.reached.wait(LIMIT)
    resyncing = run(lambda: resync(informer, clock))
    resyncing.join(0.05)
    assert resyncing.is_alive(), "the resync waits until the update is complete"
    point.passed.set()
    resyncing.join(LIMIT)
    source.delete("ns/a")
    assert heard.ended.wait(LIMIT)
    assert heard.values["ns/a"] == [1, 2, 2]


@pytest.mark.rule("RT-04")
def test_resyncs_all_the_time_never_take_a_handler_back(
    source: FakeSource[Thing], informer_of: Callable[..., Any], run: Callable[..., Any]
) -> None:
    clock = ShiftedClock()
    source.put(thing("a", 0))
    informer = informer_of(source, clock=clock, resync_period=3600.0)
    heard = Heard()
    registration = informer.add_handler(heard)
    informer.start()
    assert registration.wait_for_sync(LIMIT)
    writer = run(lambda: [source.put(thing("a", n)) for n in range(1, ROUNDS)])
    while writer.is_alive():
        resync(informer, clock)
    writer.join(LIMIT)
    source.delete("ns/a")
    assert heard.ended.wait(LIMIT)
    values = heard.values["ns/a"]
    assert values == sorted(values)
    assert sorted(set(values)) == list(range(ROUNDS)), "and no update is lost"


@pytest.mark.rule("ST-17")
def test_reads_of_own_writes_never_go_back_while_the_watch_catches_up(
    run: Callable[..., Any],
) -> None:
    """Reads show no older state when the watch replaces an entry of the overlay."""
    processor = new_processor()
    overlay = processor._overlay

    def put(number: int) -> None:
        processor.put("ns/a", thing("a", number), ResourceVersion(str(number)))

    put(1)
    done = threading.Event()

    def write() -> None:
        for number in range(2, ROUNDS * 5):
            overlay.observe_write(thing("a", number))
            put(number - 1)
            put(number)
        done.set()

    run(write)
    last = 0
    while not done.is_set():
        for found in (
            overlay.get("ns/a"),
            overlay.values()[0],
            overlay.by_index("namespace", "ns")[0],
        ):
            assert found is not None
            assert found.value >= last
            last = found.value


@pytest.mark.rule("ST-10")
def test_readers_see_the_old_or_the_new_list_and_nothing_between(run: Callable[..., Any]) -> None:
    store = WritableStore[Thing]()
    worlds = [{f"t{n}": thing(f"t{n}", parity) for n in range(20)} for parity in (0, 1)]
    store.replace(worlds[0], ResourceVersion("0"))
    done = threading.Event()

    def swap() -> None:
        for number in range(ROUNDS):
            store.replace(worlds[number % 2], ResourceVersion(str(number)))
        done.set()

    run(swap)
    while not done.is_set():
        assert len({obj.value for obj in store.values()}) == 1
        assert len({obj.value for obj in store.by_index("namespace", "ns")}) == 1


@pytest.mark.rule("SI-12", "RT-07")
def test_start_stop_and_add_in_any_order_end(
    source: FakeSource[Thing], informer_of: Callable[..., Any], run: Callable[..., Any]
) -> None:
    source.put(thing("a"))
    for order in itertools.islice(itertools.cycle(itertools.permutations(range(3))), 60):
        informer = informer_of(source)
        registration = informer.add_handler(Heard())
        steps = (informer.start, informer.stop, registration.remove)
        threads = [run(steps[number]) for number in order]
        for thread in threads:
            thread.join(LIMIT)
        assert informer.join(LIMIT)
        assert registration.shutdown(LIMIT)


@pytest.mark.rule("RT-25")
def test_a_blocked_handler_does_not_hold_up_anything_else(
    source: FakeSource[Thing], informer_of: Callable[..., Any]
) -> None:
    """No thread waits for a handler while it holds the order lock, or this test would hang."""
    entered, gate = threading.Event(), threading.Event()

    def block(obj: Thing, is_in_initial_list: bool) -> None:
        entered.set()
        assert gate.wait(LIMIT)

    clock, heard = ShiftedClock(), Heard()
    informer = informer_of(source, clock=clock, resync_period=3600.0)
    blocked = informer.add_handler(on_add=block)
    informer.add_handler(heard)
    informer.start()
    source.put(thing("a", 0))
    assert entered.wait(LIMIT)
    for number in range(1, ROUNDS):
        source.put(thing("a", number))
    assert informer.catch_up(LIMIT)
    resync(informer, clock)
    late = informer.add_handler(Heard())
    assert late.wait_for_sync(LIMIT)
    late.remove()
    source.delete("ns/a")
    assert heard.ended.wait(LIMIT)
    # Catching up may list and so skip states, but never the last one.
    assert heard.values["ns/a"][-1] == ROUNDS - 1
    assert blocked.pending > 0
    gate.set()


class Mirror:
    """A handler that keeps the objects of its notifications."""

    def __init__(self) -> None:
        self.objects: dict[str, Thing] = {}
        self.wrong: list[str] = []
        self.ended = threading.Event()

    def on_add(self, obj: Thing, is_in_initial_list: bool) -> None:
        if key_of(obj) in self.objects:
            self.wrong.append(f"{key_of(obj)} was added twice")
        self.objects[key_of(obj)] = obj
        if obj.metadata.name == "end":
            self.ended.set()

    def on_update(self, old: Thing, new: Thing) -> None:
        known = self.objects.get(key_of(new))
        if known != old:
            self.wrong.append(f"{key_of(new)} was updated from an unknown state")
        if int(new.metadata.resource_version) < int(old.metadata.resource_version):
            self.wrong.append(f"{key_of(new)} went back in time")
        self.objects[key_of(new)] = new

    def on_delete(self, obj: Any) -> None:
        if self.objects.pop(deletion_key(obj), None) is None:
            self.wrong.append(f"{deletion_key(obj)} was deleted twice")


class Hammer:
    """The actions of the last test's threads, each with a separate random generator."""

    def __init__(
        self, source: FakeSource[Thing], informer: SharedInformer[Thing], clock: ShiftedClock
    ) -> None:
        self.source = source
        self.informer = informer
        self.clock = clock
        self.mirrors: list[Mirror] = []

    def add_mirror(self) -> None:
        self.mirrors.append(Mirror())
        self.informer.add_handler(self.mirrors[-1])

    def write(self, rand: random.Random) -> None:
        name = rand.choice("abcd")
        if rand.random() < 0.7 or f"ns/{name}" not in self.source.objects():
            self.source.put(thing(name, rand.randrange(100)))
        else:
            self.source.delete(f"ns/{name}")

    def disturb(self, rand: random.Random) -> None:
        source, expired = self.source, WatchExpired("things", "too old")
        steps: list[Callable[[], object]] = [
            source.end_watches,
            source.break_watches,
            source.compact,
            lambda: source.fail_watches(expired),
            lambda: self.informer._reflector.relist(source.version),
        ]
        rand.choice(steps)()

    def look(self, rand: random.Random) -> None:
        match rand.randrange(3):
            case 0:
                resync(self.informer, self.clock)
            case 1:
                self.informer.add_handler(Mirror()).remove()
            case 2:
                self.add_mirror()


@pytest.mark.parametrize("seed", range(runs(4, at_most=1000)))
def test_each_handler_ends_up_right_under_any_mix_of_threads(
    source: FakeSource[Thing],
    informer_of: Callable[..., Any],
    run: Callable[..., Any],
    seed: int,
) -> None:
    clock = ShiftedClock()
    informer = informer_of(
        source, clock=clock, resync_period=3600.0, backoff=Backoff(base=0.001, cap=0.002)
    )
    hammer = Hammer(source, informer, clock)
    hammer.add_mirror()
    informer.start()

    def repeat(what: Callable[[random.Random], None], rand: random.Random) -> None:
        for _ in range(30):
            what(rand)

    threads = [
        run(lambda what=what, n=n: repeat(what, random.Random(seed * 10 + n)))
        for n, what in enumerate((hammer.write, hammer.disturb, hammer.look))
    ]
    for thread in threads:
        thread.join(LIMIT)
    source.put(thing("end"))
    for mirror in hammer.mirrors:
        assert mirror.ended.wait(LIMIT)
    assert informer.store.snapshot() == source.objects()
    for mirror in hammer.mirrors:
        assert mirror.wrong == []
        assert mirror.objects == source.objects()
