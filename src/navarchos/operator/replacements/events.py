"""Events and log lines about the transitions of a replacement (OP-64)."""

from typing import assert_never

from navarchos.events import EventType, Recorder
from navarchos.logs import get_logger
from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS, NodeReplacement, Step
from navarchos.operator.history import node_gone
from navarchos.operator.reasons import EventReason, Reason, WaitReason

__all__ = ["ReplacementEvents"]

_log = get_logger(__name__)


class ReplacementEvents:
    """Records events about a replacement, once per transition.

    Threads: safe from any thread; never blocks.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def moved(self, before: NodeReplacement, after: NodeReplacement) -> None:
        """Record a change of step that has just been written."""
        old, new = before.status.current, after.status.current
        if old is new:
            return
        _log.info(
            "replacement_advanced",
            kind=NODE_REPLACEMENTS.kind,
            name=after.metadata.name,
            node=after.spec.node_name,
            step=new,
            reason=after.status.step.reason if after.status.step else "",
        )
        if before.status.is_given_back:
            node = after.spec.node_name
            message = f"node {node} is given back: its window closed before it was empty"
            self._record(after, EventReason.REPLACEMENT_REQUEUE, message)
        else:
            self._record_step(old, after)

    def held_back(self, replacement: NodeReplacement, reason: WaitReason) -> None:
        """Record that the next node may not start, if the user may have to act."""
        if reason is WaitReason.PENDING_PODS:
            self._record(replacement, EventReason.REPLACEMENT_REQUEUE, reason.message)

    def stalled(self, replacement: NodeReplacement) -> None:
        """Log that a node has released its slot; events of its drain name the pods."""
        _log.warning(
            "replacement_stalled",
            kind=NODE_REPLACEMENTS.kind,
            name=replacement.metadata.name,
            node=replacement.spec.node_name,
        )

    def given_back(self, replacement: NodeReplacement) -> None:
        """Log that the action of a deleted replacement has ended; its drain undoes the cordon."""
        _log.info(
            "replacement_given_back",
            kind=NODE_REPLACEMENTS.kind,
            name=replacement.metadata.name,
            node=replacement.spec.node_name,
        )

    def expired(self, replacement: NodeReplacement) -> None:
        """Record that an attempt failed while it waited for Pending pods."""
        if replacement.status.current is Step.FAILED:
            self._failed(replacement)
        else:
            self._requeued(replacement)

    def _record_step(self, old: Step, after: NodeReplacement) -> None:
        node, step = after.spec.node_name, after.status.current
        match step:
            case Step.RESERVED:
                message = f"replacement of node {node} has started"
                self._record(after, EventReason.REPLACEMENT_STARTED, message)
            case Step.DONE:
                self._action_ended(old, after)
                self._record(after, EventReason.REPLACEMENT_COMPLETED, f"node {node} {_how(after)}")
            case Step.FAILED:
                self._failed(after)
            case Step.CANCELLED:
                message = f"node {node} was cancelled before it started"
                self._record(after, EventReason.REPLACEMENT_CANCELLED, message)
            case Step.WAITING:
                if old is Step.RELEASING:
                    self._requeued(after)
            case Step.ACTING | Step.TERMINATING:
                action = after.spec.action
                kind = action.kind if action is not None else None
                self._record(after, EventReason.ACTION_STARTED, f"action {kind} of node {node}")
            case Step.AWAITING_REPLACEMENT | Step.VERIFYING | Step.RETURNING:
                self._action_ended(old, after)
            case Step.PREPARING | Step.CORDONED | Step.DRAINING | Step.RELEASING:
                pass  # the drain has its own events; after Releasing the attempt is recorded
            case _:
                assert_never(step)

    def _action_ended(self, old: Step, after: NodeReplacement) -> None:
        """Record that the action is done, when the replacement leaves the steps of its action.

        Likewise that the node is well, when the replacement leaves Verifying.
        """
        if old is Step.VERIFYING:
            message = f"node {after.spec.node_name} is well after its action"
            self._record(after, EventReason.NODE_VERIFIED, message)
        in_action = {Step.ACTING, Step.TERMINATING, Step.AWAITING_REPLACEMENT}
        if old in in_action and after.status.current not in in_action and not node_gone(after):
            node = after.spec.node_name
            self._record(after, EventReason.ACTION_COMPLETED, f"the action of node {node} is done")

    def _failed(self, replacement: NodeReplacement) -> None:
        self._record(
            replacement,
            EventReason.REPLACEMENT_FAILED,
            f"replacement of node {replacement.spec.node_name} failed: "
            f"{_last_failure(replacement)}",
            EventType.WARNING,
        )

    def _requeued(self, replacement: NodeReplacement) -> None:
        self._record(
            replacement,
            EventReason.REPLACEMENT_REQUEUE,
            f"attempt {replacement.status.attempts} failed and will be repeated: "
            f"{_last_failure(replacement)}",
        )

    def _record(
        self,
        replacement: NodeReplacement,
        reason: EventReason,
        message: str,
        type_: EventType = EventType.NORMAL,
    ) -> None:
        self._recorder.record(NODE_REPLACEMENTS, replacement, type_, reason, message)


def _how(replacement: NodeReplacement) -> str:
    """Return in words how a finished node has ended."""
    reason = replacement.status.step.reason if replacement.status.step is not None else ""
    match reason:
        case Reason.NODE_GONE:
            return "does not exist any more"
        case Reason.RETURNED:
            return "is in service"
        case Reason.ACTION_COMPLETED:
            return "is cordoned, and its action is done"
        case _:
            return "is drained and cordoned"


def _last_failure(replacement: NodeReplacement) -> str:
    if not replacement.status.failures:
        return "failures were reset by navarchos resume"
    last = replacement.status.failures[-1]
    return f"{last.reason}: {last.message}" if last.message else last.reason
