"""The queue that controllers use by default: urgent keys first, delays built in.

Lock order: `_lock` only, as in `queue`.
"""

import threading
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.instrument import Instruments
from navarchos.workqueue.delays import Delays
from navarchos.workqueue.errors import QueueTimeout, unhashable
from navarchos.workqueue.levels import Entry, PriorityBuckets
from navarchos.workqueue.limiters import RateLimiter, controller_limiter
from navarchos.workqueue.loan import Loan
from navarchos.workqueue.locking import acquire_without_convoy
from navarchos.workqueue.metrics import QueueMetrics

__all__ = ["PriorityQueue"]

K = TypeVar("K", bound=Hashable)

_SLACK: Final = 64
"""Dead entries that are not worth looking for."""


class PriorityQueue(Generic[K]):
    """Hands out keys by priority, each to one worker at a time (WQ-21 to WQ-28).

    Promises: a higher number comes first; within a priority, whoever became
    ready first. A key is in the queue once, with the highest priority and the
    earliest time of all its adds. It is never on loan twice at once: a key that
    is added during its loan keeps its place and is passed over until the loan
    closes.

    Does not promise: that keys of a low priority are ever lent while urgent ones
    keep coming, or that ready keys are lent after shutdown: that is immediate.

    Args:
        name: For metrics and error messages.
        limiter: Answers `rate_limited` adds; 5 ms doubling to 1000 s by default.
        clock: Measures delays, timeouts and metrics.
        instruments: Where metrics go; none without them or without a name.

    Threads: safe from any thread. Starts one thread of its own with the first
    delayed key, and joins it when it is shut down.
    """

    def __init__(
        self,
        *,
        name: str = "",
        limiter: RateLimiter[K] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._limiter: RateLimiter[K] = limiter if limiter is not None else controller_limiter()
        self._lock = threading.Lock()
        self._try_lock, self._unlock = self._lock.acquire, self._lock.release
        self._available = threading.Condition(self._lock)
        # All below: guarded by _lock.
        self._ready: dict[K, Entry[K]] = {}  # keys that owe a run now
        self._buckets: PriorityBuckets[K] = (
            PriorityBuckets()
        )  # their entries that were not passed over, and
        # dead entries: of keys that were raised since
        self._passed_over: dict[K, Entry[K]] = {}  # came first while their keys were on loan;
        # some may be dead
        self._dead = 0  # most dead entries that there can be
        self._loans: set[K] = set()  # keys on loan; may be ready or delayed as well
        self._count = 0  # order within a priority
        self._idle = 0  # getters that wait
        self._shutting_down = False
        # Keys whose time has not come. None of them is ready.
        self._delays: Delays[K] = Delays(
            self._lock, self._make_ready_locked, name=name, clock=clock
        )
        self._metrics = QueueMetrics.of(name, instruments, lock=self._lock, clock=clock)
        if self._metrics is not None:
            self._metrics.adjust_depth(0, 0)

    def __len__(self) -> int:
        """Return how many keys are ready, those on loan included (WQ-24)."""
        with self._lock:
            return len(self._ready)

    @property
    def shutting_down(self) -> bool:
        """Whether shutdown has been asked for."""
        with self._lock:
            return self._shutting_down

    def add(
        self, key: K, *, after: float = 0.0, rate_limited: bool = False, priority: int = 0
    ) -> None:
        """Note that `key` owes a run. Ignored after shutdown.

        A key that is already in keeps the higher priority and the earlier time;
        when its priority rises it goes to the end of the new one.

        Args:
            key: Hashable.
            after: Seconds to wait; 0 or less asks for no delay.
            rate_limited: Ask the limiter for a delay. With `after` as well, the
                shorter of the two counts.
            priority: Higher comes first.

        Raises:
            TypeError: The key is not hashable.
        """
        delay = self._delay(key, after) if rate_limited else after
        # Not `with self._lock`: that would block on a busy lock. See `locking`.
        if not self._try_lock(False):
            acquire_without_convoy(self._lock)
        try:
            if not self._shutting_down:
                self._add_locked(key, delay, priority)
        finally:
            self._unlock()

    def add_after(self, key: K, delay: float, *, priority: int = 0) -> None:
        """Add `key` at or after `delay` seconds from now."""
        self.add(key, after=delay, priority=priority)

    def add_rate_limited(self, key: K, *, priority: int = 0) -> None:
        """Add `key` when the limiter allows it."""
        self.add(key, rate_limited=True, priority=priority)

    def forget(self, key: K) -> None:
        """Begin anew with `key` in the limiter; the queue itself does not change."""
        self._limiter.forget(key)

    def num_requeues(self, key: K) -> int:
        """Return how often `key` was limited since it was last forgotten."""
        return self._limiter.num_requeues(key)

    def get(self, *, timeout: float | None = None) -> Loan[K] | None:
        """Lend out the most urgent ready key, waiting until there is one.

        Args:
            timeout: Longest wait in seconds on the queue's clock. `None` waits
                without limit, `0` only looks.

        Returns:
            A context manager that yields the key and closes the loan on exit, or
            `None` once the queue is shut down.

        Raises:
            QueueTimeout: No key became ready in time. The queue is unchanged.
        """
        if not self._try_lock(False):
            acquire_without_convoy(self._lock)
        try:
            entry = self._pop_locked() or self._wait_locked(timeout)
            if entry is None:
                return None
            negative, _, key = entry
            del self._ready[key]
            self._loans.add(key)
            if self._metrics is not None:
                self._metrics.adjust_depth(-negative, -1)
                self._metrics.lent(key)
        finally:
            self._unlock()
        return Loan(self, key, -negative)

    def done(self, key: K) -> None:
        """Close the loan of `key`; without one, do nothing."""
        if not self._try_lock(False):
            acquire_without_convoy(self._lock)
        try:
            if key not in self._loans:
                return
            self._loans.remove(key)
            if self._metrics is not None:
                self._metrics.returned(key)
            if key in self._ready:
                self._return_locked(key)
        finally:
            self._unlock()

    def shut_down(self) -> None:
        """End at once: getters return, nothing is lent any more, adds are ignored.

        May be called again. Loans that are open may be closed as always.
        """
        with self._lock:
            self._shutting_down = True
            self._drop_locked()
            self._delays.close_locked()
            self._available.notify_all()
        self._delays.join()

    def shut_down_with_drain(self, timeout: float | None = None) -> bool:
        """Do what `shut_down` does: this queue does not drain (WQ-26).

        Returns:
            True.
        """
        self.shut_down()
        return True

    def _delay(self, key: K, after: float) -> float:
        limited = self._limiter.when(key)
        return min(limited, after) if after > 0 else limited

    def _add_locked(self, key: K, delay: float, priority: int) -> None:
        try:
            entry = self._ready.get(key)
        except TypeError:
            raise unhashable(key) from None
        if delay > 0 and self._metrics is not None:
            self._metrics.retried()
        if entry is not None:
            if priority > -entry[0]:
                self._raise_locked(key, -entry[0], priority)
        elif delay > 0:
            self._delays.put_locked(key, delay, priority)
        elif key in self._delays:
            self._make_ready_locked(key, max(priority, self._delays.take_locked(key)))
        else:
            self._make_ready_locked(key, priority)

    def _make_ready_locked(self, key: K, priority: int) -> None:
        if self._metrics is not None:
            self._metrics.added(key)
            self._metrics.adjust_depth(priority, 1)
        self._enter_locked(key, priority)

    def _raise_locked(self, key: K, old: int, new: int) -> None:
        if self._metrics is not None:
            self._metrics.adjust_depth(old, -1)
            self._metrics.adjust_depth(new, 1)
        self._dead += 1
        if self._dead > len(self._ready) + _SLACK:
            self._buckets.retain(lambda entry: self._ready.get(entry[2]) is entry)
            self._dead = 0
        self._enter_locked(key, new)

    def _enter_locked(self, key: K, priority: int) -> None:
        self._count += 1
        entry = (-priority, self._count, key)
        self._ready[key] = entry
        self._buckets.push(entry)
        if self._idle and key not in self._loans:
            self._available.notify()

    def _return_locked(self, key: K) -> None:
        """Make a ready key available whose loan has ended."""
        entry = self._passed_over.pop(key, None)
        if entry is not None:
            self._buckets.put_back(entry)
        if self._idle:
            self._available.notify()

    def _pop_locked(self) -> Entry[K] | None:
        while (entry := self._buckets.pop()) is not None:
            key = entry[2]
            if self._ready.get(key) is not entry:
                continue
            if key not in self._loans:
                return entry
            self._passed_over[key] = entry
        return None

    def _wait_locked(self, timeout: float | None) -> Entry[K] | None:
        """Wait for a ready key; `None` when there will be none."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while not self._shutting_down:
            entry = self._pop_locked()
            if entry is not None:
                return entry
            left = None if deadline is None else deadline - self._clock.monotonic()
            if left is not None and left <= 0:
                raise QueueTimeout(self.name, timeout or 0.0)
            self._idle += 1
            try:
                self._clock.wait(self._available, left)
            finally:
                self._idle -= 1
        return None

    def _drop_locked(self) -> None:
        if self._metrics is not None:
            for negative, _, _ in self._ready.values():
                self._metrics.adjust_depth(-negative, -1)
        self._ready.clear()
        self._buckets.clear()
        self._passed_over.clear()
