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
"""Number of priorities that get a label value; further ones share one (WQ-31)."""

_OVER_LIMIT: Final = "exceeded_cardinality_limit"


class QueueMetrics:
    """The series of one queue, looked up once.

    Methods are called under the queue's lock unless they say otherwise. Running times are
    computed at each scrape, so no thread keeps them up to date (client-go updates them
    twice a second).
    """

    def __init__(
        self, name: str, instruments: Instruments, *, lock: threading.Lock, clock: Clock
    ) -> None:
        self._clock = clock
        self._lock = lock
        self._added_at: dict[Hashable, float] = {}  # guarded by the queue's lock
        self._started_at: dict[Hashable, float] = {}  # guarded by the queue's lock
        self._name = name
        labels = (name, name)
        self._depth = instruments.gauge(
            "workqueue_depth", "Keys that wait for a worker.", (*_LABELS, "priority")
        )
        self._depths: dict[int, Gauge] = {}  # guarded by the queue's lock
        self._adds = instruments.counter(
            "workqueue_adds_total", "Keys added to the queue.", _LABELS
        ).labels(*labels)
        self._retries = instruments.counter(
            "workqueue_retries_total", "Keys added with a delay.", _LABELS
        ).labels(*labels)
        self._latency = instruments.histogram(
            "workqueue_queue_duration_seconds",
            "Time that keys waited in the queue before a worker got them.",
            _LABELS,
            buckets=_BUCKETS,
        ).labels(*labels)
        self._work = instruments.histogram(
            "workqueue_work_duration_seconds",
            "Time that workers took to process a key.",
            _LABELS,
            buckets=_BUCKETS,
        ).labels(*labels)
        instruments.gauge(
            "workqueue_unfinished_work_seconds",
            "Time since workers got the keys that they process now, summed over these keys.",
            _LABELS,
        ).labels(*labels).set_function(lambda: sum(self._running()))
        instruments.gauge(
            "workqueue_longest_running_processor_seconds",
            "Time since the longest-running worker got its key.",
            _LABELS,
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
        """Show the depth of a queue without priorities, read at each scrape.

        Args:
            depth: Called with the queue's lock held.
        """

        def read() -> int:
            with self._lock:
                return depth()

        self._depth.labels(self._name, self._name, "").set_function(read)

    def added(self, key: Hashable) -> None:
        """Count a key that was added to the queue."""
        self._adds.inc()
        self._added_at[key] = self._clock.monotonic()

    def adjust_depth(self, priority: int, by: int) -> None:
        """Change the depth of one priority."""
        gauge = self._depths.get(priority)
        if gauge is None:
            over = len(self._depths) >= MAX_PRIORITY_LABELS
            gauge = self._depth.labels(
                self._name, self._name, _OVER_LIMIT if over else str(priority)
            )
            if not over:
                self._depths[priority] = gauge
        gauge.inc(by)

    def started(self, key: Hashable) -> None:
        """Observe how long the key waited, and start to measure its processing."""
        now = self._clock.monotonic()
        self._started_at[key] = now
        added_at = self._added_at.pop(key, None)
        if added_at is not None:
            self._latency.observe(now - added_at)

    def finished(self, key: Hashable) -> None:
        """Observe how long the key was processed."""
        started_at = self._started_at.pop(key, None)
        if started_at is not None:
            self._work.observe(self._clock.monotonic() - started_at)

    def retried(self) -> None:
        """Count a key that was added with a delay. Safe without the lock."""
        self._retries.inc()

    def _running(self) -> list[float]:
        # Called while a registry is read, without the lock.
        with self._lock:
            now = self._clock.monotonic()
            return [now - started_at for started_at in self._started_at.values()]
