"""The metrics of drains."""

import threading
from datetime import datetime
from typing import Final

from navarchos.drain import EvictionOutcome
from navarchos.instrument import Instruments
from navarchos.operator.api import v1alpha1 as api

__all__ = ["DrainMetrics"]

_BUCKETS: Final = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0)


class DrainMetrics:
    """The drain metrics of one process. The name of a node, pod or drain is never a label.

    Threads: safe from any thread.
    """

    def __init__(self, instruments: Instruments) -> None:
        evictions = instruments.counter(
            "navarchos_drain_evictions_total",
            "Eviction and deletion requests, by outcome.",
            ["outcome"],
        )
        duration = instruments.histogram(
            "navarchos_drain_duration_seconds",
            "Time from the first eviction on a node to the end of its drain.",
            ["result"],
            buckets=_BUCKETS,
        )
        self._preparations = instruments.histogram(
            "navarchos_drain_prepare_seconds",
            "Time from the beginning of the preparation of a node to its end.",
            [],
            buckets=_BUCKETS,
        )
        self._replaced_first = instruments.counter(
            "navarchos_drain_replaced_first_total",
            "Pods whose Deployment was asked to replace them before they leave the node.",
        )
        self._evictions = {outcome: evictions.labels(str(outcome)) for outcome in EvictionOutcome}
        self._durations = {
            phase: duration.labels(str(phase)) for phase in api.DrainPhase if phase.is_final
        }
        self._blocked = instruments.gauge(
            "navarchos_drain_blocked_pods", "Pods whose eviction is currently blocked."
        )
        self._oldest = instruments.gauge(
            "navarchos_drain_blocked_since_timestamp_seconds",
            "Unix time at which the longest-blocked pod became blocked; 0 if none.",
        )
        self._by_drain_lock = threading.Lock()
        # guarded by _by_drain_lock; by drain: number of blocked pods, and since when
        self._by_drain: dict[str, tuple[int, float]] = {}

    def count_replaced_first(self) -> None:
        """Count one pod whose Deployment was asked to replace it first."""
        self._replaced_first.inc()

    def count_request(self, outcome: EvictionOutcome) -> None:
        """Count one eviction or deletion request."""
        self._evictions[outcome].inc()

    def observe_end(
        self, phase: api.DrainPhase, started_at: datetime | None, now: datetime
    ) -> None:
        """Record the duration of a drain; a drain without an eviction has no duration."""
        if started_at is not None:
            self._durations[phase].observe(max(0.0, (now - started_at).total_seconds()))

    def observe_preparation(self, began_at: datetime | None, now: datetime) -> None:
        """Record the duration of a preparation."""
        if began_at is not None:
            self._preparations.observe(max(0.0, (now - began_at).total_seconds()))

    def set_blocked(self, drain: str, pods: int, since: datetime | None) -> None:
        """Record how many pods of a drain are blocked, and since when."""
        with self._by_drain_lock:
            self._by_drain.pop(drain, None)
            if pods and since is not None:
                self._by_drain[drain] = (pods, since.timestamp())
            self._blocked.set(sum(count for count, _ in self._by_drain.values()))
            self._oldest.set(min((oldest for _, oldest in self._by_drain.values()), default=0.0))

    def forget(self, drain: str) -> None:
        """Forget a drain that has ended."""
        self.set_blocked(drain, 0, None)
