"""Draining: pods are evicted. The NodeDrain reports when this ends, and with which result."""

from typing import assert_never

from navarchos.operator.api.v1alpha1 import DrainPhase
from navarchos.operator.reasons import Reason
from navarchos.operator.replacements.steps.decision import (
    DRAIN_DELETED,
    Complete,
    CompleteWithoutNode,
    Decision,
    FailAttempt,
    NoAction,
    Observation,
)

__all__ = ["decide"]


def decide(observed: Observation) -> Decision:
    """Follow the result of the drain; fail if it was deleted."""
    drain = observed.drain
    if drain is None:
        return DRAIN_DELETED
    status = drain.status
    if status.is_final and status.reason == Reason.NODE_GONE:
        return CompleteWithoutNode()
    if drain.metadata.deletion_timestamp is not None:
        # Even a completed drain: its deletion may have uncordoned the node.
        return DRAIN_DELETED
    match status.phase:
        case None | DrainPhase.PENDING | DrainPhase.DRAINING:
            return NoAction()
        case DrainPhase.COMPLETED:
            return Complete()
        case DrainPhase.FAILED:
            return FailAttempt(status.reason or Reason.DRAIN_FAILED, status.message)
        case _:
            assert_never(status.phase)
