"""Containers that decide which ready key is next."""

from collections import deque
from typing import Protocol, TypeVar

__all__ = ["Fifo", "Order"]

K = TypeVar("K")


class Order(Protocol[K]):
    """The ready keys of a queue, in the order in which they are lent (WQ-08).

    A key is in it at most once. The queue calls it under its lock: be quick, and
    keep no reference to a key that was popped.
    """

    def push(self, key: K, /) -> None:
        """Take in a key that became ready."""
        ...

    def pop(self) -> K:
        """Give out the next key; called only while there is one."""
        ...

    def touch(self, key: K, /) -> None:
        """Learn that a key that is in here was added again."""
        ...

    def __len__(self) -> int: ...


class Fifo(deque[K]):
    """Oldest first. The default."""

    # Aliases of the C methods: the queue's hot path calls them directly.
    push = deque.append
    pop = deque.popleft

    def touch(self, key: K, /) -> None:
        """Keep the place."""
