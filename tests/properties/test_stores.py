"""A store and its overlay, each compared with a simple model."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.trial import Thing, by_value, check_index, names, thing, values, weighted
from tests.seeds import runs

from navarchos.informers.overlay import Overlay
from navarchos.informers.store import WritableStore
from navarchos.meta import ResourceVersion, key_of
from navarchos.testing import FakeClock

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
@settings(max_examples=runs(500))
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
                assert store.replace(objects, version).former == model
                model = objects
            case ("index",) if "value" not in store.index_names():
                store.add_indexers({"value": by_value})
        assert store.snapshot() == model
        for index in store.index_names():
            check_index(store, index, by_value if index == "value" else lambda _: ["ns"])


# Own writes: a server, a lagging watch, and a writer

# Two names only, because faults need several operations on one of them.
few = st.sampled_from(["a", "b"])
moves = st.lists(
    weighted(
        {
            st.tuples(st.just("write"), few, values): 4,
            st.tuples(st.just("delete"), few): 3,
            st.tuples(st.just("others write"), few, values): 1,
            st.tuples(st.just("others delete"), few): 1,
            st.just(("watch",)): 4,
            st.just(("list",)): 1,
            st.just(("bookmark",)): 2,
            st.just(("report",)): 2,
            st.just(("observe late",)): 2,
        }
    ),
    min_size=10,
    max_size=40,
)


class LaggingWorld:
    """The state of a server, the part that the watch has delivered, and the observed writes."""

    def __init__(self) -> None:
        self.truth: dict[str, Thing] = {}
        self.queue: list[tuple[str, Thing]] = []
        self.version = 1
        self.untold: list[tuple[str, Thing]] = []  # responses that have not arrived yet
        self.hidden: set[str] = set()  # uids of objects that were read and then deleted
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
            # A deletion returns no object: the writer uses the object that it read before.
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

    def bookmark(self) -> None:
        """Deliver a bookmark with the version before the next event."""
        version = self.version
        if self.queue:
            version = int(self.queue[0][1].metadata.resource_version) - 1
        self.overlay.bookmark(ResourceVersion(str(version)))

    def list(self) -> None:
        self.queue.clear()
        self.overlay.replace(dict(self.truth), ResourceVersion(str(self.version)))

    def report(self, *, backwards: bool = False) -> None:
        """Deliver the responses, for several threads possibly in reverse order."""
        for kind, obj in reversed(self.untold) if backwards else self.untold:
            if kind == "write":
                self.overlay.observe_write(obj)
                continue
            shown = self.overlay.get(key_of(obj))
            if shown is not None and shown.metadata.uid == obj.metadata.uid:
                self.hidden.add(obj.metadata.uid)
            self.overlay.observe_delete(obj)
        self.untold.clear()


@given(moves=moves)
@settings(max_examples=runs(500))
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
            case ("bookmark",):
                world.bookmark()
            case ("report" | "observe late" as when,):
                world.report(backwards=when == "observe late")
        for key, obj in world.overlay.snapshot().items():
            seen = int(obj.metadata.resource_version)
            assert seen >= latest.get(key, 0), f"{key} went back in time"
            latest[key] = seen
            assert obj.metadata.uid not in world.hidden, f"{key} was deleted and came back"
    world.report()
    while world.queue:
        world.watch()
    assert world.overlay.snapshot() == world.truth
    assert world.overlay._written == {}, "no own write remains once the watch has caught up"
