"""Events and figures about the transitions of a drain."""

from datetime import datetime
from typing import Final

from navarchos.events import EventType, Recorder
from navarchos.operator.api.v1alpha1 import NODE_DRAINS, DrainPhase, NodeDrain
from navarchos.operator.drains.metrics import DrainMetrics
from navarchos.operator.drains.status import DrainReason
from navarchos.operator.reasons import EventReason

__all__ = ["Teller"]

_NAMED: Final = 5
"""Pods that one event names; the others are in status."""


class Teller:
    """Compares what was stored with what is stored, and says what has changed.

    Threads: safe from any thread.
    """

    def __init__(self, recorder: Recorder, metrics: DrainMetrics) -> None:
        self._recorder = recorder
        self._metrics = metrics

    def cordoned(self, drain: NodeDrain, message: str) -> None:
        """Say that the node has been closed."""
        self._say(drain, EventReason.NODE_CORDONED, f"{_node(drain)}: {message}", "Cordon")

    def uncordoned(self, drain: NodeDrain) -> None:
        """Say that the node has been opened."""
        message = f"{_node(drain)}: the cordon of this drain is undone"
        self._say(drain, EventReason.NODE_UNCORDONED, message, "Uncordon")

    def stored(self, before: NodeDrain, after: NodeDrain) -> None:
        """Say which pods are newly blocked; note the figures."""
        known = {blocker.uid for blocker in before.status.blockers}
        blockers = after.status.blockers
        new = [blocker for blocker in blockers if blocker.uid not in known]
        if new:
            named = "; ".join(
                f"{b.namespace}/{b.pod}: {b.reason}{f' {b.budget}' if b.budget else ''}"
                for b in new[:_NAMED]
            )
            more = f"; and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
            self._warn(after, f"cannot move {len(new)} pods: {named}{more}")
        since = min((b.first_seen for b in blockers if b.first_seen is not None), default=None)
        self._metrics.blocked(after.metadata.name, after.status.blocked, since)

    def ended(self, drain: NodeDrain, now: datetime) -> None:
        """Say how the drain ended."""
        status = drain.status
        if status.phase is DrainPhase.FAILED:
            self._metrics.ended(DrainPhase.FAILED, status.start_timestamp, now)
            self._warn(drain, f"gave {_node(drain)} up: {status.message}")
            return
        self._metrics.ended(DrainPhase.COMPLETED, status.start_timestamp, now)
        if status.reason == DrainReason.NODE_DRAINED:
            message = f"{_node(drain)} is empty: {status.evicted} pods have left it"
            self._say(drain, EventReason.NODE_DRAINED, message, "Drain")

    def forget(self, drain: str) -> None:
        """Forget the figures of a drain that is over."""
        self._metrics.forget(drain)

    def _warn(self, drain: NodeDrain, message: str) -> None:
        reason = str(EventReason.EVICTION_BLOCKED)
        self._recorder.record(
            NODE_DRAINS, drain, EventType.WARNING, reason, message, action="Evict"
        )

    def _say(self, drain: NodeDrain, reason: EventReason, message: str, action: str) -> None:
        self._recorder.record(
            NODE_DRAINS, drain, EventType.NORMAL, str(reason), message, action=action
        )


def _node(drain: NodeDrain) -> str:
    return f"node {drain.spec.node_name}"
