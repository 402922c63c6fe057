import pytest
from tests.unit.runtime.conftest import THINGS, Thing, make_thing, owner

from navarchos.client import Resource
from navarchos.meta import Unstructured
from navarchos.runtime import EnqueueMapped, EnqueueObject, EnqueueOwners, Request

CLUSTERED = Resource("example.org", "v1", "things", "Thing", namespaced=False, type=Thing)
CORE = Resource("", "v1", "things", "Thing", namespaced=True, type=Thing)


@pytest.mark.rule("CT-21")
def test_an_object_asks_for_itself() -> None:
    assert list(EnqueueObject()(make_thing("a"))) == [Request("ns", "a")]
    assert list(EnqueueObject()(make_thing("a", namespace=""))) == [Request("", "a")]


@pytest.mark.rule("CT-22")
def test_owners_match_by_group_and_kind_in_any_version() -> None:
    child = make_thing(
        "child",
        owner_references=(
            owner("v1"),
            owner("v2", api_version="example.org/v2"),
            owner("other-kind", kind="Other"),
            owner("other-group", api_version="example.com/v1"),
            owner("core", api_version="v1"),
            owner("not-controller", controller=False),
        ),
    )
    names = [request.name for request in EnqueueOwners(THINGS)(child)]
    assert names == ["v1", "v2"]
    names = [request.name for request in EnqueueOwners(THINGS, controller_only=False)(child)]
    assert names == ["v1", "v2", "not-controller"]
    assert [request.name for request in EnqueueOwners(CORE)(child)] == ["core"]


@pytest.mark.rule("CT-22")
def test_owners_of_a_cluster_scoped_kind_have_no_namespace() -> None:
    child = make_thing("child", owner_references=(owner("a"),))
    assert list(EnqueueOwners(THINGS)(child)) == [Request("ns", "a")]
    assert list(EnqueueOwners(CLUSTERED)(child)) == [Request("", "a")]


@pytest.mark.rule("CT-22")
def test_an_object_without_owners_asks_for_nothing() -> None:
    assert list(EnqueueOwners(THINGS)(make_thing("child"))) == []
    bare: Unstructured = {"metadata": {"name": "child"}}
    assert list(EnqueueOwners(THINGS)(bare)) == []


@pytest.mark.rule("IF-06")
def test_owners_of_undecoded_objects_are_found_too() -> None:
    reference = {
        "apiVersion": "example.org/v1",
        "kind": "Thing",
        "name": "a",
        "uid": "uid-a",
        "controller": True,
    }
    child: Unstructured = {
        "metadata": {"name": "child", "namespace": "ns", "ownerReferences": [reference]}
    }
    assert list(EnqueueOwners(THINGS)(child)) == [Request("ns", "a")]


@pytest.mark.rule("CT-23")
def test_a_function_may_return_any_requests() -> None:
    mapping: EnqueueMapped[Thing] = EnqueueMapped(
        lambda thing: [Request("", thing.metadata.name), Request("x", "y")]
    )
    assert list(mapping(make_thing("a"))) == [Request("", "a"), Request("x", "y")]
