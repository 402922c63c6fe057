"""Cordoned: the node accepts no new pods, and its drain is about to begin."""

from navarchos.operator.api.v1alpha1 import DrainPhase, Step
from navarchos.operator.replacements.steps import decision

__all__ = ["decide"]


def decide(observed: decision.StepObservation) -> decision.Decision:
    """Advance once the drain evicts pods or has ended; fail if it was deleted."""
    drain = observed.drain
    if drain is None or drain.metadata.deletion_timestamp is not None:
        return decision.DRAIN_DELETED
    if drain.status.is_final or drain.status.phase is DrainPhase.DRAINING:
        return decision.Advance(Step.DRAINING)
    return decision.NoAction()
