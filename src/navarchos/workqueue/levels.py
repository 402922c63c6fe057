"""The order of a priority queue: a line of keys for each priority."""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Entry", "PriorityBuckets"]

K = TypeVar("K")

Entry = tuple[int, int, K]
"""`(-priority, count, key)`: sorts as keys are lent. Counts never repeat."""


class PriorityBuckets(Generic[K]):
    """Gives out entries by priority, and within one by count.

    A heap of entries would do the same, at a cost that grows with their number;
    here it depends on the number of different priorities, which are few.

    Threads: guarded by its queue's lock.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, deque[Entry[K]]] = {}  # each sorted by count
        self._order: list[int] = []  # heap of the keys of _levels

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def push(self, entry: Entry[K]) -> None:
        """Take in an entry with the highest count so far."""
        level = self._buckets.get(entry[0])
        if level is None:
            level = self._open(entry[0])
        level.append(entry)

    def pop(self) -> Entry[K] | None:
        """Give out the first entry, if there is one."""
        order = self._order
        while order:
            level = self._buckets[order[0]]
            if level:
                return level.popleft()
            if len(order) == 1:  # stays open: most queues have one level, often empty
                return None
            del self._buckets[heapq.heappop(order)]
        return None

    def put_back(self, entry: Entry[K]) -> None:
        """Take in an entry that was given out before, at its former place.

        Only others that were put back can be older, so the place is near the front.
        """
        level = self._buckets.get(entry[0])
        if level is None:
            level = self._open(entry[0])
        older = 0
        while older < len(level) and level[older] < entry:
            older += 1
        level.insert(older, entry)

    def retain(self, wanted: Callable[[Entry[K]], bool]) -> None:
        """Drop every entry that is not wanted."""
        kept = [entry for level in self._buckets.values() for entry in level if wanted(entry)]
        self.clear()
        for entry in kept:
            self.push(entry)

    def clear(self) -> None:
        """Drop every entry."""
        self._buckets.clear()
        self._order.clear()

    def _open(self, rank: int) -> deque[Entry[K]]:
        heapq.heappush(self._order, rank)
        level = self._buckets[rank] = deque()
        return level
