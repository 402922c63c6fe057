"""Run an informer with a faulty server and network, and handlers that check their calls.

The drawn steps are weighted towards difficult cases: changes in a gap whose history is then
forgotten, lists in pages whose token expires in between, names that are used again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from hypothesis import strategies as st
from tests.informers import make_informer

from navarchos.backoff import Backoff
from navarchos.client import (
    ConnectFailed,
    EventType,
    Resource,
    WatchBroken,
    WatchEvent,
    WatchExpired,
)
from navarchos.client.errors import error_from_status
from navarchos.client.status import Status
from navarchos.informers import Store, Tombstone, deletion_key
from navarchos.informers.overlay import Overlay
from navarchos.meta import Object, ObjectMeta, key_of
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource, FakeStream


class Thing(Object, frozen=True):
    value: int = 0


THINGS = Resource("", "v1", "things", "Thing", namespaced=True, type=Thing)

RESYNC: Final = 5.0
LONGEST_PAUSE: Final = 1.0
CALM: Final = 20.0
"""Seconds without faults after which the state must be right."""

names = st.sampled_from(["a", "b", "c"])
values = st.integers(0, 2)


def thing(name: str, value: int, **metadata: Any) -> Thing:
    return Thing(metadata=ObjectMeta(name=name, namespace="ns", **metadata), value=value)


def by_value(obj: Thing) -> list[str]:
    return [str(obj.value), "even" if obj.value % 2 == 0 else "odd"]


def check_index(store: Store[Thing], index: str, of: Callable[[Thing], list[str]]) -> None:
    """Check an index against a full scan."""
    scan: dict[str, set[str]] = defaultdict(set)
    for key, obj in store.snapshot().items():
        for value in of(obj):
            scan[value].add(key)
    found = {value: set(store.index_keys(index, value)) for value in store.index_values(index)}
    assert found == scan


# The drawn steps


def weighted(choices: Mapping[st.SearchStrategy[Any], int]) -> st.SearchStrategy[Any]:
    """Draw from strategies with weights, which `one_of` does not support."""
    drawn = [strategy for strategy, weight in choices.items() for _ in range(weight)]
    return st.sampled_from(drawn).flatmap(lambda strategy: strategy)


puts = st.tuples(st.just("put"), names, values)
deletes = st.tuples(st.just("delete"), names)
# Deleted and created again under the same name: another object.
replacements = st.tuples(st.just("replace"), names, values)
changes = weighted({puts: 2, deletes: 2, replacements: 1})
# Writes of this process, which its cache observes.
own_writes = st.one_of(
    st.tuples(st.just("own put"), names, values), st.tuples(st.just("own delete"), names)
)
# Changes of the server that no watch delivers: only a list shows them.
losses = st.one_of(
    st.tuples(st.just("lost put"), names, values),
    st.tuples(st.just("lost delete"), names),
    st.tuples(st.just("lost replace"), names, values),
)
# Changes during a gap, after which resuming is possible, or a list is needed, or even the
# list fails.
gaps = st.tuples(
    st.just("gap"),
    st.lists(changes, min_size=1, max_size=4),
    st.sampled_from(["kept", "forgotten", "forgotten", "forgotten in the list, too"]),
)

beginnings = st.lists(puts, min_size=2, max_size=4)
manners = st.sampled_from(
    [
        {"streaming": True},
        {"streaming": True, "page_size": 1},
        {"streaming": False},
        {"streaming": False, "page_size": 1},
        {"streaming": False, "page_size": 2},
    ]
)
resyncs = st.sampled_from([0.0, 0.0, RESYNC])


def sequences(*more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """After some steps the informer gets time to react, after others it does not."""
    kinds = weighted({gaps: 4, changes: 3, own_writes: 1, accidents: 4, **dict.fromkeys(more, 3)})
    step = st.tuples(kinds, st.sampled_from([None, 0, 2, 2, RESYNC]))
    return st.lists(step, min_size=3, max_size=10)


# The server and the network


def error(code: int, reason: str) -> Exception:
    return error_from_status(Status(code=code, reason=reason, message=reason))


class ShakySource(FakeSource[Thing]):
    """Ends streamed lists after their first object, and forgets history between pages."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(THINGS, clock=clock)
        self.last: WatchEvent[Thing] | None = None
        self.cuts: list[WatchBroken | None] = []  # how the next streamed lists end

    def _begin(self, stream: FakeStream[Thing], version: str, *, streaming: bool) -> None:
        if not streaming or not self.cuts:
            super()._begin(stream, version, streaming=streaming)
            return
        for obj in list(self._objects.values())[:1]:
            stream.send(WatchEvent("ADDED", obj, obj.metadata.resource_version))
        # This bookmark has a version, and does not end the initial list.
        stream.send(WatchEvent("BOOKMARK", None, self.version))
        stream.end(self.cuts.pop())

    def _record(self, kind: EventType, obj: Thing, *, notify: bool) -> None:
        super()._record(kind, obj, notify=notify)
        self.last = WatchEvent(kind, obj, obj.metadata.resource_version) if notify else None

    def refuse(self) -> None:
        """Let the next request fail."""
        self.fail("watch", error(500, "InternalError"))
        self.fail("list", error(500, "InternalError"))

    def be_away(self) -> None:
        """Cut all streams and refuse connections, so that the next changes happen in a gap."""
        self.fail("watch", *[ConnectFailed("refused", refused=True)] * 2)
        self.break_watches()

    def be_well(self) -> None:
        """End all faults."""
        with self._world_lock:
            self._failures.list.clear()
            self._failures.watch.clear()
            self.cuts.clear()

    def forget(self) -> None:
        """Let all versions up to now, and one more, expire."""
        self.pass_time()
        self.compact()

    def forget_in_next_list(self) -> None:
        """Forget history between two pages of the next list, and delete an object there."""
        asked = len(self.requests)

        def forget() -> None:
            if any(request.verb == "list" for request in self.requests[asked:]):
                self.before_list = None
                for key in list(self.objects())[:1]:
                    self.delete(key)
                self.forget()

        self.before_list = forget

    def repeat(self) -> None:
        """Deliver the last event once more, as networks do."""
        last = self.last
        for stream in self.open_streams() if last is not None else ():
            assert last is not None
            stream.send(last)


