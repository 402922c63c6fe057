"""When a rollout will probably be done (OP-11). Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from navarchos.operator.api.v1alpha1 import NodeReplacement
from navarchos.operator.replacements.durations import mean, spans

__all__ = ["estimate_completion"]


def estimate_completion(
    children: Iterable[NodeReplacement], *, remaining: int, concurrent: int, settle_seconds: int
) -> datetime | None:
    """Extend the mean duration of the drained nodes to the remaining ones.

    The estimate counts from the last node that was finished, not from now, so it
    changes when a node finishes and at no other time.

    Args:
        children: The rollout's own replacements.
        remaining: Nodes that are not finished, those in flight included.
        concurrent: Nodes in flight at once.
        settle_seconds: The pause after each node.

    Returns:
        `None` while no node has been drained, or when none remains.
    """
    known = spans(children)
    usual = mean(known)
    if usual is None or remaining <= 0 or concurrent <= 0:
        return None
    rounds = -(-remaining // concurrent)
    last = max(end for _, end in known)
    estimate = last + rounds * (usual + timedelta(seconds=settle_seconds))
    return estimate.replace(microsecond=0)
