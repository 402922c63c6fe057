"""Gates on real objects, through a whole manager: no node starts while a gate is closed."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.waiting import wait_for

from navarchos.client import Resource

pytestmark = pytest.mark.timeout(240)

CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False, type=dict
)

HEALTH = "jsonpath={.metadata.labels.health}=ok"


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
    assert "no kind Absent in example.com/v1" in wait_for_gate(case, "Closed", "kind")["message"]
    assert "the path cannot be read" in wait_for_gate(case, "Closed", "path")["message"]
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
