"""Budgets that never allow a disruption, that change, and that are bypassed only as configured."""

from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.waiting import wait_for

pytestmark = [pytest.mark.timeout(240), pytest.mark.long]


def blocked(case: Case, node: str) -> dict[str, str]:
    """Return the blockers of a node: the reason by pod."""
    found = case.status("NodeDrain", case.replacement(node)).get("blockers", ())
    return {each["pod"]: each["reason"] for each in found}


def pods_of(case: Case, app: str) -> list[str]:
    found = case.target.list("Pod", case.name, label_selector=f"app={app}")
    return sorted(pod["metadata"]["name"] for pod in found)


def fail_readiness(case: Case, pod: str) -> None:
    """Make a pod unready in its status."""
    conditions = case.target.get("Pod", pod, case.name)["status"]["conditions"]
    failed = [
        each | {"status": "False"} if each["type"] in {"Ready", "ContainersReady"} else each
        for each in conditions
    ]
    case.target.patch("Pod", pod, {"status": {"conditions": failed}}, case.name, "status")


def test_a_budget_that_never_allows_a_disruption_fails_only_its_node(case: Case) -> None:
    (stalled,) = case.add_nodes(1)
    case.add(
        manifests.deployment(case.name, "web", 2),
        manifests.budget(case.name, "web", maxUnavailable=0),
    )
    (free,) = case.add_nodes(1, first=2)
    case.manager()
    case.roll(strategy={"maxFailures": 1, "retries": 0}, drain={"timeoutSeconds": 6})
    status = case.wait_for_phase("Completed")
    assert status["replacementsFailed"] == [stalled]
    assert status["replacementsCompleted"] == [free]
    failed = case.status("NodeReplacement", case.replacement(stalled))
    (failure,) = failed["failures"]
    assert failure["reason"] == "Timeout"
    told = {note["name"]: note["reason"] for note in failed["failedPods"]}
    assert sorted(told) == [f"{case.name}/{pod}" for pod in pods_of(case, "web")]
    assert all(
        why.startswith("BlockedByBudget: The disruption budget web ") for why in told.values()
    )
    assert not case.is_cordoned(stalled)
    assert case.is_cordoned(free)
    assert case.checker.evictions(case.name) == 0


