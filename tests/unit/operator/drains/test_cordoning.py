"""Whose cordon it is, and what is done when somebody undoes it."""

from typing import Any

import msgspec
import pytest

from navarchos.operator.api.v1alpha1 import NodeDrain
from navarchos.operator.drains.cordoning import CordonStep, decide
from navarchos.operator.drains.status import DrainReason
from navarchos.operator.names import CORDONED_BY_ANNOTATION
from navarchos.operator.nodes import Node

OURS = {CORDONED_BY_ANNOTATION: "d/u"}
THEIRS = {CORDONED_BY_ANNOTATION: "other/x"}


def drain(reason: str = "") -> NodeDrain:
    conditions = [{"type": "NodeCordoned", "status": "True", "reason": reason}] if reason else []
    wire: dict[str, Any] = {
        "metadata": {"name": "d", "uid": "u"},
        "spec": {"nodeName": "n1"},
        "status": {"conditions": conditions},
    }
    return msgspec.convert(wire, NodeDrain)


def node(*, cordoned: bool, annotations: dict[str, str] | None = None) -> Node:
    wire = {
        "metadata": {"name": "n1", "uid": "n", "annotations": annotations or {}},
        "spec": {"unschedulable": cordoned},
    }
    return msgspec.convert(wire, Node)


TABLE = [
    ("open", False, {}, "", CordonStep.CORDON, DrainReason.CORDONED, True),
    ("open, with a mark left over", False, OURS, "", CordonStep.CORDON, DrainReason.CORDONED, True),
    ("failed", False, {}, "ErrorCordoningNode", CordonStep.CORDON, DrainReason.CORDONED, True),
    ("ours, not yet noted", True, OURS, "", CordonStep.NOTHING, DrainReason.CORDONED, True),
    ("a person's", True, {}, "", CordonStep.NOTHING, DrainReason.CORDONED_BEFORE, True),
    ("another drain's", True, THEIRS, "", CordonStep.NOTHING, DrainReason.CORDONED_BEFORE, True),
    (
        "undone once",
        False,
        OURS,
        "NodeCordoned",
        CordonStep.CORDON,
        DrainReason.CORDONED_AGAIN,
        True,
    ),
    (
        "a person's, undone",
        False,
        {},
        "CordonedBefore",
        CordonStep.CORDON,
        DrainReason.CORDONED_AGAIN,
        True,
    ),
    ("again", True, OURS, "CordonedAgain", CordonStep.NOTHING, DrainReason.CORDONED_AGAIN, True),
    (
        "undone twice",
        False,
        OURS,
        "CordonedAgain",
        CordonStep.LET_GO,
        DrainReason.UNCORDONED_BY_OTHERS,
        False,
    ),
    (
        "undone twice, mark removed",
        False,
        {},
        "UncordonedByOthers",
        CordonStep.NOTHING,
        DrainReason.UNCORDONED_BY_OTHERS,
        False,
    ),
    (
        "closed by a person in the end",
        True,
        {},
        "UncordonedByOthers",
        CordonStep.NOTHING,
        DrainReason.CORDONED_AGAIN,
        True,
    ),
]


@pytest.mark.rule("OP-41")
@pytest.mark.parametrize(
    ("cordoned", "annotations", "known", "step", "reason", "holds"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_a_cordon_is_set_once_and_defended_once(
    cordoned: bool,
    annotations: dict[str, str],
    known: str,
    step: CordonStep,
    reason: DrainReason,
    holds: bool,
) -> None:
    subject = drain(known)
    verdict = decide(node(cordoned=cordoned, annotations=annotations), subject, subject.status)
    assert (verdict.step, verdict.reason, verdict.holds) == (step, reason, holds)
