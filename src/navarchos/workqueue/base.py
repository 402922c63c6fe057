"""What all queues share: loans, the lock, and waiting for a key.

Lock order: `_lock` only. No I/O, callback or log call runs under it; the `__hash__` and
`__eq__` of keys do.
"""

import sys
import threading
from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, Self, TypeVar

from prometheus_client import Gauge

from navarchos.clock import Clock
from navarchos.instrument import Instruments
from navarchos.workqueue.errors import QueueTimeout

__all__ = ["MAX_PRIORITY_LABELS", "BaseQueue", "Loan", "QueueMetrics", "acquire_without_convoy"]

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


K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)

_YIELD_SECONDS: Final = 1e-6
_MAX_YIELDS: Final = 100
"""Yields after which a thread blocks on the lock after all."""

_HAS_GIL: Final = getattr(sys, "_is_gil_enabled", lambda: True)()

_never_free: Final = threading.Lock()
_never_free.acquire()


class _Returns(Protocol[K_contra]):
    """The queue of a loan."""

    def done(self, key: K_contra) -> None: ...


class Loan(Generic[K]):
    """A key that a worker processes: no other worker gets it until the loan is closed.

    ```python
    with loan as key:
        work(key)
    ```

    Promises: closing a loan twice is harmless, even if another worker has the key by then.

    Threads: owned by one thread at a time.

    Attributes:
        key: The key.
        priority: Its priority; 0 for a queue without priorities.
    """

    __slots__ = ("_queue", "key", "priority")

    def __init__(self, queue: _Returns[K], key: K, priority: int = 0) -> None:
        self._queue: _Returns[K] | None = queue
        self.key = key
        self.priority = priority

    def __enter__(self) -> K:
        return self.key

    def __exit__(self, *_: object) -> None:
        queue = self._queue
        if queue is not None:
            self._queue = None
            queue.done(self.key)

    def done(self) -> None:
        """Close the loan."""
        self.__exit__()


class BaseQueue(Generic[K]):
    """The lock, the waiting workers and the metrics of a queue.

    Threads: safe from any thread.
    """

    def __init__(self, *, name: str, clock: Clock, instruments: Instruments | None) -> None:
        self.name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._try_lock, self._unlock = self._lock.acquire, self._lock.release
        self._available = threading.Condition(self._lock)  # a key is ready, or shutdown
        self._idle = 0  # guarded by _lock; workers that wait for a key
        self._shutting_down = False  # guarded by _lock
        self._metrics = QueueMetrics.of(name, instruments, lock=self._lock, clock=clock)

    @property
    def shutting_down(self) -> bool:
        """Whether shutdown has been requested."""
        with self._lock:
            return self._shutting_down

    def _deadline(self, timeout: float | None) -> float | None:
        return None if timeout is None else self._clock.monotonic() + timeout

    def _wait_locked(self, deadline: float | None, timeout: float | None) -> None:
        """Wait until a key may be ready.

        Raises:
            QueueTimeout: The deadline has passed.
        """
        left = None if deadline is None else deadline - self._clock.monotonic()
        if left is not None and left <= 0:
            raise QueueTimeout(self.name, timeout or 0.0)
        self._idle += 1
        try:
            self._clock.wait(self._available, left)
        finally:
            self._idle -= 1


def acquire_without_convoy(lock: threading.Lock) -> None:
    """Acquire a lock that another thread held a moment ago, without forming a convoy.

    CPython switches threads every few milliseconds. If a thread blocks on a lock that is
    free most of the time, the operating system gives it the lock while another thread runs;
    that thread blocks at its next use of the lock, and from then on every operation costs a
    switch of threads: four workers of a busy queue were six times slower than one. So a
    thread that finds the lock taken yields, and tries again when it runs next. Without the
    interpreter's global lock this would only waste time.
    """
    if _HAS_GIL:
        for _ in range(_MAX_YIELDS):
            # Gives up the interpreter's lock; returns when this thread runs again.
            _never_free.acquire(timeout=_YIELD_SECONDS)
            if lock.acquire(blocking=False):
                return
    lock.acquire()
