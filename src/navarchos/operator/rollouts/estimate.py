"""When a rollout will probably be done (OP-11). Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from navarchos.operator.api.v1alpha1 import NodeReplacement, Step
from navarchos.operator.replacements.failures import node_gone

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
    spans = [span for child in children if (span := _span(child)) is not None]
    if not spans or remaining <= 0 or concurrent <= 0:
        return None
    mean = sum((end - start for start, end in spans), timedelta()) / len(spans)
    rounds = -(-remaining // concurrent)
    last = max(end for _, end in spans)
    estimate = last + rounds * (mean + timedelta(seconds=settle_seconds))
    return estimate.replace(microsecond=0)


def _span(child: NodeReplacement) -> tuple[datetime, datetime] | None:
    status = child.status
    if status.current is not Step.DONE or node_gone(child):
        return None
    if status.start_timestamp is None or status.completion_timestamp is None:
        return None
    return status.start_timestamp, status.completion_timestamp
