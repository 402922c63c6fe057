"""Keys that wait for their time, and the one thread that watches it."""

import heapq
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from navarchos.clock import Clock
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["Delays"]

K = TypeVar("K")

_SLACK: Final = 64
"""Dead entries that are not worth a rebuild of the heap."""


class Delays(Generic[K]):
    """Hands each key over at or after its time; the earliest time of a key counts.

    Part of a queue: it shares the queue's lock, and methods that end in
    `_locked` need it held. The thread starts with the first key and ends with
    `close_locked`; then every key that still waits is dropped (WQ-12).

    Promises: one thread however many keys wait; O(log n) for each; entries that
    were overtaken by an earlier time are never more than the live ones and some.

    Args:
        lock: The queue's lock.
        hand_over: Called with a key whose time has come, under the lock.
        name: For the thread's name.
        clock: Time is its `monotonic()`.
    """

    def __init__(
        self, lock: threading.Lock, hand_over: Callable[[K], None], *, name: str, clock: Clock
    ) -> None:
        self._hand_over = hand_over
        self._name = name
        self._clock = clock
        self._threads = ThreadGroup("delays", stop=StopToken(clock=clock), clock=clock)
        self._earlier = threading.Condition(lock)  # the earliest time moved, or closed
        # All below: guarded by the queue's lock.
        self._due_at: dict[K, float] = {}  # the live entries
        self._heap: list[tuple[float, int, K]] = []  # live ones and overtaken ones
        self._count = 0  # makes heap entries unique, and equal times first in, first out
        self._started = False
        self._closed = False

    def put_locked(self, key: K, delay: float) -> None:
        """Let `key` wait `delay` seconds, or until it was due before, if earlier.

        Raises:
            ThreadCrashed: The thread ended with a fault, so nothing would ever
                become due.
        """
        self._threads.raise_failure()
        due_at = self._clock.monotonic() + delay
        before = self._due_at.get(key)
        if before is not None and before <= due_at:
            return
        self._due_at[key] = due_at
        self._count += 1
        if len(self._heap) > 2 * len(self._due_at) + _SLACK:
            self._forget_overtaken_locked()
        heapq.heappush(self._heap, (due_at, self._count, key))
        if not self._started:
            self._started = True
            self._threads.start(self._name, self._watch)
        elif self._heap[0][1] == self._count:
            self._earlier.notify_all()

    def discard_locked(self, key: K) -> None:
        """Let `key` wait no longer, without handing it over."""
        self._due_at.pop(key, None)

    def close_locked(self) -> None:
        """Drop everything and let the thread end."""
        self._closed = True
        self._due_at.clear()
        self._heap.clear()
        self._earlier.notify_all()

    def join(self) -> None:
        """Wait until the thread has ended, after `close_locked`. Not under the lock.

        The thread runs nothing but bookkeeping, so this is prompt.
        """
        self._threads.join()

    def _watch(self) -> None:
        with self._earlier:
            while not self._closed:
                self._clock.wait(self._earlier, self._release_locked())

    def _release_locked(self) -> float | None:
        """Hand over what is due; return the seconds until the next key is."""
        while self._heap:
            due_at, _, key = self._heap[0]
            if self._due_at.get(key) != due_at:  # overtaken or discarded
                heapq.heappop(self._heap)
                continue
            left = due_at - self._clock.monotonic()
            if left > 0:
                return left
            heapq.heappop(self._heap)
            del self._due_at[key]
            self._hand_over(key)
        return None

    def _forget_overtaken_locked(self) -> None:
        self._heap = [entry for entry in self._heap if self._due_at.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)
