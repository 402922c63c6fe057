"""Gates on real objects, through a whole manager: no node starts while a gate is closed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.waiting import wait_for

from navarchos.client import Resource, ResourceClient
from navarchos.operator.names import JOINING_TAINT
from navarchos.testing.definitions import install_definitions, uninstall_definitions

pytestmark = pytest.mark.timeout(240)

CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False, type=dict
)

HEALTH = "jsonpath={.metadata.labels.health}=ok"


NO_PATH = "for='jsonpath={.a[x]}=1': the path cannot be read from '[x]'"


def gate_on(case: Case, **fields: Any) -> dict[str, Any]:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": case.name}
    return {"name": "web", "object": {**deployment, "name": "web"}, "for": HEALTH, **fields}


def set_health(case: Case, health: str) -> None:
    case.target.patch("Deployment", "web", {"metadata": {"labels": {"health": health}}}, case.name)


def gates(case: Case) -> dict[str, dict[str, str]]:
    return {gate["name"]: gate for gate in case.status().get("gates", ())}


def wait_for_gate(case: Case, state: str, name: str = "web") -> dict[str, str]:
    wait_for(f"gate {name} to be {state}", lambda: gates(case).get(name, {}).get("state") == state)
    return gates(case)[name]


def waiting(case: Case, node: str) -> dict[str, Any]:
    return case.condition("Waiting", "NodeReplacement", case.replacement(node))


@pytest.mark.rule("NP-30")
@pytest.mark.rule("MA-60")
def test_no_node_starts_while_an_object_is_not_well(case: Case) -> None:
    nodes = case.add_nodes(2)
    case.add(manifests.deployment(case.name, "web", 1))
    allow(case, "apps", "deployments")
    case.add_nodes(1, first=3, role="spare")
    case.manager()
    case.roll(gates=[gate_on(case)], nodeNames=[{"name": name} for name in nodes], nodeSelectors=[])
    closed = wait_for_gate(case, "Closed")
    assert f"Deployment {case.name}/web" in closed["message"]
    wait_for("the reason Gate", lambda: waiting(case, nodes[0]).get("reason") == "Gate")
    assert "gate web is closed" in waiting(case, nodes[0])["message"]
    assert not any(map(case.is_cordoned, nodes))
    set_health(case, "ok")
    status = case.wait_for_phase("Completed")
    assert status["replacementsCompleted"] == nodes
    events = case.events(case.name)
    assert len(events["GateClosed"]) == len(events["GateOpened"]) == 1


@pytest.mark.rule("NP-30")
def test_a_gate_that_stays_closed_halts_the_rollout_until_it_is_resumed(case: Case) -> None:
    case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 1))
    allow(case, "apps", "deployments")
    case.add_nodes(1, first=2, role="spare")
    case.manager()
    case.roll(gates=[gate_on(case, timeoutSeconds=1)])
    case.wait_for_phase("Halted")
    condition = case.condition("Halted")
    assert condition["reason"] == "GateTimeout"
    assert "gate web was closed for 1 seconds" in condition["message"]
    assert "has no value" in condition["message"]
    set_health(case, "ok")
    wait_for_gate(case, "Open")
    assert case.phase() == "Halted"
    token = {"metadata": {"annotations": {"navarchos.pusher.com/resume": "again"}}}
    case.target.patch("NodeRollout", case.name, token)
    case.wait_for_phase("Completed")


@pytest.mark.rule("NP-30")
def test_a_gate_that_cannot_be_judged_says_why_and_recovers(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 1))
    allow(case, "apps", "deployments")
    set_health(case, "ok")
    case.add_nodes(1, first=2, role="spare")
    case.manager()
    absent = {"apiVersion": "example.com/v1", "kind": "Absent", "name": "x"}
    case.roll(
        gates=[
            {"name": "kind", "object": absent, "for": "condition=Ready"},
            gate_on(case) | {"name": "path", "for": "jsonpath={.a[x]}=1"},
            gate_on(case),
        ]
    )
    wait_for_gate(case, "Open")
    absent_kind = "the server has no kind Absent in example.com/v1"
    assert wait_for_gate(case, "Closed", "kind")["message"] == absent_kind
    assert wait_for_gate(case, "Closed", "path")["message"] == NO_PATH
    wait_for("the reason Gate", lambda: waiting(case, name).get("reason") == "Gate")
    assert waiting(case, name)["message"] == f"gate kind is closed: {absent_kind}"
    assert not case.is_cordoned(name)
    case.target.patch("NodeRollout", case.name, {"spec": {"gates": [gate_on(case)]}})
    case.wait_for_phase("Completed")


@pytest.mark.rule("NP-30")
def test_evicted_pods_must_be_ready_again_before_the_next_node(case: Case) -> None:
    nodes = case.add_nodes(2)
    case.add(manifests.deployment(case.name, "web", 2), manifests.stateful_set(case.name, "db", 1))
    case.add_nodes(2, first=3, role="spare")
    case.manager()
    case.roll(
        gates=[
            {"name": "pods", "evictedPods": {}},
            {"name": "nodes", "nodes": {"maxUnready": 0}},
        ],
        nodeNames=[{"name": name} for name in nodes],
        nodeSelectors=[],
    )
    status = case.wait_for_phase("Completed")
    assert status["replacementsCompleted"] == nodes
    assert case.checker.most_in_flight == 1


def allow(case: Case, group: str, plural: str, *, verbs: Sequence[str] = ("list", "watch")) -> None:
    """Let the manager use a kind, as a user does who adds a gate on it."""
    if not case.target.has_accounts:
        return
    rule = {"apiGroups": [group], "resources": [plural], "verbs": list(verbs)}
    roles = case.target.client.resource(CLUSTER_ROLES)
    roles.create(
        {
            "metadata": {
                "name": f"{case.name}-{plural}",
                "labels": {"navarchos.pusher.com/aggregate-to-gates": "true"},
            },
            "rules": [rule],
        }
    )
    wait_for(
        "the aggregated role", lambda: rule in (roles.get("navarchos-gates").get("rules") or ())
    )


@pytest.mark.rule("NP-21")
def test_a_drained_node_counts_as_done_when_a_gate_after_it_is_open(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.add(
        manifests.deployment(case.name, "web", 1),
        manifests.budget(case.name, "web", minAvailable=1),
    )
    allow(case, "apps", "deployments")
    case.add_nodes(1, first=3, role="spare")
    set_health(case, "ok")
    case.manager()
    case.roll(gates=[gate_on(case, after=True)], nodeNames=[{"name": name}], nodeSelectors=[])
    child = case.replacement(name)
    wait_for("a blocker", lambda: case.status("NodeDrain", child).get("blockers"))
    set_health(case, "bad")
    wait_for_gate(case, "Closed")
    case.change_budget("web", minAvailable=0)

    def verified() -> dict[str, Any]:
        return case.condition("NodeVerified", "NodeReplacement", child)

    wait_for("the verification", lambda: verified().get("reason") == "Verifying")
    assert "gate web is closed" in verified()["message"]
    assert case.status("NodeReplacement", child)["step"]["name"] == "Verifying"
    set_health(case, "ok")
    case.wait_for_phase("Completed")
    assert verified()["status"] == "True"


@contextmanager
def widgets(case: Case) -> Iterator[ResourceClient[dict[str, Any]]]:
    """Install a kind with one object that is not well, and remove both."""
    client = case.target.client
    install_definitions(client, manifests.widget_definition())
    try:
        found = client.resource(manifests.WIDGETS)
        found.create({"metadata": {"name": "disk"}}, case.name)
        yield found
    finally:
        uninstall_definitions(client, manifests.widget_definition())


@pytest.mark.rule("NP-30")
def test_a_custom_resource_of_a_kind_that_arrives_later_opens_its_gate(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.add()  # the namespace
    case.add_nodes(1, first=2, role="spare")
    case.manager()
    disk = {"apiVersion": "example.com/v1", "kind": "Widget", "namespace": case.name}
    gate = {
        "name": "disk",
        "object": {**disk, "name": "disk"},
        "for": "jsonpath={.status.health}=OK",
    }
    nodes = {"nodeNames": [{"name": name}], "nodeSelectors": []}
    case.roll(gates=[{**gate, "stableSeconds": 2}], **nodes)

    def closed_by(message: str) -> None:
        wait_for(message, lambda: gates(case).get("disk", {}).get("message") == message)
        assert gates(case)["disk"]["state"] == "Closed"
        wait_for("the reason", lambda: waiting(case, name).get("message", "").endswith(message))
        assert not case.is_cordoned(name)

    closed_by("the server has no kind Widget in example.com/v1")
    with widgets(case) as found:
        if case.target.has_accounts:
            closed_by(
                "no permission to list and watch Widget of example.com/v1: add a ClusterRole with "
                'the label navarchos.pusher.com/aggregate-to-gates: "true" and the rule '
                '{apiGroups: ["example.com"], resources: ["widgets"], verbs: ["list", "watch"]}'
            )
            allow(case, "example.com", "widgets")
        closed_by(f"Widget {case.name}/disk: {{.status.health}} has no value")
        for health in ("Degraded", "OK"):
            found.patch("disk", {"status": {"health": health}}, case.name, subresource="status")
        opened = datetime.fromisoformat(wait_for_gate(case, "Open", "disk")["since"])
        case.wait_for_phase("Completed")
    started = case.status("NodeReplacement", case.replacement(name))["startTimestamp"]
    assert datetime.fromisoformat(started) - opened >= timedelta(seconds=2)


@pytest.mark.rule("NP-30")
def test_a_gate_on_nodes_does_not_count_machines_that_join(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.add_nodes(1, first=2, role="spare")
    case.manager()
    late = manifests.node(f"{case.name}-late", "another")
    late["metadata"]["annotations"] = {}  # no kubelet: it is never Ready
    case.target.create(late)
    try:
        nodes = {"nodeNames": [{"name": name}], "nodeSelectors": []}
        case.roll(gates=[{"name": "nodes", "nodes": {"maxUnready": 0}}], **nodes)
        message = f"1 nodes are not Ready, more than maxUnready (0): {case.name}-late"
        assert wait_for_gate(case, "Closed", "nodes")["message"] == message
        joining = {"key": JOINING_TAINT, "effect": "NoSchedule"}
        case.target.patch("Node", f"{case.name}-late", {"spec": {"taints": [joining]}})
        case.wait_for_phase("Completed")
    finally:
        case.target.of("Node").delete(f"{case.name}-late")
