"""Users control a running rollout: order, limits, pause, deletion, and their own drains."""

from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.waiting import wait_for

from navarchos.operator.names import CORDONED_BY_ANNOTATION, DRAIN_COMPLETED_LABEL
from navarchos.operator.nodes import CONTROL_PLANE_LABEL

pytestmark = pytest.mark.timeout(240)


def hold(case: Case) -> None:
    """Add pods that a budget protects from eviction."""
    case.add(
        manifests.deployment(case.name, "web", 2),
        manifests.budget(case.name, "web", minAvailable=2),
    )


def let_go(case: Case) -> None:
    """Let the budget allow evictions again."""
    case.change_budget("web", minAvailable=1)


def drained_label(case: Case, node: str) -> str:
    return str(case.node(node)["metadata"]["labels"].get(DRAIN_COMPLETED_LABEL, ""))


@pytest.mark.long
def test_nodes_start_in_order_of_priority_across_rollouts(case: Case) -> None:
    one, two, three, four = case.add_nodes(4)
    low = manifests.rollout(case.name, f"{case.name}-low", nodeSelectors=[])
    low["spec"]["nodeNames"] = [{"name": two}, {"name": one, "replacement": {"priority": 1}}]
    high = manifests.rollout(case.name, f"{case.name}-high", nodeSelectors=[])
    high["spec"]["nodeNames"] = [
        {"name": three, "replacement": {"priority": 20}},
        {"name": four, "replacement": {"priority": 30}},
    ]
    case.create(low | {"spec": low["spec"] | {"paused": True}})
    case.create(high)
    case.manager()
    case.target.patch("NodeRollout", f"{case.name}-low", {"spec": {"paused": False}})
    case.wait_for_phase("Completed", name=f"{case.name}-high")
    case.wait_for_phase("Completed", name=f"{case.name}-low")
    case.checker.settle()
    assert case.checker.drained[:2] == (four, three) or case.checker.drained[0] == one
    assert case.checker.drained.index(four) < case.checker.drained.index(three)
    assert case.checker.drained.index(one) < case.checker.drained.index(two)


@pytest.mark.long
def test_selectors_and_names_decide_the_order(case: Case) -> None:
    case.add_nodes(1, first=1, role="spot")
    case.add_nodes(2, first=2, role="worker")
    case.add_nodes(2, first=4, role="support")
    prefix = case.name
    own = {manifests.CASE_LABEL: case.name}
    case.manager()
    case.roll(
        nodeNames=[{"name": f"{prefix}-3", "replacement": {"priority": 40}}],
        nodeSelectors=[
            {"matchLabels": own | {"role": "support"}, "replacement": {"priority": 30}},
            {"matchLabels": own | {"role": "worker"}, "replacement": {"priority": 20}},
            {"matchLabels": own | {"role": "spot"}, "replacement": {"priority": 10}},
        ],
    )
    status = case.wait_for_phase("Completed")
    order = tuple(f"{prefix}-{number}" for number in (3, 4, 5, 2, 1))
    case.checker.settle()
    assert case.checker.drained == order
    assert case.checker.cordoned == order
    assert [(each["priority"], each["total"]) for each in status["plan"]] == [
        (40, 1), (30, 2), (20, 1), (10, 1),
    ]  # fmt: skip


@pytest.mark.long
def test_at_most_three_nodes_are_in_flight_with_a_limit_of_three(case: Case) -> None:
    case.checker.in_flight = 3
    nodes = case.add_nodes(7)
    case.add(manifests.deployment(case.name, "web", 14, ends_in="0.6s"))
    case.add_nodes(2, first=8)
    case.manager()
    names = [{"name": name} for name in nodes]
    case.roll(nodeSelectors=[], nodeNames=names, strategy={"maxConcurrent": 3})
    case.wait_for_phase("Completed")
    case.checker.settle()
    assert sorted(case.checker.drained) == nodes
    assert case.checker.most_in_flight == 3


