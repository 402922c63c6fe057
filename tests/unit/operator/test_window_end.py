"""Windows and waves over HTTP: nodes that are released, soak times, approvals, and crashes."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator.conftest import Operator

from navarchos.operator.api.v1alpha1 import NODE_ROLLOUTS, DrainPhase, Step, WaveState
from navarchos.operator.names import APPROVE_ANNOTATION
from navarchos.operator.reasons import EventReason
from navarchos.runtime import Request
from navarchos.runtime.conditions import find_condition, is_true


def window(operator: Operator, seconds: float) -> list[dict[str, Any]]:
    """Return a window that is open now, and closes after some seconds."""
    now = operator.clock.now()
    closes = now + timedelta(seconds=seconds - 1)
    return [
        {
            "days": [now.strftime("%a")],
            "start": now.strftime("%H:%M:%S"),
            "end": closes.strftime("%H:%M:%S"),
        }
    ]


def begin(operator: Operator, **strategy: Any) -> None:
    """Start one node of two, in a window that closes after ten minutes."""
    for name in ("a", "b"):
        operator.add_node(name)
    found = {"windows": window(operator, 600), "onWindowEnd": "GiveBack", **strategy}
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy=found)
    operator.settle()


@pytest.mark.rule("NP-41")
@pytest.mark.parametrize("policy", ["Uncordon", "Keep"])
def test_a_node_that_is_not_empty_is_given_back(operator: Operator, policy: str) -> None:
    begin(operator, onNodeFailure=policy, retries=0)
    operator.play("roll-a", DrainPhase.DRAINING)
    result = operator.replacements.reconcile(Request("", "roll-a"))
    assert result.requeue_after is not None
    assert 0 < result.requeue_after <= 600
    operator.clock.advance(599)
    operator.settle()
    assert operator.steps()["roll-a"] is Step.DRAINING
    operator.clock.advance(1)
    operator.settle_in_time()
    assert operator.steps() == {"roll-a": Step.WAITING, "roll-b": Step.WAITING}
    assert operator.drains() == []
    status = operator.replacement("roll-a").status
    assert (status.attempts, status.failures) == (0, ())
    waiting = find_condition(status.conditions, "Waiting")
    assert waiting is not None
    assert waiting.reason == "OutsideWindow"
    assert operator.recheck_after is not None
    assert 6 * 86400 < operator.recheck_after <= 7 * 86400
    # The next window: the same attempt begins again.
    operator.clock.advance(7 * 86400 - 610)
    operator.settle()
    assert operator.steps()["roll-a"] is Step.RESERVED
    assert operator.drains() == ["roll-a"]


@pytest.mark.rule("NP-41")
def test_nodes_in_flight_finish_by_default_and_empty_nodes_always(operator: Operator) -> None:
    begin(operator, onWindowEnd="Finish")
    operator.play("roll-a", DrainPhase.DRAINING)
    operator.clock.advance(601)
    operator.settle()
    assert operator.steps()["roll-a"] is Step.DRAINING
    operator.patch_rollout("roll", spec={"strategy": {"onWindowEnd": "GiveBack"}})
    operator.report("roll-a", DrainPhase.COMPLETED)
    operator.settle()
    assert operator.steps() == {"roll-a": Step.DONE, "roll-b": Step.WAITING}


@pytest.mark.rule("NP-41")
@pytest.mark.parametrize("writes", range(1, 5))
def test_a_crash_while_a_node_is_given_back_changes_nothing(
    operator: Operator, writes: int
) -> None:
    begin(operator)
    operator.play("roll-a", DrainPhase.DRAINING)
    operator.clock.advance(600)
    operator.transport.writes_left = writes
    assert not operator.settle_or_die()
    assert operator.steps() == {"roll-a": Step.WAITING, "roll-b": Step.WAITING}
    assert operator.drains() == []
    assert operator.replacement("roll-a").status.attempts == 0
    events = [event.reason for event in operator.recorder.events]
    assert events.count(EventReason.REPLACEMENT_REQUEUE) <= 1


@pytest.mark.rule("NP-41")
def test_windows_that_are_always_covered_start_nothing_and_one_condition_says_so(
    operator: Operator,
) -> None:
    operator.add_node("a")
    strategy = {"windows": [{"start": "9am", "end": "09:00"}]}
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy=strategy)
    operator.settle()
    assert operator.steps() == {"roll-a": Step.WAITING}
    found = find_condition(operator.rollout().status.conditions, "StrategyInvalid")
    assert found is not None
    assert (found.status, found.reason) == ("True", "InvalidStrategy")
    assert found.message.startswith("strategy.windows[0].end='09:00'")
    operator.patch_rollout("roll", spec={"strategy": {"windows": None}})
    operator.settle()
    assert not is_true(operator.rollout().status.conditions, "StrategyInvalid")
    assert operator.steps() == {"roll-a": Step.RESERVED}


WAVES = [{"upTo": 1, "soakSeconds": 60}, {"upTo": "60%", "approval": True}, {"upTo": "100%"}]


def begin_waves(operator: Operator) -> None:
    for name in ("a", "b", "c"):
        operator.add_node(name)
    strategy = {"waves": WAVES, "maxConcurrent": 3}
    operator.add_rollout(nodeSelectors=[{"matchAll": True}], strategy=strategy)
    operator.settle()


def wave(operator: Operator) -> tuple[int, WaveState]:
    found = operator.rollout().status.wave
    assert found is not None
    return found.number, found.state


def finish(operator: Operator, node: str) -> None:
    operator.settle()
    operator.finish(f"roll-{node}")
    operator.settle()


def annotate(operator: Operator, value: str | None) -> None:
    operator.patch_rollout("roll", metadata={"annotations": {APPROVE_ANNOTATION: value}})
    operator.settle()


def reasons(operator: Operator) -> list[str]:
    return [str(event.reason) for event in operator.recorder.events]


@pytest.mark.rule("NP-43")
def test_a_rollout_goes_through_its_waves(operator: Operator) -> None:
    begin_waves(operator)
    assert operator.steps() == {
        "roll-a": Step.RESERVED,
        "roll-b": Step.WAITING,
        "roll-c": Step.WAITING,
    }
    finish(operator, "a")
    assert wave(operator) == (1, WaveState.SOAKING)
    assert operator.steps()["roll-b"] is Step.WAITING
    assert operator.recheck_after is not None
    assert 0 < operator.recheck_after <= 60
    due = operator.rollouts.reconcile(Request("", "roll")).requeue_after
    assert due is not None
    assert 0 < due <= 60
    operator.clock.advance(60)
    operator.settle()
    assert wave(operator) == (2, WaveState.IN_PROGRESS)
    assert operator.steps()["roll-b"] is Step.RESERVED
    assert operator.steps()["roll-c"] is Step.WAITING
    finish(operator, "b")
    assert wave(operator) == (2, WaveState.AWAITING_APPROVAL)
    assert reasons(operator).count("WaveAwaitsApproval") == 1
    annotate(operator, '{"wave":2,"by":"jane"}')
    operator.settle_in_time()
    assert operator.steps()["roll-c"] is Step.RESERVED
    assert reasons(operator).count("WaveApproved") == 1
    finish(operator, "c")
    found = operator.rollout().status
    assert found.phase == "Completed"
    assert found.wave is not None
    assert [(one.number, one.by) for one in found.wave.approvals] == [(2, "jane")]
    assert wave(operator) == (3, WaveState.COMPLETED)


def value(operator: Operator, name: str, **labels: str) -> float | None:
    return operator.instruments.registry.get_sample_value(f"navarchos_{name}", labels)


@pytest.mark.rule("NP-43")
@pytest.mark.rule("OP-65")
def test_gauges_and_events_show_the_waves(operator: Operator) -> None:
    begin_waves(operator)
    assert value(operator, "rollout_waves", wave="1", state="InProgress") == 1
    finish(operator, "a")
    assert value(operator, "rollout_waves", wave="1", state="InProgress") is None
    assert value(operator, "rollout_waves", wave="1", state="Soaking") == 1
    assert "WaveCompleted" not in reasons(operator)
    operator.clock.advance(60)
    operator.settle()
    assert reasons(operator).count("WaveCompleted") == 1
    finish(operator, "b")
    assert value(operator, "rollout_waves", wave="2", state="AwaitingApproval") == 1
    awaiting = "wave_awaiting_approval_since_timestamp_seconds"
    assert value(operator, awaiting) == operator.clock.now().timestamp()
    operator.clock.advance(3600)
    operator.settle()
    assert value(operator, awaiting) == operator.clock.now().timestamp() - 3600, (
        "it says since when"
    )
    annotate(operator, '{"wave":2,"by":"jane"}')
    operator.settle_in_time()
    assert value(operator, awaiting) == 0
    finish(operator, "c")
    assert value(operator, "rollout_waves", wave="3", state="Completed") is None, "it has ended"
    found = [e.message for e in operator.recorder.events if e.reason == "WaveCompleted"]
    assert found == [
        "wave 1 of 3 is over; up to 2 nodes may start",
        "wave 2 of 3 is over; up to 3 nodes may start",
        "wave 3 of 3 is over, and no wave holds nodes back any more",
    ]


@pytest.mark.rule("NP-43")
def test_a_deleted_rollout_has_no_wave_in_the_gauges(operator: Operator) -> None:
    begin_waves(operator)
    operator.client.resource(NODE_ROLLOUTS).delete("roll")
    operator.see()
    operator.rollouts.reconcile(Request("", "roll"))
    assert value(operator, "rollout_waves", wave="1", state="InProgress") is None


@pytest.mark.rule("NP-41")
@pytest.mark.rule("OP-65")
def test_gauges_show_rollouts_outside_their_windows(operator: Operator) -> None:
    begin(operator)
    opens = operator.clock.now() + timedelta(days=7)
    assert value(operator, "rollouts_outside_window") == 0
    assert value(operator, "next_window_timestamp_seconds") == 0
    operator.finish("roll-a")
    operator.clock.advance(600)
    operator.settle()
    assert value(operator, "rollouts_outside_window") == 1
    assert value(operator, "next_window_timestamp_seconds") == opens.timestamp()
    left = (opens - operator.clock.now()).total_seconds()
    assert operator.recheck_after == left, "an idle window wakes no controller"
    operator.clock.advance(left)
    operator.settle()
    assert value(operator, "rollouts_outside_window") == 0
    assert value(operator, "next_window_timestamp_seconds") == 0


@pytest.mark.rule("NP-43")
def test_a_wrong_approval_gives_one_condition_and_event_and_starts_nothing(
    operator: Operator,
) -> None:
    begin_waves(operator)
    annotate(operator, "2")
    finish(operator, "a")
    operator.clock.advance(60)
    finish(operator, "b")
    assert wave(operator) == (2, WaveState.AWAITING_APPROVAL)
    assert operator.steps()["roll-c"] is Step.WAITING
    assert is_true(operator.rollout().status.conditions, "ApprovalRefused")
    assert reasons(operator).count("ApprovalRefused") == 1
    annotate(operator, '{"wave":2,"by":"jane"}')
    operator.settle_in_time()
    assert operator.steps()["roll-c"] is Step.RESERVED
    assert not is_true(operator.rollout().status.conditions, "ApprovalRefused")


@pytest.mark.rule("NP-43")
@pytest.mark.parametrize("writes", range(1, 7))
def test_a_crash_after_each_write_of_an_approval(operator: Operator, writes: int) -> None:
    begin_waves(operator)
    finish(operator, "a")
    operator.clock.advance(60)
    finish(operator, "b")
    operator.patch_rollout("roll", metadata={"annotations": {APPROVE_ANNOTATION: "2"}})
    operator.transport.writes_left = writes
    operator.settle_or_die()
    operator.settle_in_time()
    assert operator.steps()["roll-c"] is Step.RESERVED
    found = operator.rollout().status.wave
    assert found is not None
    assert len(found.approvals) == 1
