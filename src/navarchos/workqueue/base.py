"""What all queues share: loans, the lock, and waiting for a key.

Lock order: `_lock` only. No I/O, callback or log call runs under it; the `__hash__` and
`__eq__` of keys do.
"""

import sys
import threading
from typing import Final, Generic, Protocol, TypeVar

from navarchos.clock import Clock
from navarchos.errors import NavarchosError
from navarchos.instrument import Instruments
from navarchos.workqueue.metrics import QueueMetrics

__all__ = ["BaseQueue", "Loan", "QueueTimeout", "acquire_without_convoy", "unhashable"]

K = TypeVar("K")
K_contra = TypeVar("K_contra", contravariant=True)

_YIELD_SECONDS: Final = 1e-6
_MAX_YIELDS: Final = 100
"""Yields after which a thread blocks on the lock after all."""

_HAS_GIL: Final = getattr(sys, "_is_gil_enabled", lambda: True)()

_never_free: Final = threading.Lock()
_never_free.acquire()


class QueueTimeout(NavarchosError):
    """No key became ready in time. The queue is unchanged.

    Attributes:
        queue: The queue's name.
        timeout: The timeout in seconds.
    """

    def __init__(self, queue: str, timeout: float) -> None:
        super().__init__(queue, timeout)
        self.queue = queue
        self.timeout = timeout

    def __str__(self) -> str:
        return f"queue {self.queue or '(unnamed)'} had no key ready within {self.timeout:g} s"


def unhashable(key: object) -> TypeError:
    """Return the error for a key that is not hashable (WQ-09)."""
    return TypeError(
        f"a queue key must be hashable, but {type(key).__name__} is not: "
        f"use a tuple of names instead of {key!r:.80}"
    )


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
