"""What is shown of a rollout and of a drain, in words and as JSON."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.unit.operator.conftest import Make

from navarchos.cli.summary import (
    MAX_LINES,
    Summary,
    rollout_lines,
    summarize,
    summarize_rollout,
    summary_lines,
)
from navarchos.operator.api.v1alpha1 import (
    AttemptFailure,
    Blocker,
    DrainPhase,
    NodeRollout,
    RolloutPhase,
    Step,
)
from navarchos.runtime.conditions import Condition

make = Make()


def blocker(pod: str, **state: Any) -> Blocker:
    given = {"reason": "BlockedByBudget", "budget": "shop/web", "first_seen": make.at(-125)}
    return Blocker(namespace="shop", pod=pod, next_action="tried again", **(given | state))


def blocked(*blockers: Blocker, count: int = 0) -> Summary:
    rollout = make.rollout(nodes=("a", "b"), status={"in_flight": ("a",)})
    busy = make.replacement("a", step=Step.DRAINING, since=-60)
    drain = make.drain(
        busy,
        status={"remaining": 3, "blocked": count or len(blockers)},
    )
    status = msgspec.structs.replace(drain.status, blockers=blockers)
    drain = msgspec.structs.replace(drain, status=status)
    waiting = make.replacement("b", reason="MaxConcurrent")
    return summarize([rollout], [busy, waiting], [drain])


def test_a_blocked_pod_is_shown_with_budget_since_when_and_what_comes_next() -> None:
    lines = summary_lines(blocked(blocker("web-0")), make.now)
    assert lines == [
        "roll  InProgress  [........................]  0/2  no estimate yet",
        "  in flight  a  Draining for 1m0s  3 pods left",
        "  blocked    shop/web-0 on a  BlockedByBudget shop/web for 2m5s; tried again",
        "  waiting    b  MaxConcurrent for 0s: ",
        "  next       shop/web-0: tried again",
    ]


def test_a_node_that_is_stalled_is_shown_as_such() -> None:
    rollout = make.rollout(nodes=("a",), status={"stalled": ("a",)})
    stalled = make.replacement(
        "a", step=Step.DRAINING, since=-600, status={"stalled_since": make.at(-300)}
    )
    lines = summary_lines(summarize([rollout], [stalled], [make.drain(stalled)]), make.now)
    assert lines[1] == "  in flight  a  Draining for 10m0s  stalled for 5m0s"


def test_where_no_budget_is_in_the_way_the_refusal_is_quoted() -> None:
    denied = blocker("web-0", reason="WebhookDenied", budget="", message="webhook stay.example no")
    lines = summary_lines(blocked(denied), make.now)
    what = "shop/web-0 on a  WebhookDenied for 2m5s: webhook stay.example no; tried again"
    assert lines[2] == f"  blocked    {what}"


def test_of_many_some_are_shown_and_all_are_counted() -> None:
    many = blocked(*(blocker(f"web-{n}") for n in range(MAX_LINES + 5)), count=70)
    lines = [line for line in summary_lines(many, make.now) if line.startswith("  blocked")]
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == f"  blocked    and {70 - MAX_LINES} more"


@pytest.mark.parametrize(
    ("rollout", "next_action"),
    [
        (make.rollout(phase=None), "a manager has to take it up: is navarchos manager running?"),
        (make.rollout(phase=RolloutPhase.COMPLETED), ""),
        (make.rollout(phase=RolloutPhase.HALTED), "mend what failed, then: navarchos resume roll"),
        (make.rollout(paused=True), "navarchos resume roll"),
        (
            make.rollout(deleting=True),
            "it is being deleted; nodes that are not empty are given back",
        ),
        (make.rollout(), ""),
    ],
)
def test_the_next_action_is_what_ends_the_present_state(
    rollout: NodeRollout, next_action: str
) -> None:
    assert summarize_rollout(rollout, (), ()).next_action == next_action


def test_a_halted_rollout_says_why_and_which_nodes_failed() -> None:
    halted = Condition(type="Halted", status="True", reason="TooManyFailures", message="1 failed")
    rollout = make.rollout(
        phase=RolloutPhase.HALTED, nodes=("a",), status={"conditions": (halted,)}
    )
    failure = AttemptFailure(attempt=1, at=make.now, reason="Timeout", message="2 pods are left")
    child = make.replacement("a", step=Step.FAILED, status={"failures": (failure,)})
    lines = rollout_lines(summarize_rollout(rollout, [child], ()), make.now)
    assert lines[1:] == [
        "  failed     a  Timeout: 2 pods are left",
        "  because    1 failed",
        "  next       mend what failed, then: navarchos resume roll",
    ]


def test_the_estimate_and_the_bar_follow_the_count() -> None:
    rollout = make.rollout(
        nodes=("a", "b"),
        status={
            "replacements_completed_count": 1,
            "estimated_completion": make.now + timedelta(seconds=90),
        },
    )
    (line,) = rollout_lines(summarize_rollout(rollout, (), ()), make.now)
    assert line == "roll  InProgress  [############............]  1/2  about 90 s left"


def test_only_drains_that_nobody_owns_stand_beside_rollouts() -> None:
    owned = make.drain(make.replacement("a", step=Step.DRAINING), phase=DrainPhase.DRAINING)
    meta = msgspec.structs.replace(owned.metadata, owner_references=(), name="by-hand")
    by_hand = msgspec.structs.replace(owned, metadata=meta)
    assert [drain.name for drain in summarize([], [], [owned, by_hand]).drains] == ["by-hand"]


def test_nothing_is_said_in_words_too() -> None:
    assert summary_lines(Summary(rollouts=(), drains=()), make.now) == [
        "no rollout and no drain by hand"
    ]


def test_the_fields_of_the_json_are_those_that_are_documented() -> None:
    """docs/operations.md names them; a script that reads one finds it in every version."""
    plain = msgspec.json.decode(msgspec.json.encode(blocked(blocker("web-0"))))
    (rollout,) = plain["rollouts"]
    assert sorted(plain) == ["drains", "outOfDateBecause", "rollouts"]
    assert sorted(rollout) == sorted(
        [
            "name",
            "phase",
            "paused",
            "nodes",
            "completed",
            "failed",
            "inFlight",
            "waiting",
            "blocked",
            "blockedCount",
            "started",
            "ended",
            "estimatedCompletion",
            "message",
            "nextAction",
        ]
    )
    assert sorted(rollout["inFlight"][0]) == [
        "deadline",
        "node",
        "podsLeft",
        "since",
        "stalledSince",
        "step",
    ]
    assert sorted(rollout["blocked"][0]) == sorted(
        ["node", "namespace", "pod", "reason", "budget", "message", "since", "nextAction"]
    )
    assert sorted(rollout["waiting"]) == ["message", "node", "reason", "since"]
