"""Conflicts over a node: another rollout, a user, and a new machine with the same name."""

from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.managers import QUICK_LEASE
from tests.cases.waiting import wait_for

from navarchos.operator.names import CORDONED_BY_ANNOTATION, DRAIN_COMPLETED_LABEL

pytestmark = pytest.mark.timeout(240)


def hold(case: Case) -> None:
    """Add pods that a budget protects from eviction."""
    case.add(
        manifests.deployment(case.name, "web", 2),
        manifests.budget(case.name, "web", minAvailable=2),
    )


def wait_until_blocked(case: Case, node: str) -> None:
    drain = case.replacement(node)
    wait_for("a blocker", lambda: case.status("NodeDrain", drain).get("blockers"))


def step(case: Case, replacement: str) -> tuple[str, str]:
    """Return the step of a replacement, and its reason."""
    found = case.status("NodeReplacement", replacement).get("step", {})
    return found.get("name", ""), found.get("reason", "")


def is_marked(case: Case, node: str) -> bool:
    """Return whether the node's annotation says that the operator cordoned it."""
    return CORDONED_BY_ANNOTATION in case.node(node)["metadata"].get("annotations", {})


@pytest.mark.long
@pytest.mark.rule("OP-06")
def test_of_two_rollouts_over_the_same_nodes_the_lower_one_starts_later(
    case: Case,
) -> None:
    (held,) = case.add_nodes(1, first=2)
    hold(case)
    (empty,) = case.add_nodes(1)
    case.manager()
    names: list[dict[str, Any]] = [{"name": empty, "replacement": {"priority": 1}}, {"name": held}]
    higher = [entry | {"replacement": {"priority": 9 - at}} for at, entry in enumerate(names)]
    case.roll(nodeSelectors=[], nodeNames=higher)
    wait_until_blocked(case, held)
    lower = f"{case.name}-lower"
    case.create(manifests.rollout(case.name, lower, nodeSelectors=[], nodeNames=names))
    wait_for(
        "the wait reason of the lower one",
        lambda: step(case, f"{lower}-{empty}") == ("Waiting", "HigherPriority"),
    )
    assert step(case, case.replacement(held)) == ("Draining", "")
    # The drained machine is removed; the other one is kept.
    case.target.of("Node").delete(empty)
    case.add_nodes(1, first=3)
    case.change_budget("web", minAvailable=1)
    case.wait_for_phase("Completed")
    status = case.wait_for_phase("Completed", name=lower)
    assert sorted(status["replacementsCompleted"]) == [empty, held]
    assert step(case, f"{lower}-{empty}") == ("Done", "NodeGone")
    assert step(case, f"{lower}-{held}") == ("Done", "Drained")
    case.checker.settle()
    assert case.checker.cordoned == case.checker.drained == (empty, held)
    assert case.checker.evictions(case.name) == 2


@pytest.mark.rule("OP-20")
def test_a_new_node_with_the_same_name_is_not_drained_by_the_old_drain(
    case: Case,
) -> None:
    (name,) = case.add_nodes(1)
    hold(case)
    case.manager()
    case.roll()
    wait_until_blocked(case, name)
    assert is_marked(case, name)
    case.target.of("Node").delete(name)
    case.add_nodes(1)
    case.wait_for_phase("Completed")
    assert step(case, case.replacement(name)) == ("Done", "NodeGone")
    assert not case.is_cordoned(name)
    assert not is_marked(case, name)
    assert DRAIN_COMPLETED_LABEL not in case.node(name)["metadata"]["labels"]
    # The rollout concerned the old node only: the new node needs another rollout.
    case.settle()
    assert case.checker.evictions(case.name) == 0
    case.change_budget("web", minAvailable=1)
    case.add_nodes(1, first=2)
    again = f"{case.name}-again"
    case.create(manifests.rollout(case.name, again, nodeSelectors=[], nodeNames=[{"name": name}]))
    case.wait_for_phase("Completed", name=again)
    assert case.is_cordoned(name)
    assert case.pods(name) == []


@pytest.mark.long
@pytest.mark.rule("OP-41")
def test_a_user_who_uncordons_twice_and_then_cordons_owns_the_cordon(case: Case) -> None:
    (name,) = case.add_nodes(1)
    hold(case)
    case.manager()
    case.roll()
    drain = case.replacement(name)
    wait_until_blocked(case, name)

    def wait_for_cordon(reason: str) -> dict[str, Any]:
        def is_said() -> bool:
            return case.condition("NodeCordoned", "NodeDrain", drain).get("reason") == reason

        wait_for(f"the reason {reason} of the drain", is_said)
        return case.condition("NodeCordoned", "NodeDrain", drain)

    case.target.patch("Node", name, {"spec": {"unschedulable": None}})
    wait_for_cordon("CordonedAgain")
    assert is_marked(case, name)
    case.target.patch("Node", name, {"spec": {"unschedulable": None}})
    yielded = wait_for_cordon("UncordonedByOthers")
    assert "to continue the drain, cordon the node" in yielded["message"]
    assert not case.is_cordoned(name)
    assert not is_marked(case, name)
    case.target.patch("Node", name, {"spec": {"unschedulable": True}})
    wait_for_cordon("CordonedAgain")
    case.delete("NodeRollout")
    wait_for("the drain to go", lambda: case.target.find("NodeDrain", drain) is None)
    assert case.is_cordoned(name)
    assert case.checker.evictions(case.name) == 0


@pytest.mark.rule("OP-41")
def test_a_user_who_cordons_again_while_no_manager_runs_owns_the_cordon(
    case: Case,
) -> None:
    (name,) = case.add_nodes(1)
    hold(case)
    manager = case.manager(*QUICK_LEASE)
    case.roll()
    drain = case.replacement(name)
    wait_until_blocked(case, name)
    manager.kill()
    for closed in (None, True):
        case.target.patch("Node", name, {"spec": {"unschedulable": closed}})
    assert is_marked(case, name)
    case.manager(*QUICK_LEASE)
    case.delete("NodeRollout")
    wait_for("the drain to go", lambda: case.target.find("NodeDrain", drain) is None)
    assert case.is_cordoned(name)
    assert not is_marked(case, name)
    assert case.checker.evictions(case.name) == 0
