"""The classic queues of client-go: plain, delaying, and rate limiting."""

import threading
from collections import deque
from typing import Protocol, TypeVar, cast

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import SelfJoin
from navarchos.instrument import Instruments
from navarchos.workqueue.base import BaseQueue, Loan, acquire_without_convoy, unhashable
from navarchos.workqueue.delays import Delays
from navarchos.workqueue.limiters import RateLimiter, default_limiter

__all__ = ["DelayingQueue", "Fifo", "Order", "RateLimitingQueue", "WorkQueue"]

K = TypeVar("K")


class Order(Protocol[K]):
    """The ready keys of a queue, in the order in which workers get them (WQ-08).

    A key is in it at most once. The queue calls it under its lock: it must be quick, and
    must not keep a reference to a key that was popped.
    """

    def push(self, key: K, /) -> None:
        """Append a key that became ready."""
        ...

    def pop(self) -> K:
        """Remove and return the next key; called only if there is one."""
        ...

    def touch(self, key: K, /) -> None:
        """Record that a key that is already in here was added again."""
        ...

    def __len__(self) -> int: ...


class Fifo(deque[K]):
    """Oldest first. The default."""

    # Aliases of the C methods: the queue's hot path calls them directly.
    push = deque.append
    pop = deque.popleft

    def touch(self, key: K, /) -> None:
        """Keep the place."""


class _QueueDrain:
    """A thread that waits until the loans are closed."""

    __slots__ = ("drained",)

    def __init__(self) -> None:
        self.drained: bool | None = None  # guarded by the queue's lock; how it ended


