"""Releasing: an attempt failed; what it holds is given back before its slot is."""

from navarchos.operator.api.v1alpha1 import NodeDrain, NodeFailurePolicy, NodeReplacement
from navarchos.operator.replacements.steps.moves import (
    DeleteDrain,
    KeepCordon,
    Move,
    Released,
    Stay,
)

__all__ = ["decide"]


def decide(replacement: NodeReplacement, drain: NodeDrain | None) -> Move:
    """Decide what happens to the cordon that the failed attempt set (OP-25).

    Args:
        replacement: In step Releasing.
        drain: The failed attempt's own drain; `None` once it is gone, or when the
            attempt failed before it had one.
    """
    if drain is None:
        return Released()
    if drain.metadata.deletion_timestamp is not None:
        return Stay()
    if replacement.spec.strategy.on_node_failure is NodeFailurePolicy.UNCORDON:
        return DeleteDrain()
    return KeepCordon() if drain.spec.uncordon_on_delete else Released()
