"""Which nodes have the taint."""

import msgspec
import pytest
from tests.unit.operator.conftest import Make

from navarchos.client.taints import Taint
from navarchos.operator.api.v1alpha1 import NodeReplacement, Step
from navarchos.operator.nodes import NodeSpec
from navarchos.operator.taints.decide import (
    TAINT,
    desired_taints,
    has_taint,
    is_wanted,
    wants_taint,
)

FOREIGN = Taint("dedicated", "gpu", "NoSchedule")


def replacement(make: Make, *, step: Step = Step.WAITING, wants: bool = True) -> NodeReplacement:
    found: NodeReplacement = make.replacement("a", step=step, strategy={"taintWaitingNodes": wants})
    return found


@pytest.mark.parametrize("step", list(Step))
def test_a_replacement_wants_it_until_it_is_finished(make: Make, step: Step) -> None:
    assert wants_taint(replacement(make, step=step)) is (step not in {Step.DONE, Step.FAILED})


def test_a_replacement_does_not_want_it_by_default(make: Make) -> None:
    assert not wants_taint(replacement(make, wants=False))


def test_a_replacement_that_is_being_deleted_does_not_want_it(make: Make) -> None:
    strategy = {"taintWaitingNodes": True}

    assert wants_taint(make.replacement("a", strategy=strategy))
    assert not wants_taint(make.replacement("a", strategy=strategy, deleting=True))


def test_a_new_node_with_the_same_name_is_another_node(make: Make) -> None:
    asked = [replacement(make)]

    assert is_wanted(make.node("a", uid=asked[0].spec.node_uid), asked)
    assert not is_wanted(make.node("a", uid="another"), asked)


def test_taints_of_others_stay_as_they_are_in_their_order() -> None:
    later = Taint("disk", effect="NoExecute")

    assert desired_taints((FOREIGN, later), wanted=True) == (FOREIGN, later, TAINT)
    assert desired_taints((FOREIGN, TAINT, later), wanted=True) == (FOREIGN, TAINT, later)
    assert desired_taints((FOREIGN, TAINT, later), wanted=False) == (FOREIGN, later)
    assert desired_taints((FOREIGN,), wanted=False) == (FOREIGN,)


def test_the_key_belongs_to_the_operator_with_any_effect(make: Make) -> None:
    hard = Taint(TAINT.key, effect="NoSchedule")
    node = msgspec.structs.replace(make.node("a"), spec=NodeSpec(taints=(hard,)))

    assert has_taint(node)
    assert desired_taints((hard,), wanted=True) == (TAINT,)
    assert desired_taints((hard,), wanted=False) == ()
