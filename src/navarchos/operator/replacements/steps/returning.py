"""Returning: the node goes back into service. Its NodeDrain undoes the cordon and is gone then."""

from navarchos.operator.replacements.steps import decision

__all__ = ["decide"]


def decide(observed: decision.StepObservation) -> decision.Decision:
    """Delete the drain, which undoes its cordon, and finish once it is gone (UP-72)."""
    if observed.drain is None:
        return decision.CompleteReturned()
    if observed.drain.metadata.deletion_timestamp is not None:
        return decision.NoAction()
    return decision.DeleteDrain()
