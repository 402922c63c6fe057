"""Releasing and Returning: undo the changes of the node, then release the slot.

Releasing follows a failed attempt or a window that has closed, Returning an action that is done.
"""

from typing import assert_never

from navarchos.operator.api.v1alpha1 import NodeFailurePolicy
from navarchos.operator.replacements.steps import decision

__all__ = ["decide", "decide_return"]


def decide(observed: decision.StepObservation) -> decision.Decision:
    """Decide what happens to the cordon of the failed attempt (OP-25).

    The drain is absent once it is deleted, or if the attempt failed before it had one.
    """
    drain, policy = observed.drain, observed.replacement.spec.strategy.on_node_failure
    if drain is None:
        return decision.ReleaseSlot()
    if drain.metadata.deletion_timestamp is not None:
        return decision.NoAction()
    if observed.replacement.status.is_given_back:
        return decision.DeleteDrain()
    match policy:
        case NodeFailurePolicy.UNCORDON:
            return decision.DeleteDrain()
        case NodeFailurePolicy.KEEP:
            return (
                decision.KeepCordon() if drain.spec.uncordon_on_delete else decision.ReleaseSlot()
            )
        case _:
            assert_never(policy)


def decide_return(observed: decision.StepObservation) -> decision.Decision:
    """Delete the drain, which undoes its cordon, and finish once it is gone (UP-72)."""
    if observed.drain is None:
        return decision.CompleteReturned()
    if observed.drain.metadata.deletion_timestamp is not None:
        return decision.NoAction()
    return decision.DeleteDrain()