@pytest.mark.long
def test_a_pause_stops_all_work_until_resume(case: Case) -> None:
    first, second = case.add_nodes(2)
    hold(case)
    case.add_nodes(1, first=3)
    case.target.patch("Node", second, {"spec": {"unschedulable": True}})
    case.manager()
    case.roll(nodeSelectors=[], nodeNames=[{"name": first}, {"name": second}])
    drain = case.replacement(first)
    wait_for("a blocker", lambda: case.status("NodeDrain", drain).get("blockers"))
    case.target.patch("NodeRollout", case.name, {"spec": {"paused": True}})
    wait_for(
        "the drain to be paused", lambda: case.target.get("NodeDrain", drain)["spec"]["paused"]
    )
    wait_for("the condition of the rollout", lambda: "RolloutPaused" in case.events(case.name))
    let_go(case)
    paused = wait_for(
        "the condition of the drain",
        lambda: [
            each
            for each in case.status("NodeDrain", drain)["conditions"]
            if each["type"] == "Paused" and each["status"] == "True"
        ],
    )
    assert paused
    # 1.5 s, because evictions are retried every second.
    case.checker.settle()
    before = case.checker.evictions(case.name)
    lease = case.target.get("Lease", "navarchos-leader-election", "kube-system")
    wait_for(
        "the manager to continue",
        lambda: int(
            lease["spec"]["renewTime"]
            < case.target.get("Lease", "navarchos-leader-election", "kube-system")["spec"][
                "renewTime"
            ]
        ),
    )
    assert case.checker.evictions(case.name) == before == 0
    assert case.checker.drained == ()
    case.target.patch("NodeRollout", case.name, {"spec": {"paused": False}})
    case.wait_for_phase("Completed")
    # Another client cordoned the second node, so it stays cordoned after the drain.
    assert case.is_cordoned(second)
    assert CORDONED_BY_ANNOTATION not in case.node(second)["metadata"].get("annotations", {})


def test_deleting_a_rollout_uncordons_nodes_that_are_not_drained(case: Case) -> None:
    first, second = case.add_nodes(2)
    hold(case)
    case.add(manifests.pod(case.name, "forced", first))
    case.manager()
    (empty,) = case.add_nodes(1, first=3)
    case.roll(
        nodeSelectors=[],
        nodeNames=[
            {"name": empty, "replacement": {"priority": 1}},
            *({"name": name} for name in (first, second)),
        ],
        drain={"force": True},
        strategy={"maxConcurrent": 1},
    )
    wait_for("the empty node to be drained", lambda: drained_label(case, empty))
    drain = case.replacement(first)
    wait_for("a blocker", lambda: case.status("NodeDrain", drain).get("blockers"))
    assert case.is_cordoned(first)
    case.delete("NodeRollout")
    for kind in ("NodeRollout", "NodeReplacement", "NodeDrain"):
        wait_for(f"every {kind} to be deleted", lambda: not case.target.list(kind))  # noqa: B023 - called at once
    assert not case.is_cordoned(first)
    assert not case.is_cordoned(second)
    assert case.is_cordoned(empty)
    assert drained_label(case, empty)


def test_deleting_a_drain_of_a_user_ends_it(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 2))
    case.manager()
    case.add_nodes(1, first=2)
    case.create(manifests.drain(case.name, name))
    case.wait_for_phase("Completed", "NodeDrain")
    assert (
        case.target.get("NodeDrain", case.name)["spec"]["nodeUID"]
        == case.node(name)["metadata"]["uid"]
    )
    assert case.is_cordoned(name)
    case.delete("NodeDrain")
    wait_for("the drain to go", lambda: case.target.find("NodeDrain", case.name) is None)
    assert not case.is_cordoned(name)
    assert CORDONED_BY_ANNOTATION not in case.node(name)["metadata"].get("annotations", {})