def test_a_budget_that_changes_during_a_drain_applies_immediately(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.add(
        manifests.deployment(case.name, "web", 3),
        manifests.budget(case.name, "web", maxUnavailable=1),
    )
    before = set(pods_of(case, "web"))
    case.manager()
    case.roll()
    # The budget allows one disruption, and the new pod cannot be scheduled.
    wait_for("two to be blocked", lambda: len(blocked(case, name)) == 2)
    assert case.checker.evictions(case.name) == 1
    case.change_budget("web", maxUnavailable=None, minAvailable=3)
    case.add_nodes(1, first=2, role="spare")
    case.target.patch("NodeRollout", case.name, {"spec": {"paused": True}})
    case.settle()
    # All three are healthy, which the former budget would have accepted.
    assert set(blocked(case, name)) < before
    assert case.checker.evictions(case.name) == 1
    case.change_budget("web", minAvailable=2)
    case.target.patch("NodeRollout", case.name, {"spec": {"paused": False}})
    case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 3
    assert not before & set(pods_of(case, "web"))


def test_a_drain_on_hold_reports_its_timeout_and_continues(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.add(
        manifests.deployment(case.name, "web", 2),
        manifests.budget(case.name, "web", minAvailable=2),
    )
    case.add_nodes(1, first=2)
    case.manager()
    drain = {"timeoutSeconds": 1, "onTimeout": "Hold"}
    case.roll(nodeSelectors=[], nodeNames=[{"name": name}], drain=drain)

    def holds() -> bool:
        said = case.condition("NodeDrained", "NodeDrain", case.replacement(name))
        return said.get("reason") == "TimeoutHold"

    wait_for("its timeout to pass", holds)
    assert len(blocked(case, name)) == 2
    case.change_budget("web", minAvailable=1)
    case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 2
    assert "BudgetBypassed" not in case.events(case.replacement(name))


def test_a_node_on_hold_releases_its_slot_and_is_drained_later(
    case: Case,
) -> None:
    case.checker.in_flight = 2  # cordoned nodes: the stalled one and the next one
    (stalled,) = case.add_nodes(1)
    case.add(
        manifests.deployment(case.name, "web", 2),
        manifests.budget(case.name, "web", minAvailable=2),
    )
    (free,) = case.add_nodes(1, first=2)
    case.add_nodes(1, first=3, role="spare")
    case.manager()
    names = [{"name": stalled}, {"name": free}]
    drain = {"timeoutSeconds": 1, "onTimeout": "Hold"}
    case.roll(nodeSelectors=[], nodeNames=names, strategy={"maxFailures": 1}, drain=drain)
    case.wait_for_phase("Completed", "NodeReplacement", case.replacement(free))
    wait_for("only the stalled node to remain", lambda: not case.status().get("inFlight"))
    assert case.status()["stalled"] == [stalled]
    assert case.status("NodeReplacement", case.replacement(stalled))["step"]["name"] == "Draining"
    assert case.is_cordoned(stalled)
    assert case.checker.evictions(case.name) == 0
    case.change_budget("web", minAvailable=1)
    status = case.wait_for_phase("Completed")
    assert status["replacementsCompleted"] == [stalled, free]
    assert "stalled" not in status
    assert case.checker.evictions(case.name) == 2


def test_stages_delete_unhealthy_pods_first_and_then_the_selected_ones(
    case: Case,
) -> None:
    case.checker.bypasses_budgets = True
    (name,) = case.add_nodes(1)
    case.add(
        manifests.deployment(case.name, "web", 2),
        manifests.stateful_set(case.name, "db", 2),
        manifests.budget(case.name, "web", minAvailable=2),
        manifests.budget(case.name, "db", maxUnavailable=0),
    )
    ill, well = pods_of(case, "web")
    case.add_nodes(1, first=2)
    fail_readiness(case, ill)
    case.manager()
    # Blocked pods appear in the status up to a second after the first eviction, and times are
    # whole seconds: the first stage leaves a busy machine time to see all of them blocked.
    stages: list[dict[str, Any]] = [
        {"afterSeconds": 4, "action": "DeleteUnhealthy", "namespaces": [case.name]},
        {"afterSeconds": 5, "action": "Delete", "podSelector": {"matchLabels": {"app": "db"}}},
    ]
    case.roll(nodeSelectors=[], nodeNames=[{"name": name}], drain={"escalation": stages})
    drain = case.replacement(name)
    wait_for("all of them to be blocked", lambda: len(blocked(case, name)) == 4)
    wait_for("one to be left", lambda: list(blocked(case, name)) == [well])
    case.settle()
    assert blocked(case, name) == {well: "BlockedByBudget"}
    notes = [event["note"] for event in case.events(drain)["BudgetBypassed"]]
    told = {
        pod: stage
        for pod in (ill, "db-0", "db-1")
        for stage in (1, 2)
        if any(f"{case.name}/{pod}, bypassing" in n and f"stage {stage} " in n for n in notes)
    }
    assert told == {ill: 1, "db-0": 2, "db-1": 2}
    assert case.checker.evictions(case.name) == 0
    case.change_budget("web", minAvailable=1)
    case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 1


def test_a_node_without_a_shared_budget_starts_beside_the_first(
    case: Case,
) -> None:
    case.checker.in_flight = 2
    first, second, third, spare = case.add_nodes(4)
    held = {first: "web-1", second: "web-2", spare: "web-3"}
    case.add(
        *(manifests.pod(case.name, pod, node, labels={"app": "web"}) for node, pod in held.items()),
        manifests.budget(case.name, "web", minAvailable=1),
    )
    case.manager()
    names = [{"name": name} for name in (first, second, third)]
    case.roll(
        nodeSelectors=[],
        nodeNames=names,
        strategy={"maxConcurrent": 2},
        drain={"force": True},
    )
    case.wait_for_phase("Completed")
    begun = {
        name: case.status("NodeReplacement", case.replacement(name))["startTimestamp"]
        for name in (first, second, third)
    }
    assert sorted(begun, key=begun.__getitem__) == [first, third, second]
    assert case.checker.evictions(case.name) == 2
