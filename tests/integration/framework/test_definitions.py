"""Custom kinds made from Python types, as an API server serves and guards them."""

import json
from typing import Any

import pytest
from tests.integration.framework.kinds import GIZMOS, Gizmo

from navarchos.client import BadRequest, Client, Invalid, ResourceClient


def test_omitted_fields_get_the_defaults_of_the_type(
    gizmos: ResourceClient[Gizmo], client: Client, namespace: str
) -> None:
    made = gizmos.create({"metadata": {"name": "a"}, "spec": {}}, namespace)
    assert made.spec == Gizmo().spec
    stored = client.resource(GIZMOS.projected(dict)).get("a", namespace)
    assert stored["spec"] == {"size": 1, "colour": "red"}, "no empty lists"


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"size": 0}, "spec.size", "greater than or equal to 1"),
        ({"size": 11}, "spec.size", "less than or equal to 10"),
        ({"size": "3"}, "spec.size", "must be of type integer"),
        ({"colour": 3}, "spec.colour", "must be of type string"),
        ({"copies": "a"}, "spec.copies", "must be of type array"),
        ({"copies": [1]}, "spec.copies[0]", "must be of type string"),
    ],
    ids=str,
)
def test_values_that_the_type_forbids_are_refused_with_their_field(
    gizmos: ResourceClient[Gizmo], namespace: str, spec: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(Invalid, match=words) as caught:
        gizmos.create({"metadata": {"name": "a"}, "spec": spec}, namespace)
    assert field in [cause.field for cause in caught.value.causes]


def test_a_field_that_the_type_does_not_have_is_dropped_or_refused_if_asked_to(
    gizmos: ResourceClient[Gizmo], client: Client, namespace: str
) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"colr": "green"}}
    with pytest.raises(BadRequest, match="colr"):
        gizmos.create(body, namespace, field_validation="Strict")
    gizmos.create(body, namespace, field_validation="Ignore")
    stored = client.resource(GIZMOS.projected(dict)).get("a", namespace)
    assert "colr" not in stored["spec"]


def test_spec_and_status_have_writers_of_their_own(
    gizmos: ResourceClient[Gizmo], namespace: str
) -> None:
    made = gizmos.create(
        {"metadata": {"name": "a"}, "spec": {}, "status": {"observedGeneration": 9}}, namespace
    )
    assert made.status.observed_generation == 0
    both = {"spec": {"size": 5}, "status": {"observedGeneration": 1}}
    after = gizmos.patch("a", both, namespace, subresource="status")
    assert (after.spec.size, after.status.observed_generation) == (1, 1)
    assert after.metadata.generation == 1
    after = gizmos.patch("a", {**both, "status": {"observedGeneration": 7}}, namespace)
    assert (after.spec.size, after.status.observed_generation) == (5, 1)
    assert after.metadata.generation == 2


def test_the_kind_is_discovered_with_its_columns(
    gizmos: ResourceClient[Gizmo], client: Client, namespace: str
) -> None:
    assert client.has_kind(GIZMOS)
    gizmos.create({"metadata": {"name": "a"}, "spec": {"size": 4}}, namespace)
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = json.loads(client.raw("GET", GIZMOS.path(namespace), headers=accept).body)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size"]
    assert [row["cells"] for row in table["rows"]] == [["a", 4]]
