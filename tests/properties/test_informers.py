"""Whatever the server and the network do, the cache ends up right and handlers hear it right."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from navarchos.client import Resource, WatchExpired
from navarchos.client.errors import error_from_status
from navarchos.client.status import Status
from navarchos.informers import SharedInformer, Store, Tombstone, deletion_key
from navarchos.informers.overlay import Overlay
from navarchos.informers.store import WritableStore
from navarchos.meta import Object, ObjectMeta, ResourceVersion, key_of
from navarchos.testing import FakeClock
from navarchos.testing.source import FakeSource


class Thing(Object, frozen=True):
    value: int = 0


THINGS = Resource("", "v1", "things", "Thing", namespaced=True, type=Thing)

names = st.sampled_from(["a", "b", "c", "d"])
values = st.integers(0, 2)


def thing(name: str, value: int, **metadata: Any) -> Thing:
    return Thing(metadata=ObjectMeta(name=name, namespace="ns", **metadata), value=value)


def by_value(obj: Thing) -> list[str]:
    return [str(obj.value), "even" if obj.value % 2 == 0 else "odd"]


# The server and the network

puts = st.tuples(st.just("put"), names, values, st.booleans())
deletes = st.tuples(st.just("delete"), names, st.booleans())
accidents = st.sampled_from(
    ["end", "break", "expire", "error", "busy", "compact", "bookmark", "relist", "refuse"]
)
# After some steps the informer gets the time to take notice, after others it does not.
steps = st.lists(
    st.tuples(st.one_of(puts, deletes, st.tuples(accidents)), st.sampled_from([None, 0, 0, 2])),
    max_size=25,
)


class History:
    """What was true of each object, in order, and what a handler heard of it."""

    def __init__(self) -> None:
        self.happened: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.heard: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.alive: set[str] = set()

    def record(self, obj: Thing) -> None:
        self.happened[key_of(obj)].append((obj.metadata.resource_version, obj.value))

    def on_add(self, obj: Thing, is_in_initial_list: bool) -> None:
        key = key_of(obj)
        assert key not in self.alive, f"{key} was added twice"
        self.alive.add(key)
        self.heard[key].append((obj.metadata.resource_version, obj.value))

    def on_update(self, old: Thing, new: Thing) -> None:
        key = key_of(new)
        assert key in self.alive, f"{key} was updated before it was added"
        assert self.heard[key][-1] == (old.metadata.resource_version, old.value)
        if old.metadata.resource_version != new.metadata.resource_version:
            self.heard[key].append((new.metadata.resource_version, new.value))

    def on_delete(self, obj: Thing | Tombstone[Thing]) -> None:
        key = deletion_key(obj)
        assert key in self.alive, f"{key} was deleted twice, or never added"
        self.alive.remove(key)

    def check(self) -> None:
        for key, heard in self.heard.items():
            rest = iter(self.happened[key])
            assert all(state in rest for state in heard), f"{key}: {heard} is no subsequence"


def error(code: int, reason: str) -> Exception:
    return error_from_status(Status(code=code, reason=reason, message=reason))


def perform(source: FakeSource[Thing], history: History, step: tuple[Any, ...]) -> None:
    match step:
        case ("put", name, value, notify):
            history.record(source.put(thing(name, value), notify=notify))
        case ("delete", name, notify):
            if f"ns/{name}" in source.objects():
                source.delete(f"ns/{name}", notify=notify)
        case (accident,):
            happen(source, accident)


def happen(source: FakeSource[Thing], accident: str) -> None:
    match accident:
        case "end":
            source.end_watches()
        case "break":
            source.break_watches()
        case "expire":
            source.fail_watches(WatchExpired("things", "too old"))
        case "error":
            source.fail_watches(error(500, "InternalError"))
        case "busy":
            source.fail("watch", error(429, "TooManyRequests"))
        case "refuse":
            source.fail("watch", error(500, "InternalError"))
            source.fail("list", error(500, "InternalError"))
        case "compact":
            source.pass_time()
            source.compact()
        case "bookmark":
            source.bookmark()


@contextmanager
def running(informer: SharedInformer[Thing]) -> Iterator[None]:
    informer.start()
    try:
        yield
    finally:
        informer.stop()
        assert informer.join()


@given(before=st.lists(puts, max_size=4), steps=steps, streaming=st.booleans())
@settings(max_examples=150)
def test_the_cache_ends_up_with_the_servers_list(
    before: list[Any], steps: list[Any], streaming: bool
) -> None:
    """Events, cut watches, forgotten events, compactions, refusals, relists: any of them."""
    clock = FakeClock()
    source, history = FakeSource(THINGS, clock=clock), History()
    for step in before:
        perform(source, history, step)
    informer = SharedInformer(
        source, clock=clock, streaming=streaming, rand=lambda: 0.0, indexers={"value": by_value}
    )
    informer.add_handler(history)
    with running(informer):
        for step, seconds in steps:
            if step == ("relist",):
                informer._reflector.relist(source.version)
            perform(source, history, step)
            if seconds is not None:
                clock.settle()
                clock.advance(seconds)
        # However it went, one more list is enough to be right again.
        source._failures.list.clear()
        source._failures.watch.clear()
        clock.settle()
        clock.advance(120)  # no pause is longer
        clock.settle()
        informer._reflector.relist(source.version)
        clock.settle()
        assert informer.store.snapshot() == source.objects()
        check_index(informer.store, "value", by_value)
        assert history.alive == set(source.objects())
        for key, obj in source.objects().items():
            assert history.heard[key][-1] == (obj.metadata.resource_version, obj.value)
        history.check()


def check_index(store: Store[Thing], index: str, of: Callable[[Thing], list[str]]) -> None:
    scan: dict[str, set[str]] = defaultdict(set)
    for key, obj in store.snapshot().items():
        for value in of(obj):
            scan[value].add(key)
    found = {value: set(store.index_keys(index, value)) for value in store.index_values(index)}
    assert found == scan


# The store alone, against a plain dict

changes = st.lists(
    st.one_of(
        st.tuples(st.just("put"), names, values),
        st.tuples(st.just("remove"), names),
        st.tuples(st.just("replace"), st.dictionaries(names, values)),
        st.tuples(st.just("index")),
    ),
    max_size=30,
)


@given(changes=changes)
@settings(max_examples=200)
def test_a_store_equals_a_dict_and_its_indexes_a_full_scan(changes: list[Any]) -> None:
    store, model = WritableStore[Thing](), dict[str, Thing]()
    for number, change in enumerate(changes):
        version = ResourceVersion(str(number))
        match change:
            case ("put", name, value):
                obj = thing(name, value)
                assert store.put(name, obj, version) is model.get(name)
                model[name] = obj
            case ("remove", name):
                assert store.remove(name) is model.pop(name, None)
            case ("replace", content):
                objects = {name: thing(name, value) for name, value in content.items()}
                assert store.replace(objects, version) == model
                model = objects
            case ("index",) if "value" not in store.index_names():
                store.add_indexers({"value": by_value})
        assert store.snapshot() == model
        for index in store.index_names():
            check_index(store, index, by_value if index == "value" else lambda _: ["ns"])


# Reading one's own writes: a server, a watch that lags, and a writer

moves = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "others write"]), names, values),
        st.tuples(st.sampled_from(["delete", "others delete"]), names),
        st.tuples(st.sampled_from(["watch", "watch", "list", "bookmark", "tell", "tell"])),
    ),
    max_size=40,
)


class LaggingWorld:
    """A server's truth, what the watch has shown of it, and what was told of own writes."""

    def __init__(self) -> None:
        self.truth: dict[str, Thing] = {}
        self.queue: list[tuple[str, Thing]] = []
        self.version = 1
        self.untold: list[tuple[str, Thing]] = []  # answers that are still on their way
        self.overlay = Overlay(WritableStore[Thing](), clock=FakeClock())

    def change(self, name: str, value: int | None, *, own: bool) -> None:
        key = f"ns/{name}"
        known = self.truth.get(key)
        if value is None and known is None:
            return
        self.version += 1
        uid = known.metadata.uid if known else f"uid-{self.version}"
        shown = value if value is not None else known.value if known else 0
        stamp = ResourceVersion(str(self.version))
        obj = thing(name, shown, uid=uid, resource_version=stamp)
        self.queue.append(("DELETED" if value is None else "PUT", obj))
        if value is None:
            del self.truth[key]
        else:
            self.truth[key] = obj
        if own:
            # A deletion answers nothing: the writer has what it read before.
            self.untold.append(("delete", known) if value is None and known else ("write", obj))

    def watch(self) -> None:
        if not self.queue:
            return
        kind, obj = self.queue.pop(0)
        version = obj.metadata.resource_version
        if kind == "DELETED":
            self.overlay.remove(key_of(obj), version)
        else:
            self.overlay.put(key_of(obj), obj, version)

    def list(self) -> None:
        self.queue.clear()
        self.overlay.replace(dict(self.truth), ResourceVersion(str(self.version)))

    def tell(self) -> None:
        for kind, obj in self.untold:
            (self.overlay.observe_delete if kind == "delete" else self.overlay.observe_write)(obj)
        self.untold.clear()


@given(moves=moves)
@settings(max_examples=200)
def test_reads_never_fall_behind_own_writes_and_end_up_with_the_truth(moves: list[Any]) -> None:
    world = LaggingWorld()
    latest: dict[str, int] = {}
    for move in moves:
        match move:
            case (("write" | "others write") as who, name, value):
                world.change(name, value, own=who == "write")
            case (("delete" | "others delete") as who, name):
                world.change(name, None, own=who == "delete")
            case ("watch",):
                world.watch()
            case ("list",):
                world.list()
            case ("bookmark",) if not world.queue:
                world.overlay.bookmark(ResourceVersion(str(world.version)))
            case ("tell",):
                world.tell()
        for key, obj in world.overlay.snapshot().items():
            seen = int(obj.metadata.resource_version)
            assert seen >= latest.get(key, 0), f"{key} went back in time"
            latest[key] = seen
    world.tell()
    while world.queue:
        world.watch()
    assert world.overlay.snapshot() == world.truth
    assert world.overlay._written == {}, "nothing stays once the watch has caught up"
