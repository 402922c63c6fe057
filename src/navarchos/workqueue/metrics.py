"""Queue metrics under the names that dashboards know (WQ-29, MT-01)."""

import threading
from collections.abc import Callable, Hashable
from typing import Final, Self

from prometheus_client import Gauge

from navarchos.clock import Clock
from navarchos.instrument import Instruments

__all__ = ["MAX_PRIORITY_LABELS", "QueueMetrics"]

_LABELS: Final = ("name", "controller")
_BUCKETS: Final = tuple(10.0**exponent for exponent in range(-8, 4))

MAX_PRIORITY_LABELS: Final = 25
"""Distinct priorities that become label values; later ones share one (WQ-31)."""

_OVER_LIMIT: Final = "exceeded_cardinality_limit"


class QueueMetrics:
    """The series of one queue, looked up once.

    Methods without further word are called under the queue's lock. Running
    times are computed when somebody scrapes, so no thread keeps them up to date
    (client-go updates them twice a second).
    """

    def __init__(
        self, name: str, instruments: Instruments, *, lock: threading.Lock, clock: Clock
    ) -> None:
        self._clock = clock
        self._lock = lock
        self._added_at: dict[Hashable, float] = {}  # guarded by the queue's lock
        self._lent_at: dict[Hashable, float] = {}  # guarded by the queue's lock
        self._name = name
        labels = (name, name)
        self._depth = instruments.gauge(
            "workqueue_depth", "Keys that wait for a worker.", (*_LABELS, "priority")
        )
        self._depths: dict[int, Gauge] = {}  # guarded by the queue's lock
        self._adds = instruments.counter("workqueue_adds_total", "Keys accepted.", _LABELS).labels(
            *labels
        )
        self._retries = instruments.counter(
            "workqueue_retries_total", "Delayed adds asked for.", _LABELS
        ).labels(*labels)
        self._latency = instruments.histogram(
            "workqueue_queue_duration_seconds",
            "Time from a key's add to its loan.",
            _LABELS,
            buckets=_BUCKETS,
        ).labels(*labels)
        self._work = instruments.histogram(
            "workqueue_work_duration_seconds",
            "Time that keys were on loan.",
            _LABELS,
            buckets=_BUCKETS,
        ).labels(*labels)
        instruments.gauge(
            "workqueue_unfinished_work_seconds", "Sum of the ages of open loans.", _LABELS
        ).labels(*labels).set_function(lambda: sum(self._running()))
        instruments.gauge(
            "workqueue_longest_running_processor_seconds", "Age of the oldest loan.", _LABELS
        ).labels(*labels).set_function(lambda: max(self._running(), default=0.0))

    @classmethod
    def of(
        cls, name: str, instruments: Instruments | None, *, lock: threading.Lock, clock: Clock
    ) -> Self | None:
        """Return the metrics of a named queue, `None` for an unnamed one (WQ-30)."""
        if instruments is None or not name:
            return None
        return cls(name, instruments, lock=lock, clock=clock)

    def show_depth(self, depth: Callable[[], int]) -> None:
        """Read the depth of a queue without priorities when somebody scrapes.

        Args:
            depth: Called with the queue's lock held.
        """

        def read() -> int:
            with self._lock:
                return depth()

        self._depth.labels(self._name, self._name, "").set_function(read)

    def added(self, key: Hashable) -> None:
        """Count an accepted add."""
        self._adds.inc()
        self._added_at[key] = self._clock.monotonic()

    def adjust_depth(self, priority: int, by: int) -> None:
        """Move the depth of one priority."""
        gauge = self._depths.get(priority)
        if gauge is None:
            over = len(self._depths) >= MAX_PRIORITY_LABELS
            gauge = self._depth.labels(
                self._name, self._name, _OVER_LIMIT if over else str(priority)
            )
            if not over:
                self._depths[priority] = gauge
        gauge.inc(by)

    def lent(self, key: Hashable) -> None:
        """Measure how long the key waited, and begin to measure its loan."""
        now = self._clock.monotonic()
        self._lent_at[key] = now
        added_at = self._added_at.pop(key, None)
        if added_at is not None:
            self._latency.observe(now - added_at)

    def returned(self, key: Hashable) -> None:
        """Measure the loan that ends."""
        lent_at = self._lent_at.pop(key, None)
        if lent_at is not None:
            self._work.observe(self._clock.monotonic() - lent_at)

    def retried(self) -> None:
        """Count a delayed add. Safe without the lock."""
        self._retries.inc()

    def _running(self) -> list[float]:
        # Called while a registry is read, without the lock.
        with self._lock:
            now = self._clock.monotonic()
            return [now - lent_at for lent_at in self._lent_at.values()]
