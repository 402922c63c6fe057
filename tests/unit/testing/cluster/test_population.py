"""The objects of a new cluster."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from navarchos.errors import ConfigError
from navarchos.testing.cluster.nodes import (
    ROLE_LABEL,
    ZONE_LABEL,
    machines,
    replacement_name,
    role_counts,
    successor,
)
from navarchos.testing.cluster.options import ClusterOptions, Durations, Span
from navarchos.testing.cluster.population import populate
from navarchos.testing.cluster.workloads import plan_workloads

NOW = datetime(2026, 1, 31, tzinfo=UTC)
ROLES = {"master", "support", "worker", "spot-worker"}


def of(manifests: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in manifests if each["kind"] == kind]


def made(**options: int) -> list[dict[str, Any]]:
    return populate(ClusterOptions(**options), NOW).manifests  # type: ignore[arg-type]  # all counts


@pytest.mark.parametrize("nodes", [6, 7, 12, 50, 200])
def test_all_roles_and_zones_are_there_from_six_nodes_on(nodes: int) -> None:
    labels = [node["metadata"]["labels"] for node in of(made(nodes=nodes), "Node")]
    assert {label[ROLE_LABEL] for label in labels} == ROLES
    assert len({label[ZONE_LABEL] for label in labels}) == 3


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 12])
def test_one_node_is_important_and_the_rest_are_numbered(nodes: int) -> None:
    names = [machine.name for machine in machines(nodes, 8)]
    assert names == ["important-node", *(f"node-{n}" for n in range(1, nodes))]


@pytest.mark.parametrize("others", range(60))
def test_roles_cover_every_node(others: int) -> None:
    assert sum(role_counts(others).values()) == others


@pytest.mark.parametrize("nodes", [12, 38, 200])
def test_ages_are_all_different_and_not_in_order_of_name(nodes: int) -> None:
    times = [node["metadata"]["creationTimestamp"] for node in of(made(nodes=nodes), "Node")]
    assert len(set(times)) == nodes
    assert times != sorted(times)


def test_a_successor_has_the_next_name_and_everything_else_in_common() -> None:
    machine = machines(12, 8)[3]
    later = successor(successor(machine, 1, 90), 2, 91)
    assert later.name == f"{machine.name}-r2"
    assert (later.role, later.zone, later.taints) == (machine.role, machine.zone, machine.taints)
    assert later.provider_id != machine.provider_id
    assert replacement_name("rack-row", 1) == "rack-row-r1"


@pytest.mark.parametrize("total", [1, 2, 5, 6, 16, 72, 1600])
def test_workloads_have_as_many_pods_as_asked_for(total: int) -> None:
    assert sum(plan.replicas for plan in plan_workloads(total)) == total


def test_workloads_are_of_every_kind_and_budgets_bite() -> None:
    plans = plan_workloads(72)
    assert {plan.kind for plan in plans} == {"StatefulSet", "Job", "Deployment"}
    assert len({(plan.namespace, plan.name) for plan in plans}) == len(plans)
    assert any(plan.empty_dir for plan in plans)
    assert any(plan.budget == {"maxUnavailable": 1} for plan in plans)
    assert any(plan.budget is None for plan in plans)


def test_the_same_seed_makes_the_same_cluster() -> None:
    assert made(seed=3) == made(seed=3)
    assert made(seed=3) != made(seed=4)


def test_every_pod_runs_on_a_node_and_belongs_to_somebody() -> None:
    manifests = made(nodes=12, pods_per_node=8)
    uids = {each["metadata"]["uid"]: each["kind"] for each in manifests}
    nodes = {node["metadata"]["name"] for node in of(manifests, "Node")}
    pods = of(manifests, "Pod")
    assert len(pods) == 12 * 8
    for pod in pods:
        (owner,) = pod["metadata"]["ownerReferences"]
        assert uids[owner["uid"]] == owner["kind"]
        assert pod["spec"]["nodeName"] in nodes
        assert pod["status"]["phase"] == "Running"
    assert len({pod["status"]["podIP"] for pod in pods}) == len(pods)
    assert len(uids) == len(manifests)


def test_the_daemon_and_a_mirror_pod_are_on_every_node() -> None:
    pods = of(made(nodes=7), "Pod")
    for kind in ("DaemonSet", "Node"):
        on = [p for p in pods if p["metadata"]["ownerReferences"][0]["kind"] == kind]
        assert len({pod["spec"]["nodeName"] for pod in on}) == len(on) == 7


def test_workload_pods_keep_off_masters_and_are_spread() -> None:
    manifests = made(nodes=12, pods_per_node=8)
    masters = {
        node["metadata"]["name"]
        for node in of(manifests, "Node")
        if node["metadata"]["labels"][ROLE_LABEL] == "master"
    }
    counts = Counter(
        pod["spec"]["nodeName"]
        for pod in of(manifests, "Pod")
        if pod["metadata"]["ownerReferences"][0]["kind"] not in {"DaemonSet", "Node"}
    )
    assert not masters & counts.keys()
    assert max(counts.values()) - min(counts.values()) <= 2


def test_two_pods_of_a_strict_budget_share_a_node_so_that_its_drain_is_refused_once() -> None:
    manifests = made(nodes=12, pods_per_node=8)
    rules = {b["metadata"]["name"]: b["spec"] for b in of(manifests, "PodDisruptionBudget")}
    on = Counter(
        (pod["metadata"]["labels"].get("app", ""), pod["spec"]["nodeName"])
        for pod in of(manifests, "Pod")
    )
    shared = {app for (app, _), count in on.items() if count > 1 and app in rules}
    assert any(rules[app].get("maxUnavailable") == 1 for app in shared)


def test_budgets_are_settled_and_each_allows_at_least_one_disruption() -> None:
    budgets = of(made(nodes=50, pods_per_node=10), "PodDisruptionBudget")
    assert budgets
    for budget in budgets:
        status = budget["status"]
        assert status["currentHealthy"] == status["expectedPods"]
        assert 0 < status["disruptionsAllowed"] < status["expectedPods"], budget


def test_bare_pods_have_no_owner() -> None:
    bare = [
        pod for pod in of(made(bare_pods=2), "Pod") if not pod["metadata"].get("ownerReferences")
    ]
    assert [pod["metadata"]["name"] for pod in bare] == ["bare-1", "bare-2"]


@pytest.mark.parametrize(
    "option", [{"nodes": 0}, {"pods_per_node": 0}, {"speed": 0.0}, {"bare_pods": -1}]
)
def test_impossible_sizes_are_refused_by_name(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        ClusterOptions(**option)
    assert refused.value.name in option


def test_durations_are_scaled_bounded_and_the_same_for_the_same_key() -> None:
    durations = Durations(speed=10.0, seed=1)
    drawn = [durations.draw(Span(2.0, 4.0), f"key-{n}") for n in range(100)]
    assert drawn == [durations.draw(Span(2.0, 4.0), f"key-{n}") for n in range(100)]
    assert all(0.2 <= each <= 0.4 for each in drawn)
    assert len(set(drawn)) > 90
    assert durations.draw(Span(2.0, 4.0), "key", limit=1.0) == pytest.approx(0.1)
