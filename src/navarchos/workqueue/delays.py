"""Delayed keys, and the one thread that waits for their times."""

import heapq
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from navarchos.clock import Clock
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["Delays"]

K = TypeVar("K")

_Entry = tuple[float, int, K, int]
"""`(due at, count, key, priority)`. Counts make heap entries unique, and keep keys of equal
times in the order of their adds. A tuple, because a queue may hold a million of them."""

_SLACK: Final = 64
"""Dead entries that are not worth a rebuild of the heap."""


class Delays(Generic[K]):
    """Adds each key to the queue at or after its time; the earliest time of a key counts.

    Part of a queue: it shares the queue's lock, and methods that end in `_locked` need it
    held. The thread starts with the first key and ends with `close_locked`, which drops
    all delayed keys (WQ-12).

    Promises: one thread for any number of keys; O(log n) for each key. Dead entries, which
    were overtaken by an earlier time, are at most a few more than twice the live ones.

    Args:
        lock: The queue's lock.
        make_ready: Called with a key whose time has come, and its priority, under the lock.
        name: For the thread's name.
        clock: Time is its `monotonic()`.
    """

    def __init__(
        self, lock: threading.Lock, make_ready: Callable[[K, int], None], *, name: str, clock: Clock
    ) -> None:
        self._make_ready = make_ready
        self._name = name
        self._clock = clock
        self._threads = ThreadGroup("delays", stop=StopToken(clock=clock), clock=clock)
        self._earlier = threading.Condition(lock)  # the earliest time changed, or closed
        # All below: guarded by the queue's lock.
        self._live: dict[K, _Entry[K]] = {}
        # The entries of _live, some with a lower priority, and dead ones: overtaken or taken.
        self._heap: list[_Entry[K]] = []
        self._count = 0
        self._started = False
        self._closed = False

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def put_locked(self, key: K, delay: float, priority: int = 0) -> None:
        """Delay `key` by `delay` seconds, or keep its earlier time.

        The key keeps the highest priority of all calls.

        Raises:
            ThreadCrashed: The thread has crashed, so no key would ever become ready.
        """
        self._threads.raise_failure()
        due_at = self._clock.monotonic() + delay
        before = self._live.get(key)
        if before is not None:
            priority = max(priority, before[3])
            if before[0] <= due_at:
                self._live[key] = (before[0], before[1], key, priority)
                return
        self._count += 1
        entry = self._live[key] = (due_at, self._count, key, priority)
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._drop_dead_locked()
        heapq.heappush(self._heap, entry)
        if not self._started:
            self._started = True
            self._threads.start(self._name, self._watch)
        elif self._heap[0][1] == self._count:
            self._earlier.notify_all()

    def take_locked(self, key: K) -> int:
        """Remove a delayed key and return its priority."""
        return self._live.pop(key)[3]

    def close_locked(self) -> None:
        """Drop all keys and end the thread."""
        self._closed = True
        self._live.clear()
        self._heap.clear()
        self._earlier.notify_all()

    def join(self) -> None:
        """Wait until the thread has ended, after `close_locked`. Not under the lock.

        The thread never blocks for long, so this returns soon.
        """
        self._threads.join()

    def _watch(self) -> None:
        with self._earlier:
            while not self._closed:
                self._clock.wait(self._earlier, self._release_locked())

    def _release_locked(self) -> float | None:
        """Make due keys ready; return the seconds until the next key is due."""
        while self._heap:
            entry = self._heap[0]
            if not self._is_live_locked(entry):
                heapq.heappop(self._heap)
                continue
            left = entry[0] - self._clock.monotonic()
            if left > 0:
                return left
            heapq.heappop(self._heap)
            key = entry[2]
            self._make_ready(key, self.take_locked(key))
        return None

    def _is_live_locked(self, entry: _Entry[K]) -> bool:
        live = self._live.get(entry[2])
        return live is not None and live[1] == entry[1]

    def _drop_dead_locked(self) -> None:
        self._heap = [entry for entry in self._heap if self._is_live_locked(entry)]
        heapq.heapify(self._heap)
