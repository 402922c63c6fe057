"""The queue that controllers use: urgent keys first, with delays and a rate limiter."""

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.instrument import Instruments
from navarchos.workqueue.base import BaseQueue, Loan, acquire_without_convoy, unhashable
from navarchos.workqueue.delays import Delays
from navarchos.workqueue.limiters import RateLimiter, controller_limiter

__all__ = ["Entry", "PriorityBuckets", "PriorityQueue"]

K = TypeVar("K", bound=Hashable)
B = TypeVar("B")

Entry = tuple[int, int, B]
"""`(-priority, count, key)`: sorts in the order of processing. Counts never repeat."""

_SLACK: Final = 64
"""Dead entries that are not worth looking for."""


class PriorityBuckets(Generic[B]):
    """Returns entries by priority, and within a priority by count.

    A heap of entries would do the same at a cost that grows with their number. Here the
    cost grows with the number of different priorities, which are few.

    Threads: guarded by its queue's lock.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, deque[Entry[B]]] = {}  # each sorted by count
        self._order: list[int] = []  # heap of the keys of _buckets

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def push(self, entry: Entry[B]) -> None:
        """Append an entry with the highest count so far."""
        bucket = self._buckets.get(entry[0])
        if bucket is None:
            bucket = self._open(entry[0])
        bucket.append(entry)

    def pop(self) -> Entry[B] | None:
        """Remove and return the first entry, if there is one."""
        order = self._order
        while order:
            bucket = self._buckets[order[0]]
            if bucket:
                return bucket.popleft()
            if len(order) == 1:  # stays open: most queues have one bucket, often empty
                return None
            del self._buckets[heapq.heappop(order)]
        return None

    def put_back(self, entry: Entry[B]) -> None:
        """Insert an entry that was popped before, at its former place.

        Only other entries that were put back can be older, so its place is near the front.
        """
        bucket = self._buckets.get(entry[0])
        if bucket is None:
            bucket = self._open(entry[0])
        older = 0
        while older < len(bucket) and bucket[older] < entry:
            older += 1
        bucket.insert(older, entry)

    def retain(self, wanted: Callable[[Entry[B]], bool]) -> None:
        """Drop every entry that is not wanted."""
        kept = [entry for bucket in self._buckets.values() for entry in bucket if wanted(entry)]
        self.clear()
        for entry in kept:
            self.push(entry)

    def clear(self) -> None:
        """Drop every entry."""
        self._buckets.clear()
        self._order.clear()

    def _open(self, rank: int) -> deque[Entry[B]]:
        heapq.heappush(self._order, rank)
        bucket = self._buckets[rank] = deque()
        return bucket


class PriorityQueue(BaseQueue[K]):
    """Gives keys to workers by priority, each to one worker at a time (WQ-21 to WQ-28).

    Promises: a higher number comes first; within a priority, the key that became ready
    first. A key is in the queue once, with the highest priority and the earliest time of
    all its adds. It is never with two workers at once: a key that is added during its loan
    keeps its place, and is passed over until the loan is closed.

    Does not promise: that keys of a low priority are ever processed while urgent keys
    arrive, or that ready keys are processed after shutdown, which is immediate.

    Args:
        name: For metrics and error messages.
        limiter: Sets the delay of `rate_limited` adds; 5 ms doubling to 1000 s by default.
        clock: Measures delays, timeouts and metrics.
        instruments: The metrics; none without them or without a name.

    Threads: safe from any thread. Starts one thread with the first delayed key, and joins
    it when the queue is shut down.
    """

    def __init__(
        self,
        *,
        name: str = "",
        limiter: RateLimiter[K] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        super().__init__(name=name, clock=clock, instruments=instruments)
        self._limiter: RateLimiter[K] = limiter if limiter is not None else controller_limiter()
        # All below: guarded by _lock.
        self._ready: dict[K, Entry[K]] = {}  # keys that must be processed now
        # The entries of ready keys that were not passed over, and dead entries, whose
        # keys have a higher priority now.
        self._buckets: PriorityBuckets[K] = PriorityBuckets()
        # Entries that came first while their keys were on loan; some may be dead.
        self._passed_over: dict[K, Entry[K]] = {}
        self._dead = 0  # upper limit of the number of dead entries
        self._loans: set[K] = set()  # keys on loan; may be ready or delayed as well
        self._count = 0  # order within a priority
        # Keys whose time has not come. None of them is ready.
        self._delays: Delays[K] = Delays(
            self._lock, self._make_ready_locked, name=name, clock=clock
        )
        if self._metrics is not None:
            self._metrics.adjust_depth(0, 0)

    def __len__(self) -> int:
        """Return how many keys are ready, those on loan included (WQ-24)."""
        with self._lock:
            return len(self._ready)

    def add(
        self, key: K, *, after: float = 0.0, rate_limited: bool = False, priority: int = 0
    ) -> None:
        """Record that `key` must be processed. Ignored after shutdown.

        A key that is already in the queue keeps the higher priority and the earlier time.
        If its priority rises, the key goes to the end of the new priority.

        Args:
            key: Hashable.
            after: Seconds to wait; 0 or less for no delay.
            rate_limited: Ask the limiter for a delay. With `after` as well, the shorter of
                the two counts.
            priority: Higher comes first.

        Raises:
            TypeError: The key is not hashable.
        """
        delay = self._delay(key, after) if rate_limited else after
        # Not `with self._lock`: that would block on a busy lock and form a convoy.
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
        """Reset `key` in the limiter; the queue itself does not change."""
        self._limiter.forget(key)

    def num_requeues(self, key: K) -> int:
        """Return how often `key` was limited since it was last forgotten."""
        return self._limiter.num_requeues(key)

    def get(self, *, timeout: float | None = None) -> Loan[K] | None:
        """Return the most urgent ready key as a loan, and wait until there is one.

        Args:
            timeout: Longest wait in seconds on the queue's clock. `None` waits without
                limit, `0` does not wait.

        Returns:
            A context manager that yields the key and closes the loan on exit, or `None`
            after shutdown.

        Raises:
            QueueTimeout: No key became ready in time. The queue is unchanged.
        """
        if not self._try_lock(False):
            acquire_without_convoy(self._lock)
        try:
            entry = self._pop_locked() or self._wait_for_entry_locked(timeout)
            if entry is None:
                return None
            negative, _, key = entry
            del self._ready[key]
            self._loans.add(key)
            if self._metrics is not None:
                self._metrics.adjust_depth(-negative, -1)
                self._metrics.started(key)
        finally:
            self._unlock()
        return Loan(self, key, -negative)

    def done(self, key: K) -> None:
        """Close the loan of `key`; without a loan, do nothing."""
        if not self._try_lock(False):
            acquire_without_convoy(self._lock)
        try:
            if key not in self._loans:
                return
            self._loans.remove(key)
            if self._metrics is not None:
                self._metrics.finished(key)
            if key in self._ready:
                self._release_locked(key)
        finally:
            self._unlock()

    def shut_down(self) -> None:
        """End at once: waiting workers return, ready keys are dropped, adds are ignored.

        May be repeated. Open loans may be closed as always.
        """
        with self._lock:
            self._shutting_down = True
            self._drop_locked()
            self._delays.close_locked()
            self._available.notify_all()
        self._delays.join()

    def shut_down_with_drain(self, timeout: float | None = None) -> bool:
        """Do the same as `shut_down`: this queue does not drain (WQ-26).

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

    def _release_locked(self, key: K) -> None:
        """Make a ready key available whose loan was closed."""
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

    def _wait_for_entry_locked(self, timeout: float | None) -> Entry[K] | None:
        """Wait for a ready key; return `None` if there will be none."""
        deadline = self._deadline(timeout)
        while not self._shutting_down:
            entry = self._pop_locked()
            if entry is not None:
                return entry
            self._wait_locked(deadline, timeout)
        return None

    def _drop_locked(self) -> None:
        if self._metrics is not None:
            for negative, _, _ in self._ready.values():
                self._metrics.adjust_depth(-negative, -1)
        self._ready.clear()
        self._buckets.clear()
        self._passed_over.clear()
