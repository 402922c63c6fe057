"""Events and log lines about a replacement's transitions (OP-64)."""

from navarchos.events import EventType, Recorder
from navarchos.logs import get_logger
from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS, NodeReplacement, Step
from navarchos.operator.events import EventReason
from navarchos.operator.history import node_gone
from navarchos.operator.replacements.waiting import WaitReason

__all__ = ["ReplacementEvents"]

_log = get_logger(__name__)


class ReplacementEvents:
    """Tells people what happened to a replacement, once per transition.

    Threads: safe from any thread; never blocks.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def moved(self, before: NodeReplacement, after: NodeReplacement) -> None:
        """Tell of a change of step that has just been written."""
        old, new = before.status.current, after.status.current
        if old is new:
            return
        _log.info(
            "replacement_moved",
            replacement=after.metadata.name,
            node=after.spec.node_name,
            step=new,
            reason=after.status.step.reason if after.status.step else "",
        )
        self._record_step(before, after)

    def held_back(self, replacement: NodeReplacement, reason: WaitReason) -> None:
        """Tell that the next in line may not start, for a reason that needs people to know."""
        if reason is WaitReason.PENDING_PODS:
            self._event(replacement, EventReason.REPLACEMENT_REQUEUE, reason.message)

    def stalled(self, replacement: NodeReplacement) -> None:
        """Tell that others start while its pods do not go; its drain has said which."""
        _log.warning(
            "replacement_stuck",
            replacement=replacement.metadata.name,
            node=replacement.spec.node_name,
        )

    def expired(self, replacement: NodeReplacement) -> None:
        """Tell that an attempt failed while it waited for Pending pods."""
        if replacement.status.current is Step.FAILED:
            self._failed(replacement)
        else:
            self._requeued(replacement)

    def _record_step(self, before: NodeReplacement, after: NodeReplacement) -> None:
        node = after.spec.node_name
        match after.status.current:
            case Step.RESERVED:
                self._event(after, EventReason.REPLACEMENT_STARTED, f"replacing node {node} begins")
            case Step.DONE:
                how = "is gone" if node_gone(after) else "is drained and stays cordoned"
                self._event(after, EventReason.REPLACEMENT_COMPLETED, f"node {node} {how}")
            case Step.FAILED:
                self._failed(after)
            case Step.WAITING if before.status.current is Step.RELEASING:
                self._requeued(after)
            case _:
                pass

    def _failed(self, replacement: NodeReplacement) -> None:
        self._event(
            replacement,
            EventReason.REPLACEMENT_FAILED,
            f"node {replacement.spec.node_name} failed: {_last_failure(replacement)}",
            EventType.WARNING,
        )

    def _requeued(self, replacement: NodeReplacement) -> None:
        self._event(
            replacement,
            EventReason.REPLACEMENT_REQUEUE,
            f"attempt {replacement.status.attempts} failed: {_last_failure(replacement)}",
        )

    def _event(
        self,
        replacement: NodeReplacement,
        reason: EventReason,
        message: str,
        type_: EventType = EventType.NORMAL,
    ) -> None:
        self._recorder.record(NODE_REPLACEMENTS, replacement, type_, reason, message)


def _last_failure(replacement: NodeReplacement) -> str:
    if not replacement.status.failures:
        return "a person forgave it"
    last = replacement.status.failures[-1]
    return f"{last.reason}: {last.message}" if last.message else last.reason
