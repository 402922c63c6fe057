"""The decision of each step, as a table."""

from typing import Any

import pytest
from tests.unit.operator.conftest import Make

from navarchos.operator.api.v1alpha1 import DrainPhase, NodeDrain, Step
from navarchos.operator.replacements.attempt_drain import drain_manifest, drain_name
from navarchos.operator.replacements.steps import (
    cordoned,
    decide,
    draining,
    releasing,
    reserved,
    waiting,
)
from navarchos.operator.replacements.steps.decision import (
    Advance,
    Complete,
    CompleteWithoutNode,
    CreateDrain,
    Decision,
    DeleteDrain,
    FailAttempt,
    KeepCordon,
    NoAction,
    RecordNodeUid,
    ReleaseSlot,
    StepObservation,
)

DELETED = FailAttempt("DrainDeleted", "its NodeDrain was deleted")


@pytest.mark.parametrize("step", [step for step in Step if step.is_finished])
def test_a_finished_step_does_nothing(make: Make, step: Step) -> None:
    assert decide(StepObservation(make.replacement("a", step=step))) == NoAction()


@pytest.mark.rule("OP-20")
def test_reserved_checks_the_node_before_it_creates_the_drain(make: Make) -> None:
    replacement = make.replacement("a", step=Step.RESERVED)
    another = make.node("a", uid="another")
    assert reserved.decide(StepObservation(replacement)) == CompleteWithoutNode()
    assert reserved.decide(StepObservation(replacement, node=another)) == CompleteWithoutNode()
    assert reserved.decide(StepObservation(replacement, node=make.node("a"))) == CreateDrain()


@pytest.mark.rule("OP-07")
def test_reserved_does_not_cordon_while_paused_or_abandoned(make: Make) -> None:
    paused = make.replacement("a", step=Step.RESERVED, paused=True)
    assert reserved.decide(StepObservation(paused, node=make.node("a"))) == NoAction()
    abandoned = make.replacement("a", step=Step.RESERVED)
    assert reserved.decide(StepObservation(abandoned, is_abandoned=True)) == NoAction()


@pytest.mark.parametrize(
    ("drain", "decision"),
    [
        ({"phase": None, "cordoned": False}, NoAction()),
        ({"phase": DrainPhase.PENDING}, Advance(Step.CORDONED)),
        ({"phase": DrainPhase.FAILED, "cordoned": False}, Advance(Step.DRAINING)),
        ({"phase": DrainPhase.PENDING, "deleting": True}, DELETED),
        ({"phase": DrainPhase.PREPARING, "cordoned": False}, Advance(Step.PREPARING)),
        ({"phase": DrainPhase.PREPARING}, Advance(Step.CORDONED)),
    ],
)
def test_reserved_follows_its_drain(make: Make, drain: dict[str, Any], decision: Decision) -> None:
    replacement = make.replacement("a", step=Step.RESERVED)
    observed = StepObservation(replacement, make.drain(replacement, **drain))
    assert reserved.decide(observed) == decision


@pytest.mark.parametrize(
    ("phase", "decision"),
    [
        (DrainPhase.PENDING, NoAction()),
        (DrainPhase.DRAINING, Advance(Step.DRAINING)),
        (DrainPhase.COMPLETED, Advance(Step.DRAINING)),
        (DrainPhase.FAILED, Advance(Step.DRAINING)),
    ],
)
def test_cordoned_waits_for_the_first_eviction(
    make: Make, phase: DrainPhase, decision: Decision
) -> None:
    replacement = make.replacement("a")
    drain = make.drain(replacement, phase=phase)
    assert cordoned.decide(StepObservation(replacement, drain)) == decision
    assert cordoned.decide(StepObservation(replacement)) == DELETED


@pytest.mark.rule("IG-70")
@pytest.mark.parametrize(
    ("drain", "decision"),
    [
        ({"phase": DrainPhase.PREPARING, "cordoned": False}, NoAction()),
        ({"phase": DrainPhase.PREPARING}, Advance(Step.CORDONED)),
        ({"phase": DrainPhase.DRAINING}, Advance(Step.DRAINING)),
        ({"phase": DrainPhase.FAILED, "cordoned": False}, Advance(Step.DRAINING)),
        ({"phase": DrainPhase.PREPARING, "cordoned": False, "deleting": True}, DELETED),
    ],
)
def test_preparing_ends_with_the_cordon(
    make: Make, drain: dict[str, Any], decision: Decision
) -> None:
    replacement = make.replacement("a", step=Step.PREPARING)
    observed = StepObservation(replacement, make.drain(replacement, **drain))
    assert decide(observed) == decision
    assert decide(StepObservation(replacement)) == DELETED


