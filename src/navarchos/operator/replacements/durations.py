"""How long nodes take. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from navarchos.operator.api.v1alpha1 import NodeReplacement, Step
from navarchos.operator.replacements.failures import node_gone

__all__ = ["mean", "spans"]


def spans(children: Iterable[NodeReplacement]) -> list[tuple[datetime, datetime]]:
    """Return when each drained node was begun, and when it was done."""
    return [span for child in children if (span := _span(child)) is not None]


def mean(known: Iterable[tuple[datetime, datetime]]) -> timedelta | None:
    """Return how long a node took on average; `None` when none is known."""
    lengths = [end - start for start, end in known]
    return sum(lengths, timedelta()) / len(lengths) if lengths else None


def _span(child: NodeReplacement) -> tuple[datetime, datetime] | None:
    status = child.status
    if status.current is not Step.DONE or node_gone(child):
        return None
    if status.start_timestamp is None or status.completion_timestamp is None:
        return None
    return status.start_timestamp, status.completion_timestamp
