"""Draining: pods are evicted. The NodeDrain reports when this ends, and with which result."""

from typing import assert_never

from navarchos.operator.api.v1alpha1 import DrainPhase, Step
from navarchos.operator.reasons import Reason
from navarchos.operator.replacements.steps import decision

__all__ = ["decide"]


def decide(observed: decision.StepObservation) -> decision.Decision:
    """Follow the result of the drain; fail if it was deleted."""
    drain = observed.drain
    if drain is None:
        return decision.DRAIN_DELETED
    status = drain.status
    if status.is_final and status.reason == Reason.NODE_GONE:
        return decision.CompleteWithoutNode()
    if drain.metadata.deletion_timestamp is not None:
        # Even a completed drain: its deletion may have uncordoned the node.
        return decision.DRAIN_DELETED
    match status.phase:
        case None | DrainPhase.PENDING | DrainPhase.PREPARING | DrainPhase.DRAINING:
            return decision.NoAction()
        case DrainPhase.COMPLETED:
            return decision.after(observed.replacement.spec, Step.DRAINING)
        case DrainPhase.FAILED:
            return decision.FailAttempt(status.reason or Reason.DRAIN_FAILED, status.message)
        case _:
            assert_never(status.phase)
