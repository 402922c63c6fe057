from typing import Any

import msgspec
import pytest
from tests.unit.operator.conftest import Make

from navarchos.operator.api.v1alpha1 import (
    GateState,
    NodeReplacement,
    NodeRollout,
    NodeRolloutStatus,
    PlannedNode,
    PriorityCount,
    RolloutPhase,
    Step,
)
from navarchos.operator.gates.decide import GateRecord, Verdict
from navarchos.operator.names import RESUME_ANNOTATION
from navarchos.operator.rollouts.plan import Plan
from navarchos.operator.rollouts.status import (
    MAX_BLOCKED,
    StatusInputs,
    compute_status,
    initial_status,
)
from navarchos.runtime.conditions import Condition, find_condition


def seen(make: Make, rollout: NodeRollout, *children: NodeReplacement, **inputs: Any) -> Any:
    by_node = {child.spec.node_name: child for child in children}
    return compute_status(
        rollout, StatusInputs(nodes=rollout.status.nodes, children=by_node, **inputs), make.now
    )


def condition(status: NodeRolloutStatus, type_: str) -> tuple[str, str]:
    found = find_condition(status.conditions, type_)
    assert found is not None
    return found.status, found.reason


@pytest.mark.rule("OP-03")
def test_the_plan_is_recorded_before_anything_else(make: Make) -> None:
    plan = Plan(nodes=(PlannedNode("a", "uid-a", 7), PlannedNode("b", "uid-b", 1)))
    status = initial_status(make.rollout(phase=None), plan, make.now)
    assert status.phase is RolloutPhase.NEW
    assert status.nodes == plan.nodes
    assert status.plan == (PriorityCount(7, 1), PriorityCount(1, 1))
    assert status.start_timestamp == make.now


@pytest.mark.rule("OP-03")
def test_a_rollout_that_matches_no_node_is_completed_with_a_reason(make: Make) -> None:
    status = initial_status(make.rollout(phase=None), Plan(not_found=("x",)), make.now)
    assert status.phase is RolloutPhase.COMPLETED
    assert status.completion_timestamp == make.now
    assert condition(status, "ReplacementsInProgress") == ("False", "NoNodesMatched")
    assert condition(status, "NodesFound") == ("False", "NodesNotFound")


def test_it_is_in_progress_once_every_child_exists(make: Make) -> None:
    rollout = make.rollout(phase=RolloutPhase.NEW, nodes=("a", "b"))
    half = seen(make, rollout, make.replacement("a"))
    assert half.phase is RolloutPhase.NEW
    assert half.replacements_created == ("a",)
    whole = seen(make, rollout, make.replacement("a"), make.replacement("b"))
    assert whole.phase is RolloutPhase.IN_PROGRESS
    assert condition(whole, "ReplacementsCreated") == ("True", "CreatedNodeReplacements")
    assert condition(whole, "ReplacementsInProgress") == ("True", "StillProgressing")


GATES = [{"name": "backup", "nodes": {"maxUnready": 0}, "timeoutSeconds": 60}]


@pytest.mark.rule("NP-30")
@pytest.mark.parametrize(
    ("closed_at", "waits_since", "is_halted"),
    [(-60, -60, True), (-59, -60, False), (-60, -59, False)],
    ids=["both for a minute", "closed for less", "no node could start for a minute"],
)
def test_a_gate_that_is_closed_for_too_long_halts_the_rollout(
    make: Make, closed_at: float, waits_since: float, is_halted: bool
) -> None:
    rollout = make.rollout(nodes=("a", "b"), gates=GATES)
    children = make.replacement("a", reason="Gate", since=waits_since), make.replacement("b")
    verdict = Verdict(GateState.CLOSED, "nodes", "2 nodes are not Ready: x, y")
    gates = {"backup": GateRecord("backup", verdict, make.at(closed_at))}
    status = seen(make, rollout, *children, gates=gates)
    assert (status.phase is RolloutPhase.HALTED) is is_halted
    if is_halted:
        halted = find_condition(status.conditions, "Halted")
        assert halted is not None
        assert halted.reason == "GateTimeout"
        assert "backup was closed for 60 seconds: 2 nodes are not Ready" in halted.message
        assert seen(make, with_status(rollout, status), *children).phase is RolloutPhase.HALTED


