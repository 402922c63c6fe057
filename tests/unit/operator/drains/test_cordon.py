"""Who owns a cordon, and what a drain does when another client undoes it."""

from typing import Any

import msgspec
import pytest

from navarchos.operator.api.v1alpha1 import (
    NodeDrain,
)
from navarchos.operator.drains.cordon import CordonStep, decide_cordon
from navarchos.operator.names import CORDONED_BY_ANNOTATION
from navarchos.operator.nodes import Node
from navarchos.operator.reasons import CordonReason

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
    ("open", False, {}, "", CordonStep.CORDON, CordonReason.CORDONED, True),
    (
        "open, with an annotation left over",
        False,
        OURS,
        "",
        CordonStep.CORDON,
        CordonReason.CORDONED,
        True,
    ),
    ("failed", False, {}, "ErrorCordoningNode", CordonStep.CORDON, CordonReason.CORDONED, True),
    ("ours, not yet in status", True, OURS, "", CordonStep.NOTHING, CordonReason.CORDONED, True),
    ("a user's", True, {}, "", CordonStep.NOTHING, CordonReason.CORDONED_BEFORE, True),
    ("another drain's", True, THEIRS, "", CordonStep.NOTHING, CordonReason.CORDONED_BEFORE, True),
    (
        "undone once",
        False,
        OURS,
        "NodeCordoned",
        CordonStep.CORDON,
        CordonReason.CORDONED_AGAIN,
        True,
    ),
    (
        "a user's, undone",
        False,
        {},
        "CordonedBefore",
        CordonStep.CORDON,
        CordonReason.CORDONED_AGAIN,
        True,
    ),
    ("again", True, OURS, "CordonedAgain", CordonStep.NOTHING, CordonReason.CORDONED_AGAIN, True),
    (
        "undone twice",
        False,
        OURS,
        "CordonedAgain",
        CordonStep.DROP_OWNERSHIP,
        CordonReason.UNCORDONED_BY_OTHERS,
        False,
    ),
    (
        "undone twice, annotation removed",
        False,
        {},
        "UncordonedByOthers",
        CordonStep.NOTHING,
        CordonReason.UNCORDONED_BY_OTHERS,
        False,
    ),
    (
        "cordoned by a user in the end",
        True,
        {},
        "UncordonedByOthers",
        CordonStep.NOTHING,
        CordonReason.CORDONED_AGAIN,
        True,
    ),
]


@pytest.mark.rule("OP-41")
@pytest.mark.parametrize(
    ("cordoned", "annotations", "known", "step", "reason", "in_force"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_a_drain_cordons_once_and_once_more(
    cordoned: bool,
    annotations: dict[str, str],
    known: str,
    step: CordonStep,
    reason: CordonReason,
    in_force: bool,
) -> None:
    decision = decide_cordon(node(cordoned=cordoned, annotations=annotations), drain(known))
    assert (decision.step, decision.reason, decision.in_force) == (step, reason, in_force)
