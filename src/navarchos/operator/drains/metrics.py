"""What drains count (OP-65)."""

import threading
from datetime import datetime
from typing import Final

from navarchos.drain import EvictionOutcome
from navarchos.instrument import Instruments
from navarchos.operator.api.v1alpha1 import DrainPhase

__all__ = ["DrainMetrics"]

_BUCKETS: Final = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0)


class DrainMetrics:
    """Counters of one process. No node, pod or drain is ever a label.

    Threads: safe from any thread.
    """

    def __init__(self, instruments: Instruments) -> None:
        evictions = instruments.counter(
            "navarchos_drain_evictions_total",
            "Requests that a pod leave its node, by what became of them.",
            ["outcome"],
        )
        duration = instruments.histogram(
            "navarchos_drain_duration_seconds",
            "From the first eviction on a node to the end of its drain.",
            ["result"],
            buckets=_BUCKETS,
        )
        self._evictions = {answer: evictions.labels(str(answer)) for answer in EvictionOutcome}
        self._durations = {
            phase: duration.labels(str(phase))
            for phase in (DrainPhase.COMPLETED, DrainPhase.FAILED)
        }
        self._blocked = instruments.gauge(
            "navarchos_drain_blocked_pods", "Pods that have to leave a node and do not."
        )
        self._oldest = instruments.gauge(
            "navarchos_drain_blocked_since_timestamp_seconds",
            "Since when the pod is blocked that is blocked longest; 0 if none is.",
        )
        self._facts_lock = threading.Lock()
        # guarded by _facts_lock; by drain: blocked pods, and since when
        self._facts: dict[str, tuple[int, float]] = {}

    def answered(self, answer: EvictionOutcome) -> None:
        """Count one request that a pod leave."""
        self._evictions[answer].inc()

    def ended(self, phase: DrainPhase, started_at: datetime | None, now: datetime) -> None:
        """Count the end of a drain; one that never began has no duration."""
        if started_at is not None:
            self._durations[phase].observe(max(0.0, (now - started_at).total_seconds()))

    def blocked(self, drain: str, pods: int, since: datetime | None) -> None:
        """Note how many pods of a drain are blocked, and since when."""
        with self._facts_lock:
            self._facts.pop(drain, None)
            if pods and since is not None:
                self._facts[drain] = (pods, since.timestamp())
            self._blocked.set(sum(count for count, _ in self._facts.values()))
            self._oldest.set(min((oldest for _, oldest in self._facts.values()), default=0.0))

    def forget(self, drain: str) -> None:
        """Forget a drain that is over."""
        self.blocked(drain, 0, None)
