from collections.abc import Callable
from typing import Any

import pytest
from tests.informers import present

from navarchos.informers import IndexConflict, IndexFailed, UnknownIndex
from navarchos.informers.store import NAMESPACE_INDEX, WritableStore
from navarchos.meta import ResourceVersion

Make = Callable[..., Any]


def version(number: int) -> ResourceVersion:
    return ResourceVersion(str(number))


def parity(obj: Any) -> list[str]:
    return ["even" if obj.value % 2 == 0 else "odd"]


@pytest.fixture
def store(thing: Make) -> WritableStore[Any]:
    store = WritableStore[Any]({"parity": parity})
    for number in range(4):
        store.put(f"ns/t{number}", thing(f"t{number}", number), version(number))
    return store


@pytest.mark.rule("ST-04")
def test_put_overwrites_and_returns_what_was_there(store: WritableStore[Any], thing: Make) -> None:
    assert present(store.put("ns/t0", thing("t0", 8), version(9))).value == 0
    assert store.put("ns/new", thing("new"), version(10)) is None
    assert present(store.get("ns/t0")).value == 8
    assert len(store) == 5


@pytest.mark.rule("ST-04")
def test_removing_an_unknown_key_is_not_an_error(store: WritableStore[Any]) -> None:
    assert store.remove("ns/none") is None
    assert len(store) == 4


@pytest.mark.rule("ST-04")
def test_a_falsy_object_is_not_an_absent_one() -> None:
    store = WritableStore[dict[str, Any]]()
    empty_labels = {"metadata": {"name": "a"}}
    store.put("a", empty_labels, version(1))
    assert "a" in store
    assert "b" not in store
    assert store.get("a") is empty_labels


@pytest.mark.rule("ST-04")
def test_snapshots_do_not_change_with_the_store(store: WritableStore[Any]) -> None:
    keys, values = store.keys(), store.values()
    store.remove("ns/t0")
    assert len(keys) == len(values) == 4


@pytest.mark.rule("ST-05")
def test_readers_get_the_stored_instance(store: WritableStore[Any]) -> None:
    assert store.get("ns/t1") is store.values()[1] is store.by_index("parity", "odd")[0]


@pytest.mark.rule("ST-06")
def test_one_object_may_stand_under_many_values(thing: Make) -> None:
    store = WritableStore[Any]({"digits": lambda obj: list(str(obj.value))})
    store.put("ns/a", thing("a", 12), version(1))
    store.put("ns/b", thing("b", 23), version(2))
    assert store.index_keys("digits", "2") == ["ns/a", "ns/b"]
    assert [obj.metadata.name for obj in store.by_index("digits", "1")] == ["a"]
    assert sorted(store.index_values("digits")) == ["1", "2", "3"]
    # The union over the values of an object, each object once.
    assert [obj.metadata.name for obj in store.index("digits", thing("x", 123))] == ["a", "b"]


@pytest.mark.rule("ST-06")
def test_an_unknown_value_is_empty_and_an_unknown_index_an_error(store: WritableStore[Any]) -> None:
    assert store.by_index("parity", "neither") == []
    with pytest.raises(UnknownIndex) as caught:
        store.by_index("party", "odd")
    assert caught.value.index == "party"
    assert caught.value.known == ("namespace", "parity")
    with pytest.raises(UnknownIndex):
        store.index_values("party")
    with pytest.raises(UnknownIndex):
        store.index("party", store.get("ns/t0"))


@pytest.mark.rule("ST-07")
def test_an_update_moves_the_key_between_values(store: WritableStore[Any], thing: Make) -> None:
    store.put("ns/t0", thing("t0", 1), version(9))
    assert store.index_keys("parity", "odd") == ["ns/t1", "ns/t3", "ns/t0"]
    assert store.index_keys("parity", "even") == ["ns/t2"]


@pytest.mark.rule("ST-08")
def test_a_value_without_keys_is_forgotten(store: WritableStore[Any]) -> None:
    store.remove("ns/t1")
    assert sorted(store.index_values("parity")) == ["even", "odd"]
    store.remove("ns/t3")
    assert store.index_values("parity") == ["even"]


@pytest.mark.rule("ST-09")
def test_an_index_may_be_added_over_existing_objects(store: WritableStore[Any]) -> None:
    store.add_indexers({"value": lambda obj: [str(obj.value)]})
    assert store.index_keys("value", "3") == ["ns/t3"]


@pytest.mark.rule("ST-09")
def test_a_name_that_is_taken_adds_nothing(store: WritableStore[Any]) -> None:
    with pytest.raises(IndexConflict) as caught:
        store.add_indexers({"fresh": parity, "parity": parity})
    assert caught.value.names == ("parity",)
    assert store.index_names() == ["namespace", "parity"]


