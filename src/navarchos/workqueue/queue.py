"""The basic queue: a set of keys that owe a run, lent out one by one.

Lock order: `_lock` only. No I/O, callback or log call runs under it; the
`__hash__` and `__eq__` of keys do.
"""

import threading
from typing import Generic, TypeVar, cast

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import SelfJoin
from navarchos.instrument import Instruments
from navarchos.workqueue.errors import QueueTimeout, unhashable
from navarchos.workqueue.loan import Loan
from navarchos.workqueue.locking import acquire_without_convoy
from navarchos.workqueue.metrics import QueueMetrics
from navarchos.workqueue.order import Fifo, Order

__all__ = ["WorkQueue"]

K = TypeVar("K")


class _Drain:
    """Somebody who waits until the loans are closed."""

    __slots__ = ("drained",)

    def __init__(self) -> None:
        self.drained: bool | None = None  # guarded by the queue's lock; how it ended


class WorkQueue(Generic[K]):
    """Hands out keys, each to one worker at a time (client-go `util/workqueue`).

    Promises: a key that was added is lent at least once afterwards; it is never
    on loan twice at once; however often it is added while it waits, it is lent
    once, and once more if it was added during its loan. Keys come out in the
    order given by `order`.

    Does not promise: fairness between waiting workers, or that a key added after
    shutdown is ever seen.

    Args:
        name: For metrics and error messages.
        order: Container of the ready keys; oldest first by default.
        clock: Measures timeouts and metrics.
        instruments: Where metrics go. No metrics without them or without a name;
            then the queue never reads the time on its own.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        *,
        name: str = "",
        order: Order[K] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._try_lock, self._unlock = self._lock.acquire, self._lock.release
        # Getters and drainers wait apart, so that waking one getter is enough.
        self._available = threading.Condition(self._lock)
        self._drained = threading.Condition(self._lock)
        # All below: guarded by _lock.
        self._dirty: set[K] = set()  # keys that owe a run
        self._loans: dict[K, int] = {}  # keys on loan, by taker's thread; may be dirty as well
        self._ready: Order[K] = (  # always dirty, never on loan
            order if order is not None else cast("Order[K]", Fifo[K]())
        )
        self._requeued_in_drain: set[K] = (
            set()
        )  # while draining: given back dirty, to be lent once more
        self._idle = 0  # getters that wait
        self._shutting_down = False
        self._draining = False  # somebody waits, or waited, for the loans to be closed
        self._drains: list[_Drain] = []  # that wait: something is on loan or owed
        self._metrics = QueueMetrics.of(name, instruments, lock=self._lock, clock=clock)
        if self._metrics is not None:
            self._metrics.show_depth(self._dirty.__len__)

    def __len__(self) -> int:
        """Return how many keys are ready now. Informational (WQ-04)."""
        with self._lock:
            return len(self._ready)

    @property
    def shutting_down(self) -> bool:
        """Whether shutdown has been asked for."""
        with self._lock:
            return self._shutting_down

    def add(self, key: K) -> None:
        """Note that `key` owes a run. Ignored after shutdown.

        Raises:
            TypeError: The key is not hashable.
        """
        # Not `with self._lock`: that would block on a busy lock. See `locking`.
        if not self._try_lock(False):
            acquire_without_convoy(self._lock)
        try:
            self._add_locked(key)
        finally:
            self._unlock()

    def get(self, *, timeout: float | None = None) -> Loan[K] | None:
        """Lend out the next ready key, waiting until there is one.

        While the loan is open no other worker receives this key. An `add` of it
        in the meantime makes it ready again, once, when the loan closes.

        Args:
            timeout: Longest wait in seconds on the queue's clock. `None` waits
                without limit, `0` only looks.

        Returns:
            A context manager that yields the key and closes the loan on exit, or
            `None` when the queue is shut down and empty; then every later call
            returns `None` at once, unless a key that is on loan is given back
            dirty.

        Raises:
            QueueTimeout: No key became ready in time. The queue is unchanged.
        """
        if not self._try_lock(False):
            acquire_without_convoy(self._lock)
        try:
            if not self._ready and not self._wait_locked(timeout):
                return None
            key = self._ready.pop()
            self._dirty.remove(key)
            self._loans[key] = threading.get_ident()
            if self._draining:
                self._requeued_in_drain.discard(key)
            if self._metrics is not None:
                self._metrics.lent(key)
        finally:
            self._unlock()
        return Loan(self, key)

    def done(self, key: K) -> None:
        """Close the loan of `key`; without one, do nothing (WQ-03).

        For code that cannot use the loan as a context manager.
        """
        if not self._try_lock(False):
            acquire_without_convoy(self._lock)
        try:
            if self._loans.pop(key, None) is None:
                return
            if self._metrics is not None:
                self._metrics.returned(key)
            if key in self._dirty:
                self._push_locked(key)
                if self._draining:
                    self._requeued_in_drain.add(key)
            elif self._draining and not self._loans and not self._requeued_in_drain:
                self._end_drains_locked(drained=True)
        finally:
            self._unlock()

    def shut_down(self) -> None:
        """Take no more keys; lend what is ready; then end.

        Returns at once: workers may still run. A drain that waits is released.
        """
        with self._lock:
            # The drains must be marked here. When their threads run, `_requeued_in_drain` has
            # been cleared, and a drain would seem to be complete.
            self._end_drains_locked(drained=False)
            self._draining = False
            self._requeued_in_drain.clear()
            self._close_locked()

    def shut_down_with_drain(self, timeout: float | None = None) -> bool:
        """Shut down, and wait until every loan has been closed.

        A key that is given back dirty is lent again and waited for as well, so
        workers must go on calling `get` until it returns `None`.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit, `0`
                only looks.

        Returns:
            False when the time passed, or `shut_down` was called, before.

        Raises:
            SelfJoin: This thread has a loan open: it would wait for itself.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._lock:
            if threading.get_ident() in self._loans.values():
                raise SelfJoin(f"queue {self.name}")
            self._draining = True
            self._close_locked()
            if not self._loans and not self._requeued_in_drain:
                return True
            drain = _Drain()
            self._drains.append(drain)
            while drain.drained is None:
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    self._drains.remove(drain)
                    return False
                self._clock.wait(self._drained, left)
            return drain.drained

    def _end_drains_locked(self, *, drained: bool) -> None:
        for drain in self._drains:
            drain.drained = drained
        self._drains.clear()
        self._drained.notify_all()

    def _add_locked(self, key: K) -> None:
        if self._shutting_down:
            return
        try:
            if key in self._dirty:
                if key not in self._loans:
                    self._ready.touch(key)
                return
        except TypeError:
            raise unhashable(key) from None
        self._dirty.add(key)
        if self._metrics is not None:
            self._metrics.added(key)
        if key not in self._loans:
            self._push_locked(key)

    def _push_locked(self, key: K) -> None:
        self._ready.push(key)
        if self._idle:
            self._available.notify()

    def _wait_locked(self, timeout: float | None) -> bool:
        """Wait for a ready key; False when there will be none."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while not self._ready:
            if self._shutting_down:
                return False
            left = None if deadline is None else deadline - self._clock.monotonic()
            if left is not None and left <= 0:
                raise QueueTimeout(self.name, timeout or 0.0)
            self._idle += 1
            try:
                self._clock.wait(self._available, left)
            finally:
                self._idle -= 1
        return True

    def _close_locked(self) -> None:
        self._shutting_down = True
        self._available.notify_all()
