"""Releasing: an attempt failed; what it holds is given back before its slot is."""

from navarchos.operator.api.v1alpha1 import NodeDrain, NodeFailurePolicy, NodeReplacement
from navarchos.operator.replacements.steps.actions import (
    Decision,
    DeleteDrain,
    KeepCordon,
    NoAction,
    ReleaseSlot,
)

__all__ = ["decide"]


def decide(replacement: NodeReplacement, drain: NodeDrain | None) -> Decision:
    """Decide what happens to the cordon that the failed attempt set (OP-25).

    Args:
        replacement: In step Releasing.
        drain: The failed attempt's own drain; `None` once it is gone, or when the
            attempt failed before it had one.
    """
    if drain is None:
        return ReleaseSlot()
    if drain.metadata.deletion_timestamp is not None:
        return NoAction()
    if replacement.spec.strategy.on_node_failure is NodeFailurePolicy.UNCORDON:
        return DeleteDrain()
    return KeepCordon() if drain.spec.uncordon_on_delete else ReleaseSlot()
