"""Events about a rollout's transitions (OP-64)."""

from navarchos.events import EventType, Recorder
from navarchos.logs import get_logger
from navarchos.operator.api.v1alpha1 import NODE_ROLLOUTS, NodeRollout, RolloutPhase
from navarchos.operator.events import EventReason
from navarchos.runtime.conditions import find_condition, is_true

__all__ = ["RolloutEvents"]

_log = get_logger(__name__)


class RolloutEvents:
    """Tells people what happened to a rollout, once per transition.

    Threads: safe from any thread; never blocks.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def changed(self, before: NodeRollout, after: NodeRollout) -> None:
        """Tell what a status write, just done, changed."""
        was, now = before.status, after.status
        if was.start_timestamp is None and now.nodes_not_found:
            self._record(
                after, EventReason.NODES_NOT_FOUND, _message(after, "NodesFound"), bad=True
            )
        if _turned_true(before, after, "ReplacementsCreated"):
            count = now.replacements_created_count
            self._record(after, EventReason.REPLACEMENTS_CREATED, f"{count} replacements created")
        if _turned_true(before, after, "Paused"):
            self._record(after, EventReason.ROLLOUT_PAUSED, "no further node starts")
        if was.phase is not now.phase:
            _log.info("rollout_moved", rollout=after.metadata.name, phase=now.phase)
            self._record_phase(after)

    def _record_phase(self, rollout: NodeRollout) -> None:
        status = rollout.status
        match status.phase:
            case RolloutPhase.COMPLETED if not status.nodes:
                self._record(
                    rollout,
                    EventReason.ROLLOUT_COMPLETED,
                    _message(rollout, "ReplacementsInProgress"),
                )
            case RolloutPhase.COMPLETED:
                done, failed = status.replacements_completed_count, status.replacements_failed_count
                self._record(
                    rollout,
                    EventReason.ROLLOUT_COMPLETED,
                    f"{done} of {len(status.nodes)} nodes replaced, {failed} failed",
                )
            case RolloutPhase.HALTED:
                self._record(
                    rollout, EventReason.ROLLOUT_HALTED, _message(rollout, "Halted"), bad=True
                )
            case _:
                pass

    def _record(
        self, rollout: NodeRollout, reason: EventReason, message: str, *, bad: bool = False
    ) -> None:
        type_ = EventType.WARNING if bad else EventType.NORMAL
        self._recorder.record(NODE_ROLLOUTS, rollout, type_, reason, message)


def _message(rollout: NodeRollout, type_: str) -> str:
    found = find_condition(rollout.status.conditions, type_)
    return found.message if found is not None else ""


def _turned_true(before: NodeRollout, after: NodeRollout, type_: str) -> bool:
    return is_true(after.status.conditions, type_) and not is_true(before.status.conditions, type_)
