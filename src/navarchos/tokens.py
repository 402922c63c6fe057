"""A token bucket: a burst, then a number of tokens per second."""

import threading
from typing import Final

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import ConfigError
from navarchos.stopping import StopToken

__all__ = ["TokenBucket"]

_ROUNDING: Final = 1e-9
"""Seconds; a shorter wait is a rounding error of adding fractions."""


class TokenBucket:
    """Grants `burst` tokens at once, then `qps` tokens per second, in order of arrival.

    Tokens are reserved: a caller learns at once how long to wait, and takes a token that
    does not exist yet (client-go's `util/flowcontrol/throttle.go`, WQ-17, WQ-33).

    Args:
        qps: New tokens per second, above 0.
        burst: Maximum number of saved tokens, at least 1.
        clock: Time and waiting.

    Threads: safe from any thread.
    """

    def __init__(self, qps: float, burst: int, *, clock: Clock = SYSTEM_CLOCK) -> None:
        if not qps > 0:
            raise ConfigError("qps", qps, "it must be above 0")
        if burst < 1:
            raise ConfigError("burst", burst, "it must be 1 or more")
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._tokens_lock = threading.Lock()
        self._tokens = float(burst)  # guarded by _tokens_lock; negative if tokens are reserved
        self._filled_at = clock.monotonic()  # guarded by _tokens_lock

    def reserve(self, longest: float | None = None) -> float | None:
        """Reserve the next token, which may not exist yet.

        Args:
            longest: Maximum wait in seconds; `None` for no maximum.

        Returns:
            Seconds until the token exists; `None` if the wait would be longer than
            `longest`, and then no token is reserved.
        """
        with self._tokens_lock:
            now = self._clock.monotonic()
            filled = self._tokens + (now - self._filled_at) * self._qps
            self._tokens = min(filled, float(self._burst))
            self._filled_at = now
            delay = (1.0 - self._tokens) / self._qps
            if delay <= _ROUNDING:
                delay = 0.0
            if longest is not None and delay > longest:
                return None
            self._tokens -= 1.0
            return delay

    def try_accept(self) -> bool:
        """Take a token if there is one now; return whether it was taken."""
        return self.reserve(0.0) is not None

    def accept(self, stop: StopToken, *, timeout: float | None = None) -> bool:
        """Take the next token, and wait until it exists.

        Args:
            stop: Ends the wait; must use the clock of the bucket.
            timeout: Maximum wait in seconds; `None` for no maximum.

        Returns:
            True with a token; False, at once, if the wait would exceed the timeout.

        Raises:
            Stopped: `stop` was set first. The token is returned to the bucket.
        """
        stop.raise_if_set()
        delay = self.reserve(timeout)
        if delay is None:
            return False
        if delay > 0 and stop.wait(delay):
            with self._tokens_lock:
                self._tokens += 1.0
            stop.raise_if_set()
        return True