@pytest.mark.rule("OP-25")
@pytest.mark.parametrize(
    ("phase", "reason", "decision"),
    [
        (DrainPhase.DRAINING, "", NoAction()),
        (DrainPhase.COMPLETED, "", Complete()),
        (DrainPhase.COMPLETED, "NodeGone", CompleteWithoutNode()),
        (DrainPhase.FAILED, "NodeGone", CompleteWithoutNode()),
        (DrainPhase.FAILED, "Timeout", FailAttempt("Timeout", "why")),
        (DrainPhase.FAILED, "", FailAttempt("DrainFailed", "why")),
    ],
)
def test_draining_ends_with_the_result_of_its_drain(
    make: Make, phase: DrainPhase, reason: str, decision: Decision
) -> None:
    replacement = make.replacement("a")
    drain = make.drain(replacement, phase=phase, status={"reason": reason, "message": "why"})
    assert draining.decide(StepObservation(replacement, drain)) == decision


def test_a_deleted_drain_fails_the_attempt(make: Make) -> None:
    replacement = make.replacement("a")
    assert draining.decide(StepObservation(replacement)) == DELETED
    for phase in (DrainPhase.DRAINING, DrainPhase.COMPLETED):
        drain = make.drain(replacement, phase=phase, deleting=True)
        assert draining.decide(StepObservation(replacement, drain)) == DELETED


@pytest.mark.rule("OP-25")
@pytest.mark.parametrize(
    ("policy", "drain", "decision"),
    [
        ("Uncordon", {}, DeleteDrain()),
        ("Uncordon", {"deleting": True}, NoAction()),
        ("Keep", {}, KeepCordon()),
        ("Keep", {"uncordonOnDelete": False}, ReleaseSlot()),
        ("Keep", {"deleting": True}, NoAction()),
    ],
)
def test_releasing_uncordons_or_keeps_the_cordon_by_policy(
    make: Make, policy: str, drain: dict[str, Any], decision: Decision
) -> None:
    replacement = make.replacement("a", step=Step.RELEASING, strategy={"onNodeFailure": policy})
    failed: NodeDrain = make.drain(replacement, phase=DrainPhase.FAILED, **drain)
    assert releasing.decide(StepObservation(replacement, failed)) == decision
    assert releasing.decide(StepObservation(replacement)) == ReleaseSlot()


@pytest.mark.rule("OP-20")
def test_waiting_finishes_when_the_node_is_gone(make: Make) -> None:
    replacement = make.replacement("a")
    another = make.node("a", uid="another")
    assert waiting.decide(StepObservation(replacement)) == CompleteWithoutNode()
    assert waiting.decide(StepObservation(replacement, node=another)) == CompleteWithoutNode()
    assert waiting.decide(StepObservation(replacement, node=make.node("a"))) == NoAction()


def test_waiting_records_the_uid_of_a_replacement_without_one(make: Make) -> None:
    without = make.replacement("a", rollout="", nodeUID="")
    assert waiting.decide(StepObservation(without, node=make.node("a"))) == RecordNodeUid("uid-a")


def test_each_attempt_has_a_separate_drain(make: Make) -> None:
    assert drain_name(make.replacement("a")) == "roll-a"
    assert drain_name(make.replacement("a", attempts=1)) == "roll-a-attempt2"
    # Releasing concerns the drain of the attempt that has just been counted.
    assert drain_name(make.replacement("a", step=Step.RELEASING, attempts=1)) == "roll-a"
    second = make.replacement("a", step=Step.RELEASING, attempts=2)
    assert drain_name(second) == "roll-a-attempt2"


@pytest.mark.rule("N-9")
def test_a_drain_has_the_options_and_one_owner(make: Make) -> None:
    replacement = make.replacement("a", drain={"timeoutSeconds": 7}, paused=True)
    body: Any = drain_manifest(replacement)
    assert body["spec"]["nodeName"] == "a"
    assert body["spec"]["nodeUID"] == "uid-a"
    assert body["spec"]["timeoutSeconds"] == 7
    assert body["spec"]["paused"] is True
    assert body["spec"]["uncordonOnDelete"] is True
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("NodeReplacement", "uid-roll-a")
