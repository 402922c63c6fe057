"""Which nodes have the taint."""

import msgspec
import pytest
from tests.unit.operator.conftest import Make

from navarchos.client.taints import Taint
from navarchos.operator.api.v1alpha1 import NodeReplacement, Step
from navarchos.operator.nodes import Node, NodeSpec
from navarchos.operator.taints.decide import (
    TAINT,
    TO_BE_REPLACED,
    TaintDeclaration,
    desired_taints,
    has_taint,
    with_taint,
)

FOREIGN = Taint("dedicated", "gpu", "NoSchedule")
SOFT = Taint("example.com/reboot", effect="PreferNoSchedule")
HARD = Taint("example.com/reboot", effect="NoExecute")


def wants_taint(replacement: NodeReplacement) -> bool:
    return TO_BE_REPLACED.wanted(replacement) == TAINT


def tainted(make: Make, *taints: Taint, uid: str = "uid-a") -> Node:
    return msgspec.structs.replace(make.node("a", uid=uid), spec=NodeSpec(taints=taints))


def replacement(make: Make, *, step: Step = Step.WAITING, wants: bool = True) -> NodeReplacement:
    found: NodeReplacement = make.replacement("a", step=step, strategy={"taintWaitingNodes": wants})
    return found


@pytest.mark.parametrize("step", list(Step))
def test_a_replacement_wants_it_until_it_is_finished(make: Make, step: Step) -> None:
    assert wants_taint(replacement(make, step=step)) is not step.is_finished


def test_a_replacement_does_not_want_it_by_default(make: Make) -> None:
    assert not wants_taint(replacement(make, wants=False))


def test_a_replacement_that_is_being_deleted_does_not_want_it(make: Make) -> None:
    strategy = {"taintWaitingNodes": True}

    assert wants_taint(make.replacement("a", strategy=strategy))
    assert not wants_taint(make.replacement("a", strategy=strategy, deleting=True))


def test_a_new_node_with_the_same_name_is_another_node(make: Make) -> None:
    asked = [replacement(make)]

    assert desired_taints(tainted(make), asked, [TO_BE_REPLACED]) == (TAINT,)
    assert desired_taints(tainted(make, uid="another"), asked, [TO_BE_REPLACED]) == ()


def test_taints_of_others_stay_as_they_are_in_their_order() -> None:
    later = Taint("disk", effect="NoExecute")

    assert with_taint((FOREIGN, later), TAINT.key, TAINT) == (FOREIGN, later, TAINT)
    assert with_taint((FOREIGN, TAINT, later), TAINT.key, TAINT) == (FOREIGN, TAINT, later)
    assert with_taint((FOREIGN, TAINT, later), TAINT.key, None) == (FOREIGN, later)
    assert with_taint((FOREIGN,), TAINT.key, None) == (FOREIGN,)


def test_the_key_belongs_to_the_operator_with_any_effect(make: Make) -> None:
    hard = Taint(TAINT.key, effect="NoSchedule")

    assert has_taint(tainted(make, hard), [TO_BE_REPLACED])
    assert with_taint((hard,), TAINT.key, TAINT) == (TAINT,)
    assert with_taint((hard,), TAINT.key, None) == ()


@pytest.mark.rule("NP-54")
def test_a_declared_taint_needs_no_code(make: Make) -> None:
    def reboot(replacement: NodeReplacement) -> Taint | None:
        return HARD if replacement.status.current is Step.DRAINING else SOFT

    declared = [TO_BE_REPLACED, TaintDeclaration(SOFT.key, reboot)]
    waiting, draining = replacement(make), replacement(make, step=Step.DRAINING)

    assert desired_taints(tainted(make, FOREIGN), [waiting], declared) == (FOREIGN, TAINT, SOFT)
    strongest = desired_taints(tainted(make, SOFT), [waiting, draining], declared)
    assert strongest == (TAINT, HARD), "one of two effects of a key is lost"
    assert desired_taints(tainted(make, TAINT, HARD, FOREIGN), [], declared) == (FOREIGN,)
    assert has_taint(tainted(make, HARD), declared)
    assert not has_taint(tainted(make, HARD), [TO_BE_REPLACED])
