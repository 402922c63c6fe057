"""Each step's decision, as a table."""

from typing import Any

import pytest

from navarchos.operator.api.v1alpha1 import DrainPhase, Step
from navarchos.operator.replacements.attempt_drain import drain_manifest, drain_name
from navarchos.operator.replacements.steps import cordoned, draining, releasing, reserved, waiting
from navarchos.operator.replacements.steps.actions import (
    Advance,
    Complete,
    CompleteWithoutNode,
    CreateDrain,
    DeleteDrain,
    FailAttempt,
    KeepCordon,
    NoAction,
    ReleaseSlot,
)

DELETED = FailAttempt("DrainDeleted", "its NodeDrain was deleted")


@pytest.mark.rule("OP-20")
def test_reserved_looks_at_the_node_before_anything_else(make: Any) -> None:
    replacement = make.replacement("a", step=Step.RESERVED)
    assert reserved.decide(replacement, None) == CompleteWithoutNode()
    assert reserved.decide(replacement, make.node("a", uid="another")) == CompleteWithoutNode()
    assert reserved.decide(replacement, make.node("a")) == CreateDrain()


@pytest.mark.rule("OP-07")
def test_reserved_does_not_cordon_while_paused(make: Any) -> None:
    paused = make.replacement("a", step=Step.RESERVED, paused=True)
    assert reserved.decide(paused, make.node("a")) == NoAction()


@pytest.mark.parametrize(
    ("drain", "move"),
    [
        ({"phase": None, "cordoned": False}, NoAction()),
        ({"phase": DrainPhase.PENDING}, Advance(Step.CORDONED)),
        ({"phase": DrainPhase.FAILED, "cordoned": False}, Advance(Step.DRAINING)),
        ({"phase": DrainPhase.PENDING, "deleting": True}, DELETED),
    ],
)
def test_reserved_follows_its_drain(make: Any, drain: dict[str, Any], move: object) -> None:
    replacement = make.replacement("a", step=Step.RESERVED)
    assert reserved.follow(make.drain(replacement, **drain)) == move


@pytest.mark.parametrize(
    ("phase", "move"),
    [
        (DrainPhase.PENDING, NoAction()),
        (DrainPhase.DRAINING, Advance(Step.DRAINING)),
        (DrainPhase.COMPLETED, Advance(Step.DRAINING)),
        (DrainPhase.FAILED, Advance(Step.DRAINING)),
    ],
)
def test_cordoned_waits_for_the_first_eviction(make: Any, phase: DrainPhase, move: object) -> None:
    assert cordoned.decide(make.drain(make.replacement("a"), phase=phase)) == move
    assert cordoned.decide(None) == DELETED


@pytest.mark.rule("OP-25")
@pytest.mark.parametrize(
    ("phase", "reason", "move"),
    [
        (DrainPhase.DRAINING, "", NoAction()),
        (DrainPhase.COMPLETED, "", Complete()),
        (DrainPhase.COMPLETED, "NodeGone", CompleteWithoutNode()),
        (DrainPhase.FAILED, "NodeGone", CompleteWithoutNode()),
        (DrainPhase.FAILED, "Timeout", FailAttempt("Timeout", "why")),
        (DrainPhase.FAILED, "", FailAttempt("DrainFailed", "why")),
    ],
)
def test_draining_ends_as_its_drain_does(
    make: Any, phase: DrainPhase, reason: str, move: object
) -> None:
    status = {"reason": reason, "message": "why"}
    assert draining.decide(make.drain(make.replacement("a"), phase=phase, status=status)) == move


def test_a_drain_that_a_person_deleted_fails_the_attempt(make: Any) -> None:
    replacement = make.replacement("a")
    assert draining.decide(None) == DELETED
    for phase in (DrainPhase.DRAINING, DrainPhase.COMPLETED):
        assert draining.decide(make.drain(replacement, phase=phase, deleting=True)) == DELETED


@pytest.mark.rule("OP-25")
@pytest.mark.parametrize(
    ("policy", "drain", "move"),
    [
        ("Uncordon", {}, DeleteDrain()),
        ("Uncordon", {"deleting": True}, NoAction()),
        ("Keep", {}, KeepCordon()),
        ("Keep", {"uncordonOnDelete": False}, ReleaseSlot()),
        ("Keep", {"deleting": True}, NoAction()),
    ],
)
def test_releasing_gives_the_node_back_by_policy(
    make: Any, policy: str, drain: dict[str, Any], move: object
) -> None:
    replacement = make.replacement("a", step=Step.RELEASING, strategy={"onNodeFailure": policy})
    failed = make.drain(replacement, phase=DrainPhase.FAILED, **drain)
    assert releasing.decide(replacement, failed) == move
    assert releasing.decide(replacement, None) == ReleaseSlot()


@pytest.mark.rule("OP-20")
def test_waiting_asks_the_server_only_when_the_cache_shows_no_such_node(make: Any) -> None:
    replacement = make.replacement("a")
    assert not waiting.may_be_gone(replacement, make.node("a"))
    assert waiting.may_be_gone(replacement, None)
    assert waiting.may_be_gone(replacement, make.node("a", uid="another"))
    assert waiting.decide(replacement, None) == CompleteWithoutNode()
    assert waiting.decide(replacement, make.node("a", uid="another")) == CompleteWithoutNode()
    assert waiting.decide(replacement, make.node("a")) == NoAction()
    by_hand = make.replacement("a", rollout="", nodeUID="")
    assert waiting.decide(by_hand, make.node("a")) == NoAction()


def test_each_attempt_has_a_drain_of_its_own(make: Any) -> None:
    assert drain_name(make.replacement("a")) == "roll-a"
    assert drain_name(make.replacement("a", attempts=1)) == "roll-a-attempt2"
    # What is released is the drain of the attempt that has just been counted.
    assert drain_name(make.replacement("a", step=Step.RELEASING, attempts=1)) == "roll-a"
    second = make.replacement("a", step=Step.RELEASING, attempts=2)
    assert drain_name(second) == "roll-a-attempt2"


@pytest.mark.rule("N-9")
def test_a_drain_carries_the_options_and_one_owner(make: Any) -> None:
    replacement = make.replacement("a", drain={"timeoutSeconds": 7}, paused=True)
    body: Any = drain_manifest(replacement)
    assert body["spec"]["nodeName"] == "a"
    assert body["spec"]["nodeUID"] == "uid-a"
    assert body["spec"]["timeoutSeconds"] == 7
    assert body["spec"]["paused"] is True
    assert body["spec"]["uncordonOnDelete"] is True
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("NodeReplacement", "uid-roll-a")
