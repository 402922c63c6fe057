"""Cordoned: no new pod comes; the drain is about to begin."""

from navarchos.operator.api.v1alpha1 import DrainPhase, NodeDrain, Step
from navarchos.operator.replacements.steps.actions import Advance, Decision, FailAttempt, NoAction

__all__ = ["decide"]


def decide(drain: NodeDrain | None) -> Decision:
    """Decide from the drain; `None` when it was deleted behind our back."""
    if drain is None or drain.metadata.deletion_timestamp is not None:
        return FailAttempt("DrainDeleted", "its NodeDrain was deleted")
    if drain.status.is_final or drain.status.phase is DrainPhase.DRAINING:
        return Advance(Step.DRAINING)
    return NoAction()
