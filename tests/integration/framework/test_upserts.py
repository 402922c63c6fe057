"""Creating objects, or bringing the ones there are to the state wanted, on either server."""

from typing import Any

import pytest
from tests.contract.objects import pod

from navarchos.client import (
    Client,
    Conflict,
    Resource,
    ResourceClient,
    UpsertOutcome,
    create_or_patch,
    create_or_update,
)
from navarchos.client.options import ListOptions
from navarchos.errors import ConfigError
from navarchos.meta import Object

# A projection without data or status: a write must keep the fields that it does not list.
MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=Object)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=Object)

UPSERTS = pytest.mark.parametrize("upsert", [create_or_update, create_or_patch])


@pytest.fixture
def maps(client: Client, namespace: str) -> ResourceClient[Object]:
    return client.resource(MAPS).in_namespace(namespace)


@pytest.fixture
def pods(client: Client, namespace: str) -> ResourceClient[Object]:
    return client.resource(PODS).in_namespace(namespace)


def data(**values: str) -> Any:
    return lambda obj: obj.setdefault("data", {}).update(values)


@pytest.mark.rule("CL-01")
@pytest.mark.rule("CL-03")
@UPSERTS
def test_an_object_that_is_missing_is_created(upsert: Any, maps: ResourceClient[Object]) -> None:
    found = upsert(maps, "a", data(x="1"))
    assert found.outcome == UpsertOutcome.CREATED
    assert found.object["data"] == {"x": "1"}
    assert maps.projected(dict).get("a") == found.object


@pytest.mark.rule("CL-01")
@pytest.mark.rule("CL-03")
@UPSERTS
def test_an_object_that_differs_is_changed_and_keeps_the_rest(
    upsert: Any, maps: ResourceClient[Object]
) -> None:
    maps.create({"metadata": {"name": "a", "labels": {"l": "m"}}, "data": {"x": "1", "y": "2"}})
    found = upsert(maps, "a", data(x="3"))
    assert found.outcome == UpsertOutcome.UPDATED
    assert found.object["data"] == {"x": "3", "y": "2"}
    assert found.object["metadata"]["labels"] == {"l": "m"}


@pytest.mark.rule("CL-01")
@pytest.mark.rule("CL-03")
@UPSERTS
def test_an_object_that_is_as_wanted_is_not_written(
    upsert: Any, maps: ResourceClient[Object]
) -> None:
    created = upsert(maps, "a", data(x="1")).object
    found = upsert(maps, "a", data(x="1"))
    assert found.outcome == UpsertOutcome.UNCHANGED
    assert found.object == created


@pytest.mark.rule("CL-02")
@pytest.mark.parametrize("field", ["name", "namespace"])
@pytest.mark.parametrize("present", [False, True])
@UPSERTS
def test_an_object_that_is_renamed_or_moved_is_refused_and_nothing_written(
    upsert: Any, maps: ResourceClient[Object], field: str, present: bool
) -> None:
    if present:
        maps.create({"metadata": {"name": "a"}, "data": {"x": "1"}})

    def change(obj: dict[str, Any]) -> None:
        obj["data"] = {"x": "2"}
        obj["metadata"][field] = "another"

    with pytest.raises(ConfigError) as caught:
        upsert(maps, "a", change)
    assert (caught.value.name, caught.value.value) == (f"metadata.{field}", "another")
    whole = maps.projected(dict)
    assert [
        found["data"] for found in whole.list(options=ListOptions(limit=0)).items if "data" in found
    ] == ([{"x": "1"}] if present else [])


@UPSERTS
def test_a_concurrent_change_is_not_lost(upsert: Any, maps: ResourceClient[Object]) -> None:
    maps.create({"metadata": {"name": "a"}, "data": {"x": "1"}})

    def late(obj: dict[str, Any]) -> None:
        maps.patch("a", {"data": {"y": "2"}})
        obj["data"]["x"] = "3"

    with pytest.raises(Conflict):
        upsert(maps, "a", late)
    assert maps.projected(dict).get("a")["data"] == {"x": "1", "y": "2"}


@pytest.mark.rule("CL-03")
@pytest.mark.parametrize(
    ("label", "phase", "outcome"),
    [
        ("", "", "unchanged"),
        ("new", "", "updated"),
        ("new", "Running", "updatedStatus"),
        ("", "Running", "updatedStatusOnly"),
    ],
)
def test_the_status_is_patched_by_itself_and_only_if_it_differs(
    pods: ResourceClient[Object], label: str, phase: str, outcome: str
) -> None:
    pods.create(pod("p"))

    def change(obj: dict[str, Any]) -> None:
        if label:
            obj["metadata"]["labels"] = {"label": label}
        if phase:
            obj["status"]["phase"] = phase

    found = create_or_patch(pods, "p", change)
    assert found.outcome == outcome
    kept = pods.projected(dict).get("p")
    assert kept == found.object
    assert kept["metadata"].get("labels", {}).get("label", "") == label
    assert kept["status"]["phase"] == (phase or "Pending")
