"""Events about the transitions of a rollout (OP-64)."""

from typing import assert_never

from navarchos.events import EventType, Recorder
from navarchos.logs import get_logger
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.reasons import ConditionType, EventReason
from navarchos.runtime.conditions import find_condition, is_true

__all__ = ["RolloutEvents"]

_log = get_logger(__name__)


class RolloutEvents:
    """Records events about a rollout, once per transition.

    Threads: safe from any thread; never blocks.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def changed(self, before: api.NodeRollout, after: api.NodeRollout) -> None:
        """Record what a status write, just done, has changed."""
        was, now = before.status, after.status
        if was.start_timestamp is None and now.nodes_not_found:
            message = _message(after, ConditionType.NODES_FOUND)
            self._warn(after, EventReason.NODES_NOT_FOUND, message)
        if _became_true(before, after, ConditionType.REPLACEMENTS_CREATED):
            message = f"{now.replacements_created_count} NodeReplacements created"
            self._record(after, EventReason.REPLACEMENTS_CREATED, message)
        if _became_true(before, after, ConditionType.PAUSED):
            self._record(after, EventReason.ROLLOUT_PAUSED, "no further node starts")
        if _became_true(before, after, ConditionType.CANCELLED):
            message = _message(after, ConditionType.CANCELLED)
            self._record(after, EventReason.ROLLOUT_CANCELLED, message)
        self._record_wave(before, after)
        self._record_gates(before, after)
        if was.phase is not now.phase:
            _log.info(
                "rollout_advanced",
                kind=api.NODE_ROLLOUTS.kind,
                name=after.metadata.name,
                phase=now.phase,
            )
            self._record_phase(after)

    def _record_wave(self, before: api.NodeRollout, after: api.NodeRollout) -> None:
        was, now = before.status.wave, after.status.wave
        if now is None:
            return
        for approval in now.approvals[len(was.approvals) if was is not None else 0 :]:
            by = approval.by or "a user without a name"
            message = f"wave {approval.number} of {now.of} was approved by {by}"
            self._record(after, EventReason.WAVE_APPROVED, message)
        if now.judged and (was is None or was.judged != now.judged):
            message = _message(after, ConditionType.APPROVAL_REFUSED)
            if is_true(after.status.conditions, ConditionType.APPROVAL_REFUSED):
                self._warn(after, EventReason.APPROVAL_REFUSED, message)
        if was is not None and (was.number, was.state) == (now.number, now.state):
            return
        _log.info(
            "wave_advanced",
            kind=api.NODE_ROLLOUTS.kind,
            name=after.metadata.name,
            wave=now.number,
            state=now.state,
        )
        if was is not None and (over := _waves_over(was, now)):
            self._record(after, EventReason.WAVE_COMPLETED, over)
        if now.state is api.WaveState.AWAITING_APPROVAL:
            message = (
                f"wave {now.number} of {now.of} needs an approval; "
                f"run: navarchos approve {after.metadata.name}"
            )
            self._record(after, EventReason.WAVE_AWAITS_APPROVAL, message)

    def _record_gates(self, before: api.NodeRollout, after: api.NodeRollout) -> None:
        states = {gate.name: gate.state for gate in before.status.gates}
        for gate in after.status.gates:
            was = states.get(gate.name, api.GateState.PENDING)
            if was is gate.state:
                continue
            match gate.state:
                case api.GateState.CLOSED:
                    message = f"gate {gate.name} is closed: {gate.message}"
                    self._warn(after, EventReason.GATE_CLOSED, message)
                case api.GateState.OPEN if was is api.GateState.CLOSED:
                    self._record(after, EventReason.GATE_OPENED, f"gate {gate.name} is open")
                case api.GateState.OPEN | api.GateState.PENDING:
                    pass
                case _:
                    assert_never(gate.state)

    def _record_phase(self, rollout: api.NodeRollout) -> None:
        status = rollout.status
        match status.phase:
            case api.RolloutPhase.COMPLETED:
                self._record(rollout, EventReason.ROLLOUT_COMPLETED, _summary(rollout))
            case api.RolloutPhase.HALTED:
                message = _message(rollout, ConditionType.HALTED)
                self._warn(rollout, EventReason.ROLLOUT_HALTED, message)
            case None | api.RolloutPhase.NEW | api.RolloutPhase.IN_PROGRESS:
                pass
            case _:
                assert_never(status.phase)

    def _warn(self, rollout: api.NodeRollout, reason: EventReason, message: str) -> None:
        self._recorder.record(api.NODE_ROLLOUTS, rollout, EventType.WARNING, reason, message)

    def _record(self, rollout: api.NodeRollout, reason: EventReason, message: str) -> None:
        self._recorder.record(api.NODE_ROLLOUTS, rollout, EventType.NORMAL, reason, message)


def _waves_over(was: api.WaveStatus, now: api.WaveStatus) -> str:
    """Return which waves have ended, in words; empty if none has."""
    if now.state is api.WaveState.COMPLETED:
        return f"wave {now.number} of {now.of} is over, and no wave holds nodes back any more"
    if now.number <= was.number or now.of != was.of:
        return ""  # the waves were edited
    first, last = was.number, now.number - 1
    over = f"wave {last} of {now.of} is" if first == last else f"waves {first} to {last} are"
    return f"{over} over; up to {now.up_to} nodes may start"


def _summary(rollout: api.NodeRollout) -> str:
    status = rollout.status
    if not status.nodes:
        return _message(rollout, ConditionType.REPLACEMENTS_IN_PROGRESS)
    done, failed = status.replacements_completed_count, status.replacements_failed_count
    cancelled = status.replacements_cancelled_count
    more = f", {cancelled} cancelled" if cancelled else ""
    return f"{done} of {len(status.nodes)} nodes replaced, {failed} failed{more}"


def _message(rollout: api.NodeRollout, type_: ConditionType) -> str:
    found = find_condition(rollout.status.conditions, type_)
    return found.message if found is not None else ""


def _became_true(before: api.NodeRollout, after: api.NodeRollout, type_: ConditionType) -> bool:
    return is_true(after.status.conditions, type_) and not is_true(before.status.conditions, type_)
