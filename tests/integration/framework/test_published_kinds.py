"""The published definitions on an API server: its defaults and its refusals."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.framework.defining import defined
from tests.servers import Served

import navarchos.cli
from navarchos.client import Client, Invalid
from navarchos.meta import identity_of
from navarchos.operator.api.v1alpha1 import NODE_DRAINS, NODE_REPLACEMENTS, NODE_ROLLOUTS
from navarchos.operator.api.v1alpha1.definitions import manifests

EXAMPLE = Path(navarchos.cli.__file__).parent / "examples" / "rollout.yml"


KINDS = (NODE_ROLLOUTS, NODE_REPLACEMENTS, NODE_DRAINS)


@pytest.fixture(scope="module", autouse=True)
def kinds(served: Served) -> Iterator[None]:
    """Let the server serve them."""
    by_name = {identity_of(manifest).name: manifest for manifest in manifests()}
    definitions = {kind: by_name[str(kind)] for kind in KINDS}
    with Client(served.config) as client, defined(client, definitions):
        yield


def created(client: Client, body: dict[str, Any]) -> Any:
    """The object as the server stored it, all fields."""
    kind = {r.kind: r for r in KINDS}[body["kind"]]
    metadata = {"generateName": "test-"} | body.get("metadata", {})
    return client.resource(kind.projected(dict)).create(
        body | {"metadata": metadata}, field_validation="Strict"
    )


def rollout(spec: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "NodeRollout", "spec": spec}


def test_the_example_of_2019_is_accepted_as_it_is(client: Client) -> None:
    stored = created(client, yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))
    assert stored["metadata"]["name"].startswith("rollout-")
    priorities = [entry["replacement"]["priority"] for entry in stored["spec"]["nodeSelectors"]]
    assert priorities == [30, 20, 10]


def test_defaults_are_filled_in_all_the_way_down(client: Client) -> None:
    spec = created(client, rollout({"nodeNames": [{"name": "n1"}]}))["spec"]
    assert spec["nodeNames"] == [{"name": "n1", "replacement": {"priority": 0}}]
    assert spec["strategy"] == {
        "maxConcurrent": 1,
        "maxFailures": 0,
        "retries": 1,
        "onNodeFailure": "Uncordon",
        "settleSeconds": 0,
        "pendingPods": "Evicted",
        "pendingPodsTimeoutSeconds": 600,
        "controlPlane": "Guard",
        "taintWaitingNodes": False,
    }
    assert spec["drain"]["timeoutSeconds"] == 900
    assert spec["paused"] is False


def test_defaults_of_the_server_equal_those_of_the_types(client: Client) -> None:
    """The same defaults apply where no server did it: in plans, in tests."""
    stored = client.resource(NODE_ROLLOUTS).create({"metadata": {"generateName": "x-"}})
    assert stored.spec == NODE_ROLLOUTS.type().spec


def test_status_has_no_defaults(client: Client) -> None:
    stored = created(client, rollout({"nodeNames": [{"name": "n1"}]}))
    assert "status" not in stored


@pytest.mark.rule("N-21")
@pytest.mark.parametrize("entry", [{}, {"replacement": {"priority": 3}}, {"matchLabels": {}}])
def test_a_selector_for_all_nodes_must_be_explicit(client: Client, entry: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="matchAll: true"):
        created(client, rollout({"nodeSelectors": [entry]}))
    assert created(client, rollout({"nodeSelectors": [entry | {"matchAll": True}]}))


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"maxConcurrent": "10"}, "percentage from 0% to 100%"),
        ({"maxConcurrent": "101%"}, "percentage from 0% to 100%"),
        ({"maxFailures": -1}, "number from 0"),
        ({"onNodeFailure": "Panic"}, "Unsupported value"),
        ({"retries": 101}, "less than or equal to 100"),
        ({"settleSeconds": "ten"}, "must be of type integer"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_place(
    client: Client, strategy: dict[str, Any], message: str
) -> None:
    with pytest.raises(Invalid, match=message) as caught:
        created(client, rollout({"nodeNames": [{"name": "n1"}], "strategy": strategy}))
    assert f"spec.strategy.{next(iter(strategy))}" in str(caught.value)


@pytest.mark.parametrize("value", [3, 0, "0%", "25%", "100%"])
def test_counts_are_numbers_or_percentages(client: Client, value: object) -> None:
    spec = {"nodeNames": [{"name": "n1"}], "strategy": {"maxConcurrent": value}}
    assert created(client, rollout(spec))["spec"]["strategy"]["maxConcurrent"] == value


def test_a_label_operator_that_does_not_exist_is_refused(client: Client) -> None:
    expression = {"key": "zone", "operator": "Near", "values": ["a"]}
    with pytest.raises(Invalid, match="Unsupported value"):
        created(client, rollout({"nodeSelectors": [{"matchExpressions": [expression]}]}))


def test_a_field_that_does_not_exist_is_refused_when_asked_to_be_strict(client: Client) -> None:
    answer = client.raw(
        "POST",
        f"{NODE_ROLLOUTS.path()}?fieldValidation=Strict",
        body=json.dumps(
            {
                "apiVersion": NODE_ROLLOUTS.api_version,
                "kind": "NodeRollout",
                "metadata": {"generateName": "x-"},
                "spec": {"strategy": {"maxConcurent": 2}},
            }
        ).encode(),
    )
    assert answer.status == 400
    assert b"maxConcurent" in answer.body


@pytest.mark.parametrize("resource", [NODE_REPLACEMENTS, NODE_DRAINS], ids=str)
def test_the_identity_of_the_node_never_changes(client: Client, resource: Any) -> None:
    objects = client.resource(resource)
    name = objects.create(
        {"metadata": {"generateName": "x-"}, "spec": {"nodeName": "n1"}}
    ).metadata.name
    with pytest.raises(Invalid, match="nodeName is immutable"):
        objects.patch(name, {"spec": {"nodeName": "n2"}})
    filled_in = objects.patch(name, {"spec": {"nodeUID": "u1"}})
    assert filled_in.spec.node_uid == "u1"
    with pytest.raises(Invalid, match="nodeUID is immutable"):
        objects.patch(name, {"spec": {"nodeUID": "u2"}})


@pytest.mark.parametrize("resource", [NODE_REPLACEMENTS, NODE_DRAINS], ids=str)
def test_a_node_must_be_named(client: Client, resource: Any) -> None:
    with pytest.raises(Invalid, match=r"spec\.nodeName"):
        client.resource(resource).create({"metadata": {"generateName": "x-"}, "spec": {}})


@pytest.mark.parametrize("resource", [NODE_ROLLOUTS, NODE_REPLACEMENTS, NODE_DRAINS], ids=str)
def test_columns_are_served(client: Client, resource: Any) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    answer = client.raw("GET", resource.path(), headers={"Accept": accept})
    table = json.loads(answer.body)
    assert table["kind"] == "Table"
    assert "Phase" in [column["name"] for column in table["columnDefinitions"]]