# The handlers


class Happened:
    """The states of each object, in order."""

    def __init__(self) -> None:
        self.states: dict[str, list[tuple[str, int]]] = defaultdict(list)

    def record(self, obj: Thing) -> None:
        self.states[key_of(obj)].append(state_of(obj))


def state_of(obj: Thing) -> tuple[str, int]:
    return obj.metadata.resource_version, obj.value


class Hearer:
    """A handler that checks and records its calls."""

    def __init__(self, store: Store[Thing]) -> None:
        self.store = store
        self.heard: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.alive: dict[str, str] = {}  # by key, the uid
        self.ended: set[str] = set()  # uids
        self.failures: list[str] = []

    def expect(self, holds: bool, what: str) -> None:
        # Exceptions of a handler are only logged, so they are recorded here.
        if not holds:
            self.failures.append(what)

    def on_add(self, obj: Thing, is_in_initial_list: bool) -> None:
        key = key_of(obj)
        self.expect(key not in self.alive, f"{key} was added twice")
        self.hear(key, obj)

    def on_update(self, old: Thing, new: Thing) -> None:
        key = key_of(new)
        self.expect(key in self.alive, f"{key} was updated before it was added, or after its end")
        self.expect(self.is_last(key, old), f"{key}: the old state is not the last one")
        if old.metadata.uid != new.metadata.uid:
            self.ended.add(old.metadata.uid)
        if old.metadata.resource_version != new.metadata.resource_version:
            self.hear(key, new)

    def hear(self, key: str, obj: Thing) -> None:
        version = obj.metadata.resource_version
        known = int(self.store.resource_version or 0)
        self.expect(known >= int(version), f"{key}: the store does not know {version} yet")
        self.expect(obj.metadata.uid not in self.ended, f"{key} was deleted and added, one uid")
        self.alive[key] = obj.metadata.uid
        self.heard[key].append(state_of(obj))

    def on_delete(self, obj: Thing | Tombstone[Thing]) -> None:
        key = deletion_key(obj)
        self.expect(key in self.alive, f"{key} was deleted twice, or never added")
        if isinstance(obj, Tombstone):
            known = obj.obj is not None and self.is_last(key, obj.obj)
            self.expect(known, f"{key}: the tombstone is not of the last known state")
        else:
            later = self.heard[key][-1:] < [state_of(obj)]
            self.expect(later, f"{key}: its final state is an earlier one")
        self.ended.add(self.alive.pop(key, ""))

    def is_last(self, key: str, obj: Thing) -> bool:
        return self.heard[key][-1:] == [state_of(obj)]

    def check(self, happened: Happened, objects: Mapping[str, Thing]) -> None:
        """Check the end: all states are right and in order, and none is missing."""
        assert self.failures == []
        assert self.alive == {key: obj.metadata.uid for key, obj in objects.items()}
        for key, obj in objects.items():
            assert self.is_last(key, obj)
        for key, heard in self.heard.items():
            rest = iter(happened.states[key])
            assert all(state in rest for state in heard), f"{key}: {heard} is not a subsequence"


