"""Field ownership beyond the contract suite: sets by a model, versions, installed objects."""

from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from navarchos.testing.apiserver import ApiServer
from navarchos.testing.apiserver.ownership.fieldsets import (
    FieldSet,
    as_member,
    difference,
    intersection,
    path_text,
    paths,
    union,
    without,
)

Path = tuple[str, ...]

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])
MODELS = st.sets(st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple), max_size=8)


def as_set(model: set[Path]) -> FieldSet:
    """Build the set of some paths in the simplest way."""
    found: FieldSet = {}
    for path in sorted(model, key=len):
        node = found
        for element in path[:-1]:
            if element in node and not node[element]:
                node[element] = {".": {}}  # a member gets a part below it
            node = node.setdefault(element, {})
        node[path[-1]] = as_member(node.get(path[-1]))
    return found


def starts_with_one_of(path: Path, prefixes: set[Path]) -> bool:
    return any(path[: len(prefix)] == prefix for prefix in prefixes)


@given(MODELS, MODELS)
def test_sets_of_fields_equal_sets_of_paths(one: set[Path], other: set[Path]) -> None:
    left, right = as_set(one), as_set(other)
    assert set(paths(left)) == one
    assert set(paths(union(left, right))) == one | other
    assert set(paths(difference(left, right))) == one - other
    assert set(paths(intersection(left, right))) == one & other
    assert set(paths(without(left, right))) == {
        path for path in one if not starts_with_one_of(path, other)
    }
    assert (left, right) == (as_set(one), as_set(other)), "sets are never changed"


def test_paths_are_written_as_in_errors() -> None:
    path = ("f:spec", "f:ports", 'k:{"port":53,"protocol":"UDP"}', "f:tags", 'v:"a"')
    assert path_text(path) == '.spec.ports[port=53,protocol="UDP"].tags[="a"]'


# Over HTTP, with settings that the contract suite cannot make

LIST = {"type": "array", "items": {"type": "string"}}


def definition(*versions: str, **names: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"size": {"type": "integer"}, "names": {**LIST, **names}},
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "boxes", "kind": "Box", "singular": "box", "listKind": "BoxList"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[0],
                    "schema": {"openAPIV3Schema": schema},
                }
                for version in versions
            ],
        },
    }


class Boxes:
    """Applies boxes, and changes the definition of boxes."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._pool = urllib3.PoolManager()

    def apply(self, version: str, manager: str, **spec: object) -> Any:
        body = {
            "apiVersion": f"example.com/{version}",
            "kind": "Box",
            "metadata": {"name": "b"},
            "spec": spec,
        }
        return self._pool.request(
            "PATCH",
            f"{self._server.url}/apis/example.com/{version}/boxes/b?fieldManager={manager}",
            json=body,
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    def define(self, crd: dict[str, Any]) -> None:
        path = "apis/apiextensions.k8s.io/v1/customresourcedefinitions/boxes.example.com"
        reply = self._pool.request(
            "PATCH",
            f"{self._server.url}/{path}",
            json={"spec": crd["spec"]},
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert reply.status == 200, reply.data

    @property
    def managers(self) -> dict[str, Any]:
        found = self._server.get("boxes", "b", group="example.com")["metadata"]
        return {e["manager"]: (e["apiVersion"], e["fieldsV1"]) for e in found["managedFields"]}

    def close(self) -> None:
        self._pool.clear()


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=[definition("v1", "v2")]) as server:
        yield server


@pytest.fixture
def boxes(server: ApiServer) -> Iterator[Boxes]:
    boxes = Boxes(server)
    yield boxes
    boxes.close()


def test_fields_of_an_entry_stay_in_its_version(boxes: Boxes) -> None:
    assert boxes.apply("v1", "one", size=1, names=["a"]).status == 201
    refused = boxes.apply("v2", "two", size=2)
    assert refused.status == 409
    assert boxes.apply("v2", "two&force=true", size=2).status == 200
    assert boxes.managers == {
        "one": ("example.com/v1", {"f:spec": {"f:names": {}}}),
        "two": ("example.com/v2", {"f:spec": {"f:size": {}}}),
    }


def test_an_applier_in_two_versions_has_one_entry(boxes: Boxes) -> None:
    boxes.apply("v1", "one", size=1, names=["a"])
    assert boxes.apply("v2", "one", size=1).json()["spec"] == {"size": 1}
    assert boxes.managers == {"one": ("example.com/v2", {"f:spec": {"f:size": {}}})}


def test_a_manager_in_a_removed_version_owns_nothing(boxes: Boxes) -> None:
    boxes.apply("v2", "one", size=1)
    boxes.define(definition("v1"))
    assert boxes.apply("v1", "two", size=2).status == 200
    assert [*boxes.managers] == ["two"]


def test_a_list_that_became_atomic_has_one_owner(server: ApiServer, boxes: Boxes) -> None:
    boxes.define(definition("v1", **{"x-kubernetes-list-type": "set"}))
    boxes.apply("v1", "one", names=["a"])
    assert boxes.managers["one"][1] == {"f:spec": {"f:names": {'v:"a"': {}}}}
    boxes.define(definition("v1"))
    reply = boxes.apply("v1", "two", names=["b"])
    assert [cause["field"] for cause in reply.json()["details"]["causes"]] == [".spec.names"]


def test_an_installed_object_has_no_owners_until_an_apply(server: ApiServer, boxes: Boxes) -> None:
    box = {"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "b"}}
    server.install({**box, "spec": {"size": 1}})
    assert "managedFields" not in server.get("boxes", "b", group="example.com")["metadata"]
    assert boxes.apply("v1", "one", names=["a"]).status == 200
    assert boxes.managers == {
        "before-first-apply": ("example.com/v1", {"f:spec": {".": {}, "f:size": {}}}),
        "one": ("example.com/v1", {"f:spec": {"f:names": {}}}),
    }


def test_direct_reads_return_plain_json(server: ApiServer, boxes: Boxes) -> None:
    boxes.apply("v1", "one", size=1)
    [listed] = server.list("boxes", group="example.com")
    assert listed == server.get("boxes", "b", group="example.com")
    [entry] = listed["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:spec": {"f:size": {}}}