@pytest.mark.long
def test_a_user_can_replace_one_node_and_a_missing_node(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.manager()
    case.create(manifests.replacement(case.name, name))
    case.wait_for_phase("Completed", "NodeReplacement")
    assert drained_label(case, name)
    case.create(manifests.replacement(f"{case.name}-gone", "missing"))
    status = case.wait_for_phase("Completed", "NodeReplacement", f"{case.name}-gone")
    assert status["step"]["reason"] == "NodeGone"


@pytest.mark.long
def test_a_child_name_of_another_owner_is_reported_and_not_adopted(case: Case) -> None:
    first, second = case.add_nodes(2)
    case.manager()
    taken = manifests.replacement(case.replacement(first), first, paused=True)
    case.create(taken)
    case.roll()
    wait_for(
        "the condition of the rollout",
        lambda: any(
            "belongs to another object" in each.get("message", "")
            for each in case.status().get("conditions", ())
        ),
    )
    assert case.phase() in {"New", "InProgress"}
    case.target.of("NodeReplacement").delete(case.replacement(first))
    case.wait_for_phase("Completed")
    case.checker.settle()
    assert sorted(case.checker.drained) == [first, second]


@pytest.mark.long
def test_a_finished_rollout_is_deleted_after_its_ttl(case: Case) -> None:
    case.add_nodes(1)
    case.manager()
    case.roll(ttlSecondsAfterFinished=2)
    case.wait_for_phase("Completed")
    wait_for("its deletion", lambda: case.target.find("NodeRollout", case.name) is None)


@pytest.mark.long
def test_a_node_that_a_user_cordoned_before_stays_cordoned(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.target.patch("Node", name, {"spec": {"unschedulable": True}})
    case.manager()
    case.create(manifests.drain(case.name, name))
    case.wait_for_phase("Completed", "NodeDrain")
    case.delete("NodeDrain")
    wait_for("the drain to go", lambda: case.target.find("NodeDrain", case.name) is None)
    assert case.is_cordoned(name)


@pytest.mark.long
def test_pending_pods_delay_the_next_node(case: Case) -> None:
    first, second = case.add_nodes(2)
    case.add(manifests.deployment(case.name, "web", 2))
    # When one node is cordoned, the other has no capacity for its pods.
    case.target.patch(
        "Node", second, {"spec": {"taints": [{"key": "full", "effect": "NoSchedule"}]}}
    )
    case.manager()
    wait_for("all pods on the first", lambda: len(case.pods()) == 2)
    case.roll(nodeNames=[{"name": first, "replacement": {"priority": 1}}])
    wait_for("the first to be drained", lambda: drained_label(case, first))
    if not [pod for pod in case.pods() if pod["status"]["phase"] == "Pending"]:
        pytest.skip("the scheduler placed no pod on the first node")
    waiting = wait_for(
        "the second to wait",
        lambda: (
            case.status("NodeReplacement", case.replacement(second)).get("step", {}).get("reason")
            == "PendingPods"
        ),
    )
    assert waiting
    case.add_nodes(1, first=3)
    case.wait_for_phase("Completed")


@pytest.mark.long
def test_control_plane_nodes_wait_for_an_unready_one_and_start_one_by_one(
    case: Case,
) -> None:
    role: dict[str, Any] = {CONTROL_PLANE_LABEL: ""}
    members = case.add_nodes(2, **role)
    lost = manifests.node(f"{case.name}-lost", case.name, **role)
    del lost["metadata"]["annotations"]  # so no kubelet runs it
    case.target.create(lost)
    case.manager()
    names = [{"name": name} for name in members]
    case.roll(nodeSelectors=[], nodeNames=names, strategy={"maxConcurrent": 2})
    wait_for(
        "the wait reasons of both",
        lambda: {waits_for(case, name) for name in members} == {"ControlPlane"},
    )
    assert case.checker.cordoned == ()
    case.target.of("Node").delete(lost["metadata"]["name"])
    case.wait_for_phase("Completed")
    assert sorted(case.checker.drained) == members
    assert case.checker.most_in_flight == 1


def waits_for(case: Case, node: str) -> str:
    said = case.condition("Waiting", "NodeReplacement", case.replacement(node))
    return str(said.get("reason", ""))
