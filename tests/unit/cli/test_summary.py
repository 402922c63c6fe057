"""Summaries of rollouts and drains, as text and as JSON."""

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
    summarize_drain,
    summarize_rollout,
    summary_lines,
)
from navarchos.operator.api.v1alpha1 import (
    AttemptFailure,
    Blocker,
    DrainPhase,
    GateState,
    GateStatus,
    NodeRollout,
    RolloutPhase,
    Step,
    WaveApproval,
    WaveState,
    WaveStatus,
)
from navarchos.runtime.conditions import Condition

make = Make()


def blocker(pod: str, **state: Any) -> Blocker:
    given: dict[str, Any] = {
        "reason": "BlockedByBudget",
        "budget": "shop/web",
        "first_seen": make.at(-125),
    }
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


def test_a_blocked_pod_is_shown_with_its_budget_duration_and_next_action() -> None:
    lines = summary_lines(blocked(blocker("web-0")), make.now)
    assert lines == [
        "roll  InProgress  [........................]  0/2  no estimate yet",
        "  in flight  a  Draining for 1m0s  3 pods left",
        "  blocked    shop/web-0 on a  BlockedByBudget shop/web for 2m5s; tried again",
        "  waiting    b  MaxConcurrent for 0s: ",
        "  next       shop/web-0: tried again",
    ]


def test_a_stalled_node_is_marked() -> None:
    rollout = make.rollout(nodes=("a",), status={"stalled": ("a",)})
    stalled = make.replacement(
        "a", step=Step.DRAINING, since=-600, status={"stalled_since": make.at(-300)}
    )
    lines = summary_lines(summarize([rollout], [stalled], [make.drain(stalled)]), make.now)
    assert lines[1] == "  in flight  a  Draining for 10m0s  stalled for 5m0s"


def test_the_message_is_shown_if_no_budget_blocks() -> None:
    denied = blocker("web-0", reason="WebhookDenied", budget="", message="webhook stay.example no")
    lines = summary_lines(blocked(denied), make.now)
    what = "shop/web-0 on a  WebhookDenied for 2m5s: webhook stay.example no; tried again"
    assert lines[2] == f"  blocked    {what}"


def test_a_long_list_is_cut_and_counted() -> None:
    many = blocked(*(blocker(f"web-{n}") for n in range(MAX_LINES + 5)), count=70)
    lines = [line for line in summary_lines(many, make.now) if line.startswith("  blocked")]
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == f"  blocked    and {70 - MAX_LINES} more"


@pytest.mark.parametrize(
    ("rollout", "next_action"),
    [
        (
            make.rollout(phase=None),
            "not picked up by any manager yet; is navarchos manager running?",
        ),
        (make.rollout(phase=RolloutPhase.COMPLETED), ""),
        (
            make.rollout(phase=RolloutPhase.HALTED),
            "fix the failures, then run: navarchos resume roll",
        ),
        (make.rollout(paused=True), "navarchos resume roll"),
        (
            make.rollout(deleting=True),
            "the rollout is being deleted; nodes that are not drained will be uncordoned",
        ),
        (make.rollout(), ""),
    ],
)
def test_the_next_action_follows_the_phase(rollout: NodeRollout, next_action: str) -> None:
    assert summarize_rollout(rollout, (), ()).next_action == next_action


def test_a_halted_rollout_shows_its_failed_nodes_and_the_reason() -> None:
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
        "  next       fix the failures, then run: navarchos resume roll",
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


def test_only_drains_without_an_owner_are_listed_beside_rollouts() -> None:
    owned = make.drain(make.replacement("a", step=Step.DRAINING), phase=DrainPhase.DRAINING)
    meta = msgspec.structs.replace(owned.metadata, owner_references=(), name="by-hand")
    by_hand = msgspec.structs.replace(owned, metadata=meta)
    assert [drain.name for drain in summarize([], [], [owned, by_hand]).drains] == ["by-hand"]


@pytest.mark.rule("NP-04")
def test_drains_of_other_kinds_are_listed_with_their_owner() -> None:
    drain = make.drain(make.replacement("a", step=Step.DRAINING))
    (owner,) = drain.metadata.owner_references
    owner = msgspec.structs.replace(owner, kind="NodeReboot", name="monthly")
    meta = msgspec.structs.replace(drain.metadata, owner_references=(owner,), name="reboot-a")
    (shown,) = summarize([], [], [msgspec.structs.replace(drain, metadata=meta)]).drains
    assert (shown.name, shown.owner) == ("reboot-a", "NodeReboot monthly")


@pytest.mark.rule("NP-05")
def test_the_first_waiting_node_is_not_one_that_delays_no_other() -> None:
    needed = make.replacement("a", reason="NodeNeeded")
    blocked = make.replacement("b", reason="MaxConcurrent")
    rollout = make.rollout(nodes=("a", "b"))
    waiting = summarize_rollout(rollout, [needed, blocked], ()).waiting
    assert waiting is not None
    assert (waiting.node, waiting.reason) == ("b", "MaxConcurrent")
    alone = summarize_rollout(rollout, [needed], ()).waiting
    assert alone is not None
    assert alone.reason == "NodeNeeded"


def told(type_: str, message: str) -> tuple[Condition, ...]:
    return (Condition(type=type_, status="False", reason="Running", message=message),)