@pytest.mark.rule("ST-10")
def test_replace_swaps_content_and_indexes(store: WritableStore[Any], thing: Make) -> None:
    replaced = store.replace({"ns/x": thing("x", 5)}, version(20))
    assert replaced.content == store.snapshot()
    assert sorted(replaced.former) == ["ns/t0", "ns/t1", "ns/t2", "ns/t3"]
    assert store.keys() == store.index_keys("parity", "odd") == ["ns/x"]
    assert store.index_values("parity") == ["odd"]


@pytest.mark.rule("ST-11")
def test_every_store_is_indexed_by_namespace(store: WritableStore[Any], thing: Make) -> None:
    store.put("alone", thing("alone", namespace=""), version(5))
    assert store.index_keys(NAMESPACE_INDEX, "") == ["alone"]
    assert len(store.index_keys(NAMESPACE_INDEX, "ns")) == 4


@pytest.mark.rule("ST-12")
def test_an_index_function_that_raises_leaves_everything_as_it_was(thing: Make) -> None:
    def picky(obj: Any) -> list[str]:
        return [str(10 // obj.value)]

    store = WritableStore[Any]({"picky": picky})
    store.put("ns/a", thing("a", 5), version(1))
    with pytest.raises(IndexFailed) as caught:
        store.put("ns/a", thing("a", 0), version(2))
    assert (caught.value.index, caught.value.key) == ("picky", "ns/a")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert store.keys() == store.index_keys("picky", "2") == ["ns/a"]
    assert store.resource_version == "1"


@pytest.mark.rule("ST-12")
def test_a_list_is_stored_without_what_cannot_be_indexed_and_that_stays_as_it_was(
    thing: Make,
) -> None:
    store = WritableStore[Any]({"picky": lambda obj: [str(10 // obj.value)]})
    store.put("ns/a", thing("a", 5), version(1))
    store.put("ns/gone", thing("gone", 5), version(2))
    listed = {f"ns/{name}": thing(name, value) for name, value in [("a", 0), ("b", 0), ("c", 1)]}
    former, content, failed = store.replace(listed, version(3))
    assert [(error.index, error.key) for error in failed] == [("picky", "ns/a"), ("picky", "ns/b")]
    assert sorted(former) == ["ns/a", "ns/gone"]
    assert {key: obj.value for key, obj in content.items()} == {"ns/c": 1, "ns/a": 5}
    assert store.snapshot() == content
    assert sorted(store.index_values("picky")) == ["10", "2"]
    assert store.index_keys("picky", "2") == ["ns/a"]
    assert store.resource_version == "3"


@pytest.mark.rule("ST-12")
def test_kept_keys_count_only_if_the_list_does_not_have_them(
    store: WritableStore[Any], thing: Make
) -> None:
    content = store.replace({"ns/t0": thing("t0", 8)}, version(9), keep=["ns/t0", "ns/t1", "ns/x"])
    assert {key: obj.value for key, obj in content.content.items()} == {"ns/t0": 8, "ns/t1": 1}
    assert store.index_keys("parity", "odd") == ["ns/t1"]


@pytest.mark.rule("ST-12")
def test_no_index_function_keeps_an_object_from_being_removed_or_replaced(thing: Make) -> None:
    """An index function that reads more than the object, or an object changed in place."""
    moody = [False]

    def index(obj: Any) -> list[str]:
        if moody[0] and obj.value < 10:
            raise RuntimeError("not in the mood")
        return [str(obj.value), "all"]

    store = WritableStore[Any]({"moody": index})
    for number, name in enumerate("abcd"):
        store.put(f"ns/{name}", thing(name, number), version(number + 1))
    moody[0] = True
    assert present(store.remove("ns/a")).value == 0
    assert present(store.put("ns/b", thing("b", 10), version(5))).value == 1
    assert sorted(store.index_keys("moody", "all")) == ["ns/b", "ns/c", "ns/d"]
    assert sorted(store.index_values("moody")) == ["10", "2", "3", "all"]
    store.replace({}, version(6), keep=["ns/c"])
    assert sorted(store.index_values("moody")) == ["2", "all"]
    assert store.by_index("moody", "2") == store.values()


@pytest.mark.rule("ST-13")
def test_the_store_remembers_the_version_it_absorbed_last(thing: Make) -> None:
    store = WritableStore[Any]()
    assert store.resource_version == ""
    store.replace({"ns/a": thing("a")}, version(10))
    store.put("ns/b", thing("b"), version(12))
    store.remove("ns/b", version(13))
    assert store.resource_version == "13"
    store.remove("ns/a")
    assert store.resource_version == "13"
    store.position.advance(version(11))
    assert store.resource_version == "11", "versions are opaque here: no maximum is taken"