@pytest.mark.rule("NP-30")
@pytest.mark.parametrize("why", ["paused", "no node waits for it", "open"])
def test_a_gate_halts_nothing_while_no_node_waits_for_it(make: Make, why: str) -> None:
    rollout = make.rollout(nodes=("a",), gates=GATES, paused=why == "paused")
    reason = "MaxConcurrent" if why == "no node waits for it" else "Gate"
    state = GateState.OPEN if why == "open" else GateState.CLOSED
    gates = {"backup": GateRecord("backup", Verdict(state), make.at(-3600))}
    child = make.replacement("a", reason=reason, since=-3600)
    assert seen(make, rollout, child, gates=gates).phase is RolloutPhase.IN_PROGRESS


def with_status(rollout: NodeRollout, status: NodeRolloutStatus) -> NodeRollout:
    return msgspec.structs.replace(rollout, status=status)


def test_a_failed_creation_is_reported(make: Make) -> None:
    rollout = make.rollout(phase=RolloutPhase.NEW, nodes=("a", "b"))
    status = seen(make, rollout, make.replacement("a"), creation_error="no room")
    assert condition(status, "ReplacementsCreated") == ("False", "ErrorCreatingNodeReplacements")


@pytest.mark.rule("OP-04")
def test_it_is_completed_when_every_planned_node_is(make: Make) -> None:
    rollout = make.rollout(nodes=("b", "a"))
    done = [make.replacement(n, step=Step.DONE, started=-20, done=-10) for n in "ab"]
    assert seen(make, rollout, done[0], make.replacement("b")).phase is RolloutPhase.IN_PROGRESS
    status = seen(make, rollout, *done)
    assert status.phase is RolloutPhase.COMPLETED
    assert status.replacements_completed == ("a", "b")
    assert status.completion_timestamp == make.now
    assert condition(status, "ReplacementsInProgress") == ("False", "ReplacementsCompleted")


@pytest.mark.rule("OP-25")
def test_a_rollout_completed_with_failed_nodes_has_its_reason(make: Make) -> None:
    rollout = make.rollout(nodes=("a", "b"), strategy={"maxFailures": 1})
    done = make.replacement("a", step=Step.DONE, started=-20, done=-10)
    failed = make.replacement("b", step=Step.FAILED, failed_at=(-9, -8), done=-8)
    status = seen(make, rollout, done, failed)
    assert status.phase is RolloutPhase.COMPLETED
    assert condition(status, "ReplacementsInProgress") == ("False", "CompletedWithSkipped")


def test_a_deleted_finished_child_still_counts(make: Make) -> None:
    rollout = make.rollout(nodes=("a", "b"), status={"replacements_completed": ("a",)})
    status = seen(make, rollout, make.replacement("b", step=Step.DONE, done=0))
    assert status.phase is RolloutPhase.COMPLETED
    assert status.replacements_created_count == 2


def test_equal_inputs_give_an_equal_status(make: Make) -> None:
    rollout = make.rollout(nodes=("a", "b", "c"))
    children = {
        "a": make.replacement("a", step=Step.DONE, started=-30, done=-10),
        "b": make.replacement("b", step=Step.DRAINING, started=-5),
        "c": make.replacement("c"),
    }
    first = compute_status(rollout, StatusInputs(rollout.status.nodes, children), make.now)
    again = make.rollout(
        nodes=("a", "b", "c"),
        status={name: getattr(first, name) for name in first.__struct_fields__},
    )
    assert compute_status(again, StatusInputs(rollout.status.nodes, children), make.at(99)) == first


