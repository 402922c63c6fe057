"""A token bucket: so many at once, then so many a second."""

import threading
from typing import Final

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import ConfigError
from navarchos.stopping import StopToken

__all__ = ["TokenBucket"]

_ROUNDING: Final = 1e-9
"""Seconds that are no wait, but what is left over from adding fractions."""


class TokenBucket:
    """Hands out `burst` tokens at once, then `qps` a second, first come first served.

    Tokens are reserved: who has to wait knows at once for how long, and takes a token
    that does not exist yet (client-go `util/flowcontrol/throttle.go`, WQ-17, WQ-33).

    Args:
        qps: Tokens made per second, above 0.
        burst: Tokens that can be saved up, at least 1.
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
        self._tokens = float(burst)  # guarded by _tokens_lock; below 0 are debts
        self._filled_at = clock.monotonic()  # guarded by _tokens_lock

    def reserve(self, longest: float | None = None) -> float | None:
        """Take the next token, though it may not exist yet.

        Args:
            longest: The longest wait in seconds that makes sense; `None` for any.

        Returns:
            Seconds until the token exists; `None` if that would be longer than
            `longest`, and then no token is taken.
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
        """Take a token if there is one now; return whether there was."""
        return self.reserve(0.0) is not None

    def accept(self, stop: StopToken, *, timeout: float | None = None) -> bool:
        """Take the next token, and wait until it exists.

        Args:
            stop: Ends the wait; on the bucket's clock.
            timeout: Longest wait in seconds; `None` for any.

        Returns:
            False, at once and without a token, if none will exist in time.

        Raises:
            Stopped: `stop` was set first. The token is given back.
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