ACCIDENTS: Final[dict[str, Callable[[ShakySource], object]]] = {
    "end": ShakySource.end_watches,
    "break": ShakySource.break_watches,
    "expire": lambda source: source.fail_watches(WatchExpired("things", "too old")),
    "error": lambda source: source.fail_watches(error(500, "InternalError")),
    "busy": lambda source: source.fail("watch", error(429, "TooManyRequests")),
    "refuse": ShakySource.refuse,
    "repeat": ShakySource.repeat,
    "forget": ShakySource.forget,
    "bookmark": ShakySource.bookmark,
    # Each followed by a list
    "relist": id,
    "forget in a list": ShakySource.forget_in_next_list,
    "cut list": lambda source: source.cuts.append(WatchBroken("things", "cut in a list")),
    "short list": lambda source: source.cuts.append(None),
}
LISTS: Final = {"relist", "forget in a list", "cut list", "short list"}
accidents = st.tuples(st.sampled_from([*ACCIDENTS, "handler"]))


class Trial:
    """An informer, its source, and the steps that change both."""

    def __init__(self, *, resync_period: float, **manner: Any) -> None:
        self.clock = FakeClock()
        self.source = ShakySource(self.clock)
        self.happened = Happened()
        self.hearers: list[Hearer] = []
        self.informer = make_informer(
            self.source,
            clock=self.clock,
            resync_period=resync_period,
            backoff=Backoff(base=0.1, cap=LONGEST_PAUSE),
            rand=lambda: 0.0,
            indexers={"value": by_value},
            **manner,
        )
        self.add_handler()

    def add_handler(self) -> None:
        self.hearers.append(Hearer(self.informer.store))
        self.informer.add_handler(self.hearers[-1])

    @contextmanager
    def running(self, beginning: list[Any]) -> Iterator[None]:
        """Run the informer on a server with these objects."""
        for step in beginning:
            self.perform(step)
        self.informer.start()
        try:
            yield
        finally:
            self.informer.stop()
            assert self.informer.join()

    def run(self, steps: list[Any]) -> None:
        """Take the steps, then run without faults for longer than any pause."""
        for step, seconds in steps:
            self.perform(step)
            if seconds is not None:
                self.pass_seconds(seconds)
        self.source.be_well()
        self.pass_seconds(CALM)

    def pass_seconds(self, seconds: float) -> None:
        self.clock.settle()
        self.clock.advance(seconds)
        self.clock.settle()

    def relist(self) -> None:
        self.informer._reflector.relist(self.source.version)

    def check(self) -> None:
        """Check that the cache and every handler have the server's list."""
        objects = self.source.objects()
        assert self.informer.store.snapshot() == objects
        overlay = self.informer.reader
        assert isinstance(overlay, Overlay)
        assert overlay.snapshot() == objects, "no own write remains in the overlay"
        check_index(self.informer.store, "value", by_value)
        check_index(self.informer.store, "namespace", lambda _: ["ns"])
        assert not self.informer.is_disconnected
        for hearer in self.hearers:
            hearer.check(self.happened, objects)

    def check_bookmark(self) -> None:
        """Check that a bookmark saves a list: the next watch begins at its version."""
        self.source.pass_time()
        self.source.bookmark()
        self.clock.settle()
        assert self.informer.last_resource_version == self.source.version
        self.source.compact()
        asked = len(self.source.requests)
        self.source.end_watches()
        self.pass_seconds(RESYNC)
        made = [(each.verb, each.streaming) for each in self.source.requests[asked:]]
        assert made == [("watch", False)]

    def perform(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("gap", changes, history):
                self.happen_unseen(changes, history)
            case ("handler",):
                self.add_handler()
            case ("own put", name, value):
                self.write(name, value)
            case ("own delete", name):
                self.delete_what_is_read(name)
            case (accident,):
                ACCIDENTS[accident](self.source)
                if accident in LISTS:
                    self.relist()
            case (what, name, *value):
                self.change(what, name, *value)

    def happen_unseen(self, changes: list[Any], history: str) -> None:
        self.source.be_away()
        for change in changes:
            self.perform(change)
        if history != "kept":
            self.source.forget()
        if history == "forgotten in the list, too":
            self.source.forget_in_next_list()

    def change(self, what: str, name: str, value: int = 0) -> None:
        """Do one of `put`, `delete` and `replace`. A `lost` one is never delivered."""
        notify = not what.startswith("lost")
        if not what.endswith("put") and f"ns/{name}" in self.source.objects():
            self.source.delete(f"ns/{name}", notify=notify)
        if not what.endswith("delete"):
            self.happened.record(self.source.put(thing(name, value), notify=notify))

    def write(self, name: str, value: int) -> None:
        made = self.source.put(thing(name, value))
        self.happened.record(made)
        self.informer.observe_write(made)
        assert self.informer.reader.get(f"ns/{name}") == made, "an own write is not seen"

    def delete_what_is_read(self, name: str) -> None:
        key = f"ns/{name}"
        read, present = self.informer.reader.get(key), self.source.objects().get(key)
        if read is None or present is None or read.metadata.uid != present.metadata.uid:
            return  # not found, or a conflict
        self.source.delete(key)
        self.informer.observe_delete(read)
        assert self.informer.reader.get(key) is None, "an own deletion is not seen"
