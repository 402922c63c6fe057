"""Rollouts over nodes with every kind of workload."""

from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.waiting import wait_for

pytestmark = pytest.mark.timeout(240)


def blockers(case: Case, drain: str) -> list[dict[str, Any]]:
    """Return the blockers of a node from its drain."""
    return list(case.status("NodeDrain", drain).get("blockers", ()))


def test_nodes_with_every_workload_are_drained_one_at_a_time(case: Case) -> None:
    nodes = case.add_nodes(3)
    case.add(
        manifests.deployment(case.name, "web", 6),
        manifests.stateful_set(case.name, "db", 3),
        manifests.daemon_set(case.name, "agent"),
        manifests.job(case.name, "batch", 2),
        manifests.budget(case.name, "web", maxUnavailable=1),
        manifests.budget(case.name, "db", maxUnavailable=1),
    )
    spare = case.add_nodes(2, first=4)
    case.manager()
    case.roll(nodeSelectors=[], nodeNames=[{"name": name} for name in nodes])
    status = case.wait_for_phase("Completed")
    assert status["replacementsCompleted"] == nodes
    assert case.checker.drained == tuple(nodes)
    assert case.checker.most_in_flight == 1
    for name in nodes:
        node = case.node(name)
        assert node["spec"]["unschedulable"]
        assert "navarchos.pusher.com/drain-completed" in node["metadata"]["labels"]
        assert {pod["metadata"]["labels"]["app"] for pod in case.pods(name)} == {"agent"}
    case.settle()
    assert not any(case.is_cordoned(name) for name in spare)
    moved = case.status("NodeReplacement", case.replacement(nodes[0]))
    assert moved["evictedPodsCount"] == len(moved["evictedPods"]) > 0
    ignored = [note["name"] for note in moved["ignoredPods"]]
    # There may be static pods of the cluster too.
    assert [name.partition("/")[2][:5] for name in ignored if name.startswith(f"{case.name}/")] == [
        "agent"
    ]


