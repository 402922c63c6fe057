from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from navarchos.client import NotFound, Resource, Selector
from navarchos.informers import Lister, NamespaceNotCached, UnknownIndex, field_index
from navarchos.informers.store import WritableStore
from navarchos.meta import ResourceVersion, key_of

Make = Callable[..., Any]


def values(obj: Any) -> list[str]:
    return [str(obj.value)]


def parities(obj: Any) -> list[str]:
    return ["odd" if obj.value % 2 else "even"]


@pytest.fixture
def lister(thing: Make, things: Resource[Any]) -> Lister[Any]:
    store = WritableStore[Any]({**field_index("value", values), **field_index("parity", parities)})
    for obj in (
        thing("a", 1, namespace="n1", labels={"role": "web"}),
        thing("b", 2, namespace="n1", labels={"role": "db"}),
        thing("a", 3, namespace="n2", labels={"role": "web"}),
        thing("c", 1, namespace="n2"),
    ):
        store.put(key_of(obj), obj, ResourceVersion("1"))
    return Lister(store, things)


def keys(found: list[Any]) -> list[str]:
    return [key_of(obj) for obj in found]


@pytest.mark.rule("LS-01")
def test_lists_are_limited_by_namespace_and_labels(lister: Lister[Any]) -> None:
    assert len(lister.list()) == len(lister.list(Selector.everything())) == 4
    assert lister.list(Selector.nothing()) == []
    assert keys(lister.list(namespace="n2")) == ["n2/a", "n2/c"]
    assert keys(lister.list(Selector.parse("role=web"), "n1")) == ["n1/a"]
    assert lister.list(namespace="nowhere") == []


@pytest.mark.rule("LS-03")
def test_negative_requirements_match_objects_without_the_label(lister: Lister[Any]) -> None:
    assert keys(lister.list(Selector.parse("role!=web"))) == ["n1/b", "n2/c"]
    assert keys(lister.list(Selector.parse("!role"))) == ["n2/c"]
    assert keys(lister.list(Selector.parse("role in (db,web),role notin (db)"))) == ["n1/a", "n2/a"]


@pytest.mark.rule("LS-01")
def test_a_selector_that_selects_nothing_finds_nothing(lister: Lister[Any]) -> None:
    assert lister.list(Selector.nothing()) == []
    assert len(lister.list(Selector.everything())) == 4


@pytest.mark.rule("LS-03")
def test_an_object_whose_type_lists_no_labels_has_none() -> None:
    """Such a projection cannot be selected by labels, but by their absence."""

    class Meta(msgspec.Struct, frozen=True):
        name: str = "a"
        namespace: str = "n1"
        uid: str = ""
        resource_version: str = "1"

    class Bare(msgspec.Struct, frozen=True):
        metadata: Meta = Meta()

    store = WritableStore[Any]()
    store.put("n1/a", Bare(), ResourceVersion("1"))
    lister = Lister(store, Resource("", "v1", "bares", "Bare", namespaced=True, type=Bare))
    assert lister.list(Selector.parse("role=web")) == []
    assert lister.list(Selector.parse("!role")) == [Bare()]


@pytest.mark.rule("LS-02")
def test_an_object_that_is_not_cached_is_not_found(lister: Lister[Any]) -> None:
    assert lister.get("a", "n2").value == 3
    assert lister.find("z", "n2") is None
    with pytest.raises(NotFound) as caught:
        lister.get("z", "n2")
    assert (caught.value.resource, caught.value.key, caught.value.status) == ("things", "n2/z", 404)


@pytest.mark.rule("LS-02")
def test_a_cluster_scoped_kind_has_no_namespaces(thing: Make) -> None:
    store = WritableStore[Any]()
    store.put("a", thing("a", namespace=""), ResourceVersion("1"))
    nodes = Resource("", "v1", "nodes", "Node", namespaced=False, type=type(thing("x")))
    assert Lister(store, nodes).get("a", "ignored").metadata.name == "a"


@pytest.mark.rule("IF-11")
def test_a_cache_of_one_namespace_finds_without_naming_it_and_refuses_others(
    lister: Lister[Any], things: Resource[Any]
) -> None:
    limited = Lister(lister._reader, things, namespaces=["n2"])
    assert limited.get("a").value == limited.get("a", "n2").value == 3
    for read in (limited, limited.with_copies()):
        with pytest.raises(NamespaceNotCached, match="things in namespace 'n1' are not cached"):
            read.get("a", "n1")


@pytest.mark.rule("LS-05")
def test_fields_are_looked_up_in_their_indexes(lister: Lister[Any]) -> None:
    assert keys(lister.list(fields={"value": "1"})) == ["n1/a", "n2/c"]
    assert keys(lister.list(fields={"value": "1"}, namespace="n2")) == ["n2/c"]
    assert keys(lister.list(fields={"parity": "odd", "value": "3"})) == ["n2/a"]
    assert keys(lister.list(Selector.parse("role"), fields={"value": "1"})) == ["n1/a"]
    assert keys(lister.by_index("field:value", "2")) == ["n1/b"]
    with pytest.raises(UnknownIndex) as caught:
        lister.list(fields={"size": "1"})
    assert caught.value.index == "field:size"


@pytest.mark.rule("LS-04")
def test_copies_are_private_and_instances_are_shared() -> None:
    pods = Resource("", "v1", "pods", "Pod", namespaced=False, type=dict[str, Any])
    store = WritableStore[dict[str, Any]]()
    store.put("a", {"metadata": {"name": "a", "labels": {"x": "1"}}}, ResourceVersion("1"))
    lister = Lister(store, pods)
    assert lister.get("a") is lister.list()[0] is lister.by_index("namespace", "")[0]
    for copied in (
        lister.with_copies().get("a"),
        lister.with_copies().list()[0],
        lister.with_copies().by_index("namespace", "")[0],
    ):
        copied["metadata"]["labels"]["x"] = "2"
    assert lister.list(Selector.parse("x=1")) == [lister.get("a")]
