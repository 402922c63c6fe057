"""A client's own limit on its requests."""

import threading
from typing import Protocol

from navarchos.clock import Clock

__all__ = ["NoLimit", "RequestLimit", "TokenBucket"]


class RequestLimit(Protocol):
    """Says how long a request has to wait. Safe from any thread."""

    def reserve(self, longest: float | None) -> float | None:
        """Take the next place.

        Args:
            longest: The longest wait in seconds that makes sense; `None` for any.

        Returns:
            Seconds to wait before sending; `None` if that would be longer than
            `longest`, and then no place is taken.
        """
        ...


class NoLimit:
    """Lets every request go at once."""

    def reserve(self, longest: float | None) -> float | None:
        """Return 0."""
        return 0.0


class TokenBucket:
    """`burst` requests at once, then `qps` a second, first come first served."""

    def __init__(self, qps: float, burst: int, *, clock: Clock) -> None:
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._tokens_lock = threading.Lock()
        self._tokens = float(burst)  # guarded by _tokens_lock; below 0 are debts
        self._filled_at = clock.monotonic()  # guarded by _tokens_lock

    def reserve(self, longest: float | None) -> float | None:
        """Take the next place; see `RequestLimit`."""
        with self._tokens_lock:
            now = self._clock.monotonic()
            filled = self._tokens + (now - self._filled_at) * self._qps
            self._tokens = min(filled, float(self._burst))
            self._filled_at = now
            delay = max(0.0, (1.0 - self._tokens) / self._qps)
            if longest is not None and delay > longest:
                return None
            self._tokens -= 1.0
            return delay
