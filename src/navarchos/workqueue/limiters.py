"""Rate limiters set how long a key waits: small policies that compose (WQ-15 to WQ-19).

Every limiter is safe from any thread.
"""

import threading
from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeVar

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import ConfigError
from navarchos.tokens import TokenBucket
from navarchos.workqueue.base import unhashable

__all__ = [
    "ItemExponential",
    "ItemFastSlow",
    "MaxOf",
    "RateLimiter",
    "TokenBucketLimiter",
    "WithMaxWait",
    "controller_limiter",
    "default_limiter",
]

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", contravariant=True)

_DOUBLINGS: Final = 1000  # a float overflows soon after; every cap is met long before


class RateLimiter(Protocol[K_contra]):
    """Sets how long a key waits, and counts how often it was limited."""

    def when(self, key: K_contra) -> float:
        """Return the seconds that `key` must wait from now, and count the call."""
        ...

    def forget(self, key: K_contra) -> None:
        """Reset `key`, after success or when it will not be retried."""
        ...

    def num_requeues(self, key: K_contra) -> int:
        """Return how often `when` was called since the key was last forgotten."""
        ...


class _FailureCounts(Generic[K]):
    """Counts failures by key, for the limiters that limit each key separately."""

    def __init__(self) -> None:
        self._failures_lock = threading.Lock()
        self._failures: dict[K, int] = {}  # guarded by _failures_lock

    def forget(self, key: K) -> None:
        """Reset `key`."""
        with self._failures_lock:
            self._failures.pop(key, None)

    def num_requeues(self, key: K) -> int:
        """Return the failures counted for `key`."""
        with self._failures_lock:
            return self._failures.get(key, 0)

    def _count(self, key: K) -> int:
        """Count a failure; return the number of earlier failures."""
        try:
            with self._failures_lock:
                before = self._failures.get(key, 0)
                self._failures[key] = before + 1
                return before
        except TypeError:
            raise unhashable(key) from None


class ItemExponential(_FailureCounts[K]):
    """Doubles the delay of a key with each failure: `base * 2**failures`, at most `cap`.

    Args:
        base: First delay in seconds, above 0.
        cap: Longest delay in seconds.
    """

    def __init__(self, base: float = 0.005, cap: float = 1000.0) -> None:
        if base <= 0:
            raise ConfigError("base", base, "the delay must be above 0")
        super().__init__()
        self._base = base
        self._cap = cap

    def when(self, key: K) -> float:
        """Return the seconds that `key` must wait from now."""
        return float(min(self._base * 2.0 ** min(self._count(key), _DOUBLINGS), self._cap))


class ItemFastSlow(_FailureCounts[K]):
    """A short delay for the first failures of a key, a long one from then on.

    Args:
        fast: Seconds for the first `fast_attempts` failures.
        slow: Seconds afterwards.
        fast_attempts: How many failures count as first.
    """

    def __init__(self, fast: float, slow: float, *, fast_attempts: int) -> None:
        super().__init__()
        self._fast = fast
        self._slow = slow
        self._fast_attempts = fast_attempts

    def when(self, key: K) -> float:
        """Return the seconds that `key` must wait from now."""
        return self._fast if self._count(key) < self._fast_attempts else self._slow


class TokenBucketLimiter(Generic[K]):
    """Limits all keys together, by reservation (WQ-17).

    Each call takes a token. If the bucket is empty, it reserves a future token, and the delay is
    the time until that token exists. Single keys are not recorded.

    Args:
        qps: Tokens made per second, above 0.
        burst: Tokens that can accumulate, at least 1.
    """

    def __init__(self, qps: float = 10.0, burst: int = 100, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._bucket = TokenBucket(qps, burst, clock=clock)

    def when(self, key: K) -> float:
        """Return the seconds until the token that this call reserved exists."""
        delay = self._bucket.reserve()
        assert delay is not None, "any wait was allowed"
        return delay

    def forget(self, key: K) -> None:
        """Do nothing: the bucket knows no keys."""

    def num_requeues(self, key: K) -> int:
        """Return 0: the bucket knows no keys."""
        return 0


class MaxOf(Generic[K]):
    """The longest delay of its members, which all count every call."""

    def __init__(self, *limiters: RateLimiter[K]) -> None:
        if not limiters:
            raise ConfigError("limiters", (), "at least one limiter is required")
        self._limiters = limiters

    def when(self, key: K) -> float:
        """Return the longest delay of the members."""
        return max([limiter.when(key) for limiter in self._limiters])

    def forget(self, key: K) -> None:
        """Reset `key` in every member."""
        for limiter in self._limiters:
            limiter.forget(key)

    def num_requeues(self, key: K) -> int:
        """Return the largest count of the members."""
        return max(limiter.num_requeues(key) for limiter in self._limiters)


class WithMaxWait(Generic[K]):
    """Another limiter, with delays of at most `max_wait` seconds."""

    def __init__(self, limiter: RateLimiter[K], max_wait: float) -> None:
        self._limiter = limiter
        self._max_wait = max_wait

    def when(self, key: K) -> float:
        """Return the seconds that `key` must wait from now."""
        return min(self._limiter.when(key), self._max_wait)

    def forget(self, key: K) -> None:
        """Reset `key`."""
        self._limiter.forget(key)

    def num_requeues(self, key: K) -> int:
        """Return the limiter's count."""
        return self._limiter.num_requeues(key)


def default_limiter(clock: Clock = SYSTEM_CLOCK) -> RateLimiter[Hashable]:
    """Return the limiter that client-go gives a plain queue.

    5 ms doubling to 1000 s for each key, and 10 keys a second with a burst of 100 for all
    keys together; the longer delay counts.
    """
    return MaxOf[Hashable](ItemExponential[Hashable](), TokenBucketLimiter[Hashable](clock=clock))


def controller_limiter() -> RateLimiter[Hashable]:
    """Return the limiter that controller-runtime gives its priority queue.

    5 ms doubling to 1000 s for each key, and no limit for all keys together.
    """
    return ItemExponential[Hashable]()
