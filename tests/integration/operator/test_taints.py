"""Waiting nodes have a soft taint, which the scheduler prefers to avoid, until the end."""

from typing import Any

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
def test_evicted_pods_avoid_waiting_nodes_with_more_capacity(case: Case) -> None:
    case.add_nodes(1, first=9, role="spare")
    full: dict[str, Any] = {"nodeSelector": {manifests.CASE_LABEL: case.name, "role": "spare"}}
    case.add(manifests.deployment(case.name, "there", 5, **full))
    old = case.add_nodes(3, role="old")
    apps = [f"app-{number}" for number in range(6)]
    # A workload for each pod: only the taint and the load distinguish the nodes.
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


def test_deleting_a_rollout_removes_all_its_taints(case: Case) -> None:
    nodes = case.add_nodes(2)
    case.manager()
    case.roll(strategy={"taintWaitingNodes": True}, paused=True)
    wait_until_tainted(case, *nodes)
    case.delete("NodeRollout")
    for node in nodes:
        wait_for("our taint to go", lambda: TO_BE_REPLACED_TAINT not in taints(case, node))  # noqa: B023 - called at once
