"""Nodes that wait bear a soft taint, which a scheduler respects, and nothing is left of it."""

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.waiting import wait_for

from navarchos.operator.names import TO_BE_REPLACED_TAINT

pytestmark = pytest.mark.timeout(240)

FOREIGN = {"key": "example.com/slow-disk", "effect": "PreferNoSchedule"}


def taints(case: Case, node: str) -> dict[str, str]:
    """Return the taints of a node, effects by key."""
    found = case.node(node)["spec"].get("taints") or ()
    return {taint["key"]: taint["effect"] for taint in found}


def wait_until_tainted(case: Case, *nodes: str) -> None:
    for node in nodes:
        wait_for(f"the taint of {node}", lambda: TO_BE_REPLACED_TAINT in taints(case, node))  # noqa: B023 - called at once


@pytest.mark.rule("N-14")
def test_evicted_pods_pass_over_nodes_that_wait_though_those_are_emptier(case: Case) -> None:
    case.add_nodes(1, first=9, role="spare")
    full = {"nodeSelector": {manifests.CASE_LABEL: case.name, "role": "spare"}}
    case.add(manifests.deployment(case.name, "there", 5, **full))
    old = case.add_nodes(3, role="old")
    apps = [f"app-{number}" for number in range(6)]
    # A workload for each pod: nothing but the taint and the load tells the nodes apart.
    case.add(*(manifests.deployment(case.name, app, 1) for app in apps))
    on_old = sum(len(case.pods(node)) for node in old)
    assert on_old >= 3
    case.target.patch("Node", old[0], {"spec": {"taints": [FOREIGN]}})
    case.manager()
    names = [{"name": name} for name in old]
    strategy = {"taintWaitingNodes": True}
    case.roll(nodeSelectors=[], nodeNames=names, strategy=strategy, paused=True)
    wait_until_tainted(case, *old)
    assert taints(case, old[0])[FOREIGN["key"]] == FOREIGN["effect"]
    case.target.patch("NodeRollout", case.name, {"spec": {"paused": False}})
    case.wait_for_phase("Completed")
    assert case.checker.evictions(case.name) == on_old
    for node in old:
        wait_for("our taint to go", lambda: TO_BE_REPLACED_TAINT not in taints(case, node))  # noqa: B023 - called at once
    assert taints(case, old[0])[FOREIGN["key"]] == FOREIGN["effect"]


def test_no_taint_of_ours_is_left_when_a_rollout_is_deleted(case: Case) -> None:
    nodes = case.add_nodes(2)
    case.manager()
    case.roll(strategy={"taintWaitingNodes": True}, paused=True)
    wait_until_tainted(case, *nodes)
    case.delete("NodeRollout")
    for node in nodes:
        wait_for("our taint to go", lambda: TO_BE_REPLACED_TAINT not in taints(case, node))  # noqa: B023 - called at once