@pytest.mark.rule("OP-08")
def test_more_failed_nodes_than_allowed_halt_it(make: Make) -> None:
    failed = [make.replacement(n, step=Step.FAILED, failed_at=(-9, -8), done=-8) for n in "ab"]
    kept_on = make.rollout(nodes=("a", "b", "c"), strategy={"maxFailures": 2, "maxConcurrent": 9})
    assert seen(make, kept_on, *failed).phase is RolloutPhase.IN_PROGRESS
    halted = make.rollout(nodes=("a", "b", "c"), strategy={"maxFailures": 1, "maxConcurrent": 9})
    status = seen(make, halted, *failed, make.replacement("c"))
    assert status.phase is RolloutPhase.HALTED
    assert condition(status, "Halted") == ("True", "TooManyFailures")
    assert condition(status, "ReplacementsInProgress") == ("False", "RolloutHalted")
    assert status.halted_max_failures == 1


@pytest.mark.rule("OP-08")
def test_a_percentage_of_failures_is_rounded_down(make: Make) -> None:
    names = tuple("abcdefghi")
    failed = make.replacement("a", step=Step.FAILED, failed_at=(-9,), done=-8)
    rollout = make.rollout(nodes=names, strategy={"maxFailures": "11%", "maxConcurrent": 9})
    assert seen(make, rollout, failed).phase is RolloutPhase.HALTED


@pytest.mark.rule("OP-08")
def test_too_many_consecutive_failed_attempts_halt_it(
    make: Make,
) -> None:
    rollout = make.rollout(nodes=("a", "b", "c"), strategy={"maxFailures": 1, "maxConcurrent": 1})
    three = [make.replacement(n, failed_at=(-at,)) for n, at in [("a", 30), ("b", 20), ("c", 10)]]
    assert seen(make, rollout, *three[:2]).phase is RolloutPhase.IN_PROGRESS
    assert seen(make, rollout, *three).phase is RolloutPhase.HALTED


@pytest.mark.rule("OP-08")
def test_a_drained_node_resets_the_consecutive_failures(make: Make) -> None:
    rollout = make.rollout(nodes=tuple("abcd"), strategy={"maxFailures": 1, "maxConcurrent": 1})
    failed = [make.replacement(n, failed_at=(-at,)) for n, at in [("a", 30), ("b", 20), ("c", 10)]]
    drained = make.replacement("d", step=Step.DONE, started=-29, done=-15)
    assert seen(make, rollout, *failed, drained).phase is RolloutPhase.IN_PROGRESS
    gone = make.replacement("d", step=Step.DONE, reason="NodeGone", done=-15)
    assert seen(make, rollout, *failed, gone).phase is RolloutPhase.HALTED


def halted(make: Make, **spec: Any) -> NodeRollout:
    return make.rollout(
        phase=RolloutPhase.HALTED,
        nodes=("a", "b"),
        status={
            "halted_max_failures": 0,
            "conditions": (Condition(type="Halted", status="True", reason="TooManyFailures"),),
        },
        **spec,
    )


@pytest.mark.rule("OP-08")
def test_halted_does_not_end_without_the_user(make: Make) -> None:
    done = [make.replacement(n, step=Step.DONE, done=-1) for n in "ab"]
    assert seen(make, halted(make), *done).phase is RolloutPhase.HALTED


@pytest.mark.rule("OP-08")
def test_raising_max_failures_resumes_it(make: Make) -> None:
    failed = make.replacement("a", step=Step.FAILED, failed_at=(-9, -8), done=-8)
    status = seen(make, halted(make, strategy={"maxFailures": 1}), failed, make.replacement("b"))
    assert status.phase is RolloutPhase.IN_PROGRESS
    assert condition(status, "Halted") == ("False", "Resumed")
    assert status.halted_max_failures is None


@pytest.mark.rule("OP-08")
def test_raising_max_failures_by_too_little_halts_it_again(make: Make) -> None:
    failed = [make.replacement(n, step=Step.FAILED, failed_at=(-9,), done=-8) for n in "ab"]
    rollout = make.rollout(
        phase=RolloutPhase.HALTED,
        nodes=("a", "b", "c"),
        status={"halted_max_failures": 0},
        strategy={"maxFailures": 1, "maxConcurrent": 9},
    )
    status = seen(make, rollout, *failed, make.replacement("c"))
    assert status.phase is RolloutPhase.HALTED
    assert status.halted_max_failures == 1