@pytest.mark.rule("NP-31")
@pytest.mark.rule("NP-21")
@pytest.mark.rule("NP-41")
def test_the_whole_pipeline_is_shown() -> None:
    """A node in each step that waits for something, the gates, the window and the cancellation."""
    gate = GateStatus(name="web", state=GateState.CLOSED, since=make.at(-60), message="not Ready")
    open_gate = GateStatus(name="pods", state=GateState.OPEN, since=make.at(-5))
    status = {"gates": (gate, open_gate), "replacements_cancelled_count": 2}
    rollout = make.rollout(nodes=tuple("abcdefg"), status=status)
    messages = {
        "a": (Step.ACTING, told("ActionCompleted", "Job shop/a is running")),
        "b": (Step.VERIFYING, told("NodeVerified", "not Ready for 30 s")),
        "c": (Step.RELEASING, told("ActionCompleted", "its pods terminate")),
        "d": (Step.PREPARING, ()),
    }
    children = [
        make.replacement(name, step=step, since=-60, status={"conditions": conditions})
        for name, (step, conditions) in messages.items()
    ]
    waiting = make.replacement(
        "e",
        reason="OutsideWindow",
        since=-60,
        status={"conditions": told("Waiting", "the next window opens at 22:00")},
    )
    drain = make.drain(children[-1], phase=DrainPhase.PREPARING)
    conditions = told("Prepared", "the hook f5 has not answered")
    drain = msgspec.structs.replace(
        drain, status=msgspec.structs.replace(drain.status, conditions=conditions)
    )
    (shown,) = summarize([rollout], [*children, waiting], [drain]).rollouts
    lines = rollout_lines(shown, make.now)
    assert lines[0].endswith("2 cancelled")
    assert lines[1:] == [
        "  in flight  a  Acting for 1m0s: Job shop/a is running",
        "  in flight  b  Verifying for 1m0s: not Ready for 30 s",
        "  in flight  c  Releasing for 1m0s: its pods terminate",
        "  in flight  d  Preparing for 1m0s: the hook f5 has not answered",
        "  waiting    e  OutsideWindow for 1m0s: the next window opens at 22:00",
        "  gates      web  Closed for 1m0s: not Ready",
        "  gates      pods  Open for 5s",
        "  next       the next window opens at 22:00",
    ]
    plain = msgspec.to_builtins(shown)
    assert [node["message"] for node in plain["inFlight"]] == [
        "Job shop/a is running",
        "not Ready for 30 s",
        "its pods terminate",
        "the hook f5 has not answered",
    ]
    assert [(one["name"], one["state"]) for one in plain["gates"]] == [
        ("web", "Closed"),
        ("pods", "Open"),
    ]
    assert (plain["waiting"]["reason"], plain["cancelled"]) == ("OutsideWindow", 2)


@pytest.mark.rule("NP-43")
def test_a_wave_shows_since_when_it_waits_and_why_an_approval_was_refused() -> None:
    approval = WaveApproval(number=1, up_to=1, by="jane", at=make.at(-900))
    wave = WaveStatus(
        number=2,
        of=3,
        up_to=4,
        state=WaveState.AWAITING_APPROVAL,
        since=make.at(-600),
        approvals=(approval,),
    )
    refused = Condition(
        type="ApprovalRefused", status="True", reason="WrongApproval", message="wave 9 does not"
    )
    status = {"wave": wave, "conditions": (refused,)}
    (shown,) = summarize([make.rollout(nodes=("a",), status=status)], [], []).rollouts
    lines = rollout_lines(shown, make.now)
    assert "  wave       2 of 3, up to 4 nodes  AwaitingApproval for 10m0s" in lines
    assert "  because    wave 9 does not" in lines
    assert shown.next_action == "navarchos approve roll"
    (plain,) = msgspec.to_builtins(shown)["wave"]["approvals"]
    assert (plain["number"], plain["by"]) == (1, "jane")


@pytest.mark.rule("NP-41")
def test_a_strategy_that_is_invalid_is_explained() -> None:
    invalid = Condition(
        type="StrategyInvalid", status="True", reason="InvalidStrategy", message="windows[0] is bad"
    )
    shown = make.rollout(nodes=("a",), status={"conditions": (invalid,)})
    assert summarize_rollout(shown, [], []).message == "windows[0] is bad"


def test_an_empty_cluster_has_one_line() -> None:
    assert summary_lines(Summary(rollouts=(), drains=()), make.now) == [
        "no rollouts, and no drains outside of rollouts"
    ]


def test_the_json_has_the_documented_fields() -> None:
    """docs/operations.md lists them. Scripts rely on them in every version."""
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
            "cancelled",
            "wave",
            "inFlight",
            "waiting",
            "gates",
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
        "message",
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


def test_a_drain_shows_which_pods_are_replaced_first() -> None:
    make = Make()
    text = "replaced first by their Deployments: default/web-1"
    shown = {}
    for reason in ("Draining", "TimeoutHold"):
        found = Condition(type="NodeDrained", status="False", reason=reason, message=text)
        drain = make.drain(make.replacement("a"), phase=DrainPhase.DRAINING)
        status = msgspec.structs.replace(drain.status, conditions=(found,))
        shown[reason] = summarize_drain(msgspec.structs.replace(drain, status=status)).message
    assert shown == {"Draining": text, "TimeoutHold": ""}
