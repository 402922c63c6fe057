"""The versioned store, compared with a model."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from navarchos.testing.apiserver.store import BucketId, Compacted, FutureVersion, ObjectStore

THINGS = BucketId("things", "")

Write = tuple[str, str, int | None]
writes = st.lists(
    st.tuples(st.sampled_from(["x", "x-y", ""]), st.sampled_from("abc"), st.none() | st.integers()),
    max_size=30,
)


def thing(namespace: str, name: str, value: int = 0) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "value": value}


def run(store: ObjectStore, operations: list[Write]) -> dict[int, dict[str, int]]:
    """Carry out writes; `None` deletes. Return the content at every version."""
    model: dict[str, int] = {}
    moments = {store.version: dict(model)}
    for namespace, name, value in operations:
        key = f"{namespace}/{name}" if namespace else name
        if value is not None:
            store.put(THINGS, thing(namespace, name, value))
            model[key] = value
        elif key in model:
            store.remove(THINGS, key)
            del model[key]
        moments[store.version] = dict(model)
    return moments


@given(writes)
def test_the_content_equals_the_model_in_key_order(operations: list[Write]) -> None:
    store = ObjectStore()
    moments = run(store, operations)
    held = {entry.key: entry.obj["value"] for entry in store.entries(THINGS)}
    assert held == moments[store.version]
    assert list(held) == sorted(held)


@given(writes)
def test_every_version_can_be_read_again(operations: list[Write]) -> None:
    store = ObjectStore()
    for version, content in run(store, operations).items():
        then = {e.key: e.obj["value"] for e in store.entries_at(THINGS, "", version)}
        assert then == content


@given(writes)
def test_the_log_replayed_from_any_version_ends_where_the_store_is(
    operations: list[Write],
) -> None:
    store = ObjectStore()
    moments = run(store, operations)
    for version, content in moments.items():
        replayed = dict(content)
        events, _, _ = store.events_since(THINGS, store.cursor(THINGS, version))
        for event in events:
            assert event.version > version
            if event.type == "DELETED":
                del replayed[event.entry.key]
            else:
                assert (event.entry.key in replayed) is (event.type == "MODIFIED")
                replayed[event.entry.key] = event.entry.obj["value"]
        assert replayed == moments[store.version]


def test_a_namespace_differs_from_one_with_a_longer_name() -> None:
    store = ObjectStore()
    for namespace in ("a", "a-b", "a0"):
        store.put(THINGS, thing(namespace, "x"))
    assert [entry.key for entry in store.entries(THINGS, "a")] == ["a/x"]


def test_an_entry_is_replaced_and_not_changed() -> None:
    store = ObjectStore()
    first = store.put(THINGS, thing("", "a", 1))
    raw = first.raw
    store.put(THINGS, thing("", "a", 2))
    assert (first.obj["value"], first.raw) == (1, raw)


def test_a_compacted_version_reports_the_oldest() -> None:
    store = ObjectStore()
    store.put(THINGS, thing("", "a"))
    old = store.version
    store.put(THINGS, thing("", "b"))
    store.compact()
    with pytest.raises(Compacted) as gone:
        store.cursor(THINGS, old)
    assert (gone.value.asked, gone.value.oldest) == (old, store.version)
    with pytest.raises(Compacted):
        store.entries_at(THINGS, "", old)


def test_a_version_in_the_future_reports_the_current_one() -> None:
    store = ObjectStore()
    with pytest.raises(FutureVersion) as future:
        store.entries_at(THINGS, "", 99)
    assert future.value.current == store.version


def test_a_cursor_before_the_history_is_compacted() -> None:
    store = ObjectStore(history=2)
    cursor = store.cursor(THINGS, store.version)
    for value in range(10):
        store.put(THINGS, thing("", "a", value))
    with pytest.raises(Compacted):
        store.events_since(THINGS, cursor)