@pytest.mark.rule("OP-08")
def test_resume_resets_failures_of_children_that_have_not_applied_it_yet(make: Make) -> None:
    failed = make.replacement("a", step=Step.FAILED, failed_at=(-9, -8), done=-8)
    rollout = halted(make, annotations={RESUME_ANNOTATION: "please"})
    status = seen(make, rollout, failed, make.replacement("b"))
    assert status.phase is RolloutPhase.IN_PROGRESS
    assert status.resumed == "please"


@pytest.mark.rule("OP-08")
def test_a_failed_node_that_resume_will_retry_is_unfinished(make: Make) -> None:
    rollout = make.rollout(
        nodes=("a", "b"), phase=RolloutPhase.HALTED, annotations={RESUME_ANNOTATION: "please"}
    )
    done = make.replacement("a", step=Step.DONE, done=-9)
    failed = make.replacement("b", step=Step.FAILED, failed_at=(-9, -8), done=-8)
    status = seen(make, rollout, done, failed)
    assert status.phase is RolloutPhase.IN_PROGRESS
    assert status.replacements_failed == ()


@pytest.mark.rule("OP-08")
def test_the_same_resume_annotation_resets_only_once(make: Make) -> None:
    rollout = make.rollout(
        nodes=("a", "b"),
        annotations={RESUME_ANNOTATION: "please"},
        status={"resumed": "please"},
    )
    failed_again = make.replacement(
        "a", step=Step.FAILED, failed_at=(-9, -8), done=-8, status={"resumed": "please"}
    )
    assert seen(make, rollout, failed_again).phase is RolloutPhase.HALTED


def test_the_last_failure_within_the_limit_completes_it(make: Make) -> None:
    rollout = make.rollout(nodes=("a",), strategy={"maxFailures": 1})
    failed = make.replacement("a", step=Step.FAILED, failed_at=(-9, -8, -7), done=-7)
    status = seen(make, rollout, failed)
    assert status.phase is RolloutPhase.COMPLETED
    assert status.replacements_failed == ("a",)


@pytest.mark.rule("OP-07")
def test_paused_is_a_condition_as_long_as_it_lasts(make: Make) -> None:
    rollout = make.rollout(nodes=("a",), paused=True)
    status = seen(make, rollout, make.replacement("a"))
    assert condition(status, "Paused") == ("True", "Paused")
    resumed = make.rollout(nodes=("a",), status={"conditions": status.conditions})
    assert condition(seen(make, resumed, make.replacement("a")), "Paused") == ("False", "Resumed")


@pytest.mark.rule("OP-11")
def test_the_estimate_extends_the_mean_of_the_drained_nodes(make: Make) -> None:
    rollout = make.rollout(nodes=tuple("abcde"), strategy={"maxConcurrent": 2, "settleSeconds": 5})
    children = [
        make.replacement("a", step=Step.DONE, started=-60, done=-50),
        make.replacement("b", step=Step.DONE, started=-50, done=-30),
        *(make.replacement(name) for name in "cde"),
    ]
    # Three nodes remain, two at once: two rounds of 15 s on average, each with its pause.
    assert seen(make, rollout, *children).estimated_completion == make.at(-30 + 2 * (15 + 5))
    assert seen(make, rollout, *children[2:]).estimated_completion is None


def test_blocked_pods_are_listed_in_order_with_a_complete_count(make: Make) -> None:
    rollout = make.rollout(nodes=("a",))
    child = make.replacement("a", step=Step.DRAINING)
    blockers = [
        {"namespace": "default", "pod": f"web-{i:03}", "reason": "Budget", "budget": "web"}
        for i in reversed(range(60))
    ]
    drain = make.drain(child, status={"blockers": blockers, "blocked": 70})
    status = seen(make, rollout, child, drains=[drain])
    assert len(status.blocked) == MAX_BLOCKED
    assert status.blocked[0].pod == "default/web-000"
    assert status.blocked_count == 70
    assert status.in_flight == ("a",)