def test_a_pod_without_a_controller_halts_the_rollout_until_force_is_set(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.add(manifests.pod(case.name, "bare"))
    case.manager()
    case.roll(strategy={"retries": 0})
    halted = case.wait_for_phase("Halted")
    assert halted["replacementsFailed"] == [name]
    (condition,) = [each for each in halted["conditions"] if each["type"] == "Halted"]
    assert condition["message"] == "1 nodes failed, which is more than maxFailures (0)"
    failed = case.status("NodeReplacement", case.replacement(name))
    (failure,) = failed["failures"]
    assert failure["reason"] == "PodsRefused"
    assert f"{case.name}/bare" in failure["message"]
    assert [note["name"] for note in failed["failedPods"]] == [f"{case.name}/bare"]
    wait_for("the node to be uncordoned", lambda: not case.is_cordoned(name))
    assert case.checker.evictions(case.name) == 0
    case.create(manifests.rollout(case.name, f"{case.name}-forced", drain={"force": True}))
    case.wait_for_phase("Completed", name=f"{case.name}-forced")
    assert case.pods(name) == []


@pytest.mark.long
def test_pods_with_local_data_are_evicted_unless_configured(case: Case) -> None:
    volumes: dict[str, Any] = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
    careful, careless = case.add_nodes(2)
    case.add(manifests.deployment(case.name, "cache", 2, **volumes))
    names = [{"name": careful}]
    case.manager()
    spec: dict[str, Any] = {"nodeSelectors": [], "strategy": {"retries": 0}}
    case.target.patch("Node", careless, {"spec": {"unschedulable": True}})
    case.roll(nodeNames=names, drain={"deleteEmptyDirData": False}, **spec)
    case.wait_for_phase("Halted")
    (failure,) = case.status("NodeReplacement", case.replacement(careful))["failures"]
    assert failure["reason"] == "PodsRefused"
    assert "emptyDir" in failure["message"] or "local" in failure["message"]
    case.target.patch("Node", careless, {"spec": {"unschedulable": None}})
    case.create(manifests.rollout(case.name, f"{case.name}-again", nodeNames=names, **spec))
    case.wait_for_phase("Completed", name=f"{case.name}-again")
    assert case.pods(careful) == []


def test_a_budget_delays_only_its_node_until_it_allows_the_eviction(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.add(
        manifests.deployment(case.name, "web", 2),
        manifests.budget(case.name, "web", minAvailable=2),
    )
    case.add_nodes(1, first=2)
    case.manager()
    case.roll(nodeSelectors=[], nodeNames=[{"name": name}])
    drain = case.replacement(name)
    found = wait_for(
        "two blockers", lambda: len(blockers(case, drain)) == 2 and blockers(case, drain)
    )
    assert {each["reason"] for each in found} == {"BlockedByBudget"}
    assert {each["budget"] for each in found} == {f"{case.name}/web"}
    blocked = wait_for("the status of the rollout", lambda: case.status().get("blocked"))
    assert blocked[0]["node"] == name
    assert case.checker.evictions(case.name) == 0
    assert "EvictionBlocked" in wait_for("an event", lambda: case.events(drain))
    case.change_budget("web", minAvailable=1)
    case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 2


def test_tight_budgets_only_slow_a_rollout_down(case: Case) -> None:
    case.checker.in_flight = 2
    nodes = case.add_nodes(4)
    case.add(
        manifests.deployment(case.name, "web", 8, ends_in="0.5s"),
        manifests.stateful_set(case.name, "db", 4),
        manifests.budget(case.name, "web", minAvailable="80%"),
        manifests.budget(case.name, "db", maxUnavailable=1),
    )
    case.add_nodes(2, first=5)
    case.manager()
    names = [{"name": name} for name in nodes]
    case.roll(nodeSelectors=[], nodeNames=names, strategy={"maxConcurrent": 2})
    case.wait_for_phase("Completed", timeout=120)
    assert sorted(case.checker.drained) == nodes
    assert case.checker.most_in_flight == 2


@pytest.mark.long
def test_two_budgets_of_one_pod_are_reported_and_a_stage_bypasses_them(case: Case) -> None:
    case.checker.bypasses_budgets = True
    (name,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 1))
    # Not earlier: the disruption controller updates only one of two budgets of a pod.
    case.add(
        manifests.budget(case.name, "first", app="web", maxUnavailable=1),
        manifests.budget(case.name, "second", app="web", maxUnavailable=1),
    )
    case.add_nodes(1, first=2)
    case.manager()
    stages = [{"afterSeconds": 6, "action": "Delete"}]
    case.roll(nodeSelectors=[], nodeNames=[{"name": name}], drain={"escalation": stages})
    drain = case.replacement(name)
    (found,) = wait_for("a blocker", lambda: blockers(case, drain))
    assert found["reason"] == "MultipleBudgets"
    assert set(found["budget"].split(",")) == {f"{case.name}/first", f"{case.name}/second"}
    case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 0
    (event,) = wait_for("an event", lambda: case.events(drain).get("BudgetBypassed"))
    assert event["type"] == "Warning"
    assert found["pod"] in event["note"]


@pytest.mark.long
def test_a_stalled_node_does_not_stop_the_others_within_max_failures(case: Case) -> None:
    first, second, third = case.add_nodes(3)
    case.add(manifests.pod(case.name, "bare", first))
    case.manager()
    case.roll(strategy={"maxFailures": 1, "retries": 1})
    status = case.wait_for_phase("Completed")
    assert status["replacementsFailed"] == [first]
    assert case.checker.drained == (second, third)
    assert case.checker.cordoned == (first, second, third, first)
    assert not case.is_cordoned(first)


def test_the_cordon_of_a_failed_node_is_kept_if_configured(case: Case) -> None:
    case.checker.in_flight = None
    (name,) = case.add_nodes(1)
    case.add(manifests.pod(case.name, "bare"))
    case.manager()
    case.roll(strategy={"retries": 0, "onNodeFailure": "Keep"})
    case.wait_for_phase("Halted")
    assert case.is_cordoned(name)


@pytest.mark.long
def test_pods_are_deleted_instead_of_evicted_if_configured(case: Case) -> None:
    case.checker.bypasses_budgets = True
    (name,) = case.add_nodes(1)
    case.add(
        manifests.deployment(case.name, "web", 2),
        manifests.budget(case.name, "web", minAvailable=2),
    )
    case.add_nodes(1, first=2)
    case.manager()
    drain = {"disableEviction": True}
    case.roll(nodeSelectors=[], nodeNames=[{"name": name}], drain=drain)
    case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == 0
    assert case.pods(name) == []


def test_pods_of_a_deleted_daemon_set_block_the_drain(case: Case) -> None:
    (name,) = case.add_nodes(1)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gone", "uid": "u"}
    case.manager()
    case.target.create(manifests.namespace(case.name))
    held = manifests.pod(
        case.name,
        "held",
        name,
        ownerReferences=[owner | {"controller": True}],
        finalizers=["example.com/held"],
    )
    case.target.create(held)
    case.roll()
    drain = case.replacement(name)
    case.wait_for_phase("Draining", "NodeDrain", drain)
    case.target.patch("Pod", "held", {"metadata": {"finalizers": None}}, case.name)
    case.wait_for_phase("Completed")
    case.target.of("Namespace").delete(case.name)


@pytest.mark.long
def test_finished_jobs_and_pods_with_a_grace_period_are_handled(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.add(
        manifests.deployment(case.name, "slow", 2, ends_in="3s", terminationGracePeriodSeconds=20),
    )
    case.target.create(manifests.job(case.name, "done", 2, runs_for="0.1s"))
    wait_for(
        "the job to end",
        lambda: case.target.get("Job", "done", case.name)["status"].get("succeeded") == 2,
    )
    case.add_nodes(1, first=2)
    case.manager()
    case.roll(nodeSelectors=[], nodeNames=[{"name": name}])
    case.wait_for_phase("Completed")
    assert case.pods(name) == []
    evicted = case.status("NodeReplacement", case.replacement(name))["evictedPods"]
    assert len(evicted) == 4


@pytest.mark.long
def test_names_that_match_nothing_are_reported(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.manager()
    case.roll(nodeSelectors=[], nodeNames=[{"name": "missing"}, {"name": name}])
    status = case.wait_for_phase("Completed")
    assert status["nodesNotFound"] == ["missing"]
    assert "NodesNotFound" in wait_for("an event", lambda: case.events(case.name))
    nothing = manifests.rollout(case.name, f"{case.name}-nothing")
    nothing["spec"]["nodeSelectors"] = [{"matchLabels": {"no": "node"}}]
    case.create(nothing)
    status = case.wait_for_phase("Completed", name=f"{case.name}-nothing")
    assert "NoNodesMatched" in {each["reason"] for each in status["conditions"]}
