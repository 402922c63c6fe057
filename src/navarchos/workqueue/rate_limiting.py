"""A queue that delays keys by how often they have failed."""

from typing import TypeVar

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.instrument import Instruments
from navarchos.workqueue.delaying import DelayingQueue
from navarchos.workqueue.limiters import RateLimiter, default_limiter
from navarchos.workqueue.order import Order

__all__ = ["RateLimitingQueue"]

K = TypeVar("K")


class RateLimitingQueue(DelayingQueue[K]):
    """A `DelayingQueue` with a limiter that says how long a key waits (WQ-20).

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
        """Begin anew with `key` in the limiter; the queue itself does not change."""
        self._limiter.forget(key)

    def num_requeues(self, key: K) -> int:
        """Return how often `key` was limited since it was last forgotten."""
        return self._limiter.num_requeues(key)