class WorkQueue(BaseQueue[K]):
    """Gives each key to one worker at a time (client-go `util/workqueue`).

    Promises: after an `add` the key is processed at least once. It is never with two
    workers at once. However often it is added while it waits, it is processed once, and
    once more if it was added during its loan. Keys come in the order given by `order`.

    Does not promise: fairness between waiting workers, or that a key added after
    shutdown is ever processed.

    Args:
        name: For metrics and error messages.
        order: Container of the ready keys; oldest first by default.
        clock: Measures timeouts and metrics.
        instruments: The metrics. Without them or without a name there are no metrics, and
            then the queue reads the clock only for timeouts.

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
        super().__init__(name=name, clock=clock, instruments=instruments)
        # Drains wait on a separate condition, so that notifying one worker is enough.
        self._drained = threading.Condition(self._lock)
        # All below: guarded by _lock.
        self._dirty: set[K] = set()  # keys that must be processed
        self._loans: dict[K, int] = {}  # keys on loan, by the worker's thread; may be dirty too
        self._ready: Order[K] = (  # always dirty, never on loan
            order if order is not None else cast("Order[K]", Fifo[K]())
        )
        # While draining: keys that were dirty when their loans closed, to be processed again.
        self._requeued_in_drain: set[K] = set()
        self._draining = False  # a thread waits, or waited, for the loans to be closed
        self._drains: list[_QueueDrain] = []  # threads that wait: there is a loan or a requeued key
        if self._metrics is not None:
            self._metrics.show_depth(self._dirty.__len__)

    def __len__(self) -> int:
        """Return how many keys are ready now. Informational (WQ-04)."""
        with self._lock:
            return len(self._ready)

    def add(self, key: K) -> None:
        """Record that `key` must be processed. Ignored after shutdown.

        Raises:
            TypeError: The key is not hashable.
        """
        # Not `with self._lock`: that would block on a busy lock and form a convoy.
        if not self._try_lock(False):
            acquire_without_convoy(self._lock)
        try:
            self._add_locked(key)
        finally:
            self._unlock()

    def get(self, *, timeout: float | None = None) -> Loan[K] | None:
        """Return the next ready key as a loan, and wait until there is one.

        While the loan is open no other worker gets this key. An `add` of the key in the
        meantime makes it ready again, once, when the loan is closed.

        Args:
            timeout: Longest wait in seconds on the queue's clock. `None` waits without
                limit, `0` does not wait.

        Returns:
            A context manager that yields the key and closes the loan on exit, or `None` if
            the queue is shut down and empty. Then every later call returns `None` at once,
            unless a loan is closed whose key was added again.

        Raises:
            QueueTimeout: No key became ready in time. The queue is unchanged.
        """
        if not self._try_lock(False):
            acquire_without_convoy(self._lock)
        try:
            if not self._ready and not self._wait_for_key_locked(timeout):
                return None
            key = self._ready.pop()
            self._dirty.remove(key)
            self._loans[key] = threading.get_ident()
            if self._draining:
                self._requeued_in_drain.discard(key)
            if self._metrics is not None:
                self._metrics.started(key)
        finally:
            self._unlock()
        return Loan(self, key)

    def done(self, key: K) -> None:
        """Close the loan of `key`; without a loan, do nothing (WQ-03).

        For code that cannot use the loan as a context manager.
        """
        if not self._try_lock(False):
            acquire_without_convoy(self._lock)
        try:
            if self._loans.pop(key, None) is None:
                return
            if self._metrics is not None:
                self._metrics.finished(key)
            if key in self._dirty:
                self._push_locked(key)
                if self._draining:
                    self._requeued_in_drain.add(key)
            elif self._draining and not self._loans and not self._requeued_in_drain:
                self._end_drains_locked(drained=True)
        finally:
            self._unlock()

    def shut_down(self) -> None:
        """Refuse further keys, and end when the ready keys are processed.

        Returns at once: workers may still run. A waiting drain is released.
        """
        with self._lock:
            # Before `_requeued_in_drain` is cleared: when the waiting thread runs, the
            # drain would look complete.
            self._end_drains_locked(drained=False)
            self._draining = False
            self._requeued_in_drain.clear()
            self._close_locked()

    def shut_down_with_drain(self, timeout: float | None = None) -> bool:
        """Shut down, and wait until every loan is closed.

        A key that was added during its loan is processed again and waited for as well, so
        workers must call `get` until it returns `None`.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit, `0` does not wait.

        Returns:
            False if the time passed, or `shut_down` was called, first.

        Raises:
            SelfJoin: This thread has an open loan, so it would wait for itself.
        """
        deadline = self._deadline(timeout)
        with self._lock:
            if threading.get_ident() in self._loans.values():
                raise SelfJoin(f"queue {self.name}")
            self._draining = True
            self._close_locked()
            if not self._loans and not self._requeued_in_drain:
                return True
            drain = _QueueDrain()
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

    def _wait_for_key_locked(self, timeout: float | None) -> bool:
        """Wait for a ready key; return False if there will be none."""
        deadline = self._deadline(timeout)
        while not self._ready:
            if self._shutting_down:
                return False
            self._wait_locked(deadline, timeout)
        return True

    def _close_locked(self) -> None:
        self._shutting_down = True
        self._available.notify_all()


class DelayingQueue(WorkQueue[K]):
    """A `WorkQueue` that can add keys later (WQ-10 to WQ-14).

    Delayed keys are not counted by `len()`, and any shutdown drops them.

    Threads: starts one thread with the first delayed key, and joins it when the queue is
    shut down.
    """

    def __init__(
        self,
        *,
        name: str = "",
        order: Order[K] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        super().__init__(name=name, order=order, clock=clock, instruments=instruments)
        self._delays: Delays[K] = Delays(
            self._lock, lambda key, _: self._add_locked(key), name=name, clock=clock
        )

    def add_after(self, key: K, delay: float) -> None:
        """Add `key` at or after `delay` seconds from now; at once if that is 0 or less.

        The earlier of two times counts. A plain `add` does not cancel a delayed key: the
        key comes again later (RT-17). Ignored after shutdown.

        Raises:
            TypeError: The key is not hashable.
        """
        with self._lock:
            if self._shutting_down:
                return
            if self._metrics is not None:
                self._metrics.retried()
            if delay > 0:
                self._delay_locked(key, delay)
            else:
                self._add_locked(key)

    def shut_down(self) -> None:
        """Refuse further keys, drop delayed ones, and end when ready keys are processed."""
        super().shut_down()
        self._delays.join()

    def shut_down_with_drain(self, timeout: float | None = None) -> bool:
        """Shut down, and wait until every loan is closed."""
        drained = super().shut_down_with_drain(timeout)
        self._delays.join()
        return drained

    def _delay_locked(self, key: K, delay: float) -> None:
        try:
            self._delays.put_locked(key, delay)
        except TypeError:
            raise unhashable(key) from None

    def _close_locked(self) -> None:
        super()._close_locked()
        self._delays.close_locked()


class RateLimitingQueue(DelayingQueue[K]):
    """A `DelayingQueue` with a limiter that sets the delay of a key (WQ-20).

    Args:
        limiter: `default_limiter()` by default.
    """

    def __init__(
        self,
        *,
        name: str = "",
        limiter: RateLimiter[K] | None = None,
        order: Order[K] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        super().__init__(name=name, order=order, clock=clock, instruments=instruments)
        self._limiter: RateLimiter[K] = limiter if limiter is not None else default_limiter(clock)

    def add_rate_limited(self, key: K) -> None:
        """Add `key` when the limiter allows it."""
        self.add_after(key, self._limiter.when(key))

    def forget(self, key: K) -> None:
        """Reset `key` in the limiter; the queue itself does not change."""
        self._limiter.forget(key)

    def num_requeues(self, key: K) -> int:
        """Return how often `key` was limited since it was last forgotten."""
        return self._limiter.num_requeues(key)
