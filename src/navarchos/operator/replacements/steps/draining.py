"""Draining: pods leave; the drain says when it is over and how it ended."""

from navarchos.operator.api.v1alpha1 import DrainPhase, NodeDrain
from navarchos.operator.history import NODE_GONE
from navarchos.operator.replacements.steps.actions import (
    Complete,
    CompleteWithoutNode,
    Decision,
    FailAttempt,
    NoAction,
)

__all__ = ["decide"]


def decide(drain: NodeDrain | None) -> Decision:
    """Decide from the drain; `None` when it was deleted behind our back."""
    if drain is None:
        return FailAttempt("DrainDeleted", "its NodeDrain was deleted")
    status = drain.status
    ended = status.is_final
    if ended and status.reason == NODE_GONE:
        return CompleteWithoutNode()
    if drain.metadata.deletion_timestamp is not None:
        # Even a completed one: deleting it may have undone the cordon.
        return FailAttempt("DrainDeleted", "its NodeDrain was deleted")
    if status.phase is DrainPhase.COMPLETED:
        return Complete()
    if status.phase is DrainPhase.FAILED:
        return FailAttempt(status.reason or "DrainFailed", status.message)
    return NoAction()
