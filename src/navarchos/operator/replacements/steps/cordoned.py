"""Preparing and Cordoned: the drain takes the node out of service, and evicts no pod yet."""

from navarchos.operator.api.v1alpha1 import DrainPhase, Step
from navarchos.operator.replacements.attempt_drain import is_cordoned
from navarchos.operator.replacements.steps import decision

__all__ = ["decide"]


def decide(observed: decision.StepObservation) -> decision.Decision:
    """Advance once the drain cordons, evicts pods or has ended; fail if it was deleted."""
    drain = observed.drain
    if drain is None or drain.metadata.deletion_timestamp is not None:
        return decision.DRAIN_DELETED
    if drain.status.is_final or drain.status.phase is DrainPhase.DRAINING:
        return decision.Advance(Step.DRAINING)
    if observed.replacement.status.current is Step.PREPARING and is_cordoned(drain):
        return decision.Advance(Step.CORDONED)
    return decision.NoAction()
