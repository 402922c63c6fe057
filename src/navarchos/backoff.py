"""Exponential backoff: growing delays between attempts."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import msgspec

from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.errors import ConfigError

__all__ = ["Backoff", "BackoffTimer", "KeyedBackoff"]

K = TypeVar("K", bound=Hashable)


class Backoff(msgspec.Struct, frozen=True):
    """A backoff policy: the delays before repeated attempts.

    Delay n is `base * factor**n`, at most `cap`, plus a random part of up to `jitter` times
    the delay. So with `jitter=1` the maximum is twice the cap.

    Attributes:
        base: First delay in seconds, above 0.
        factor: Growth per attempt, at least 1.
        cap: Maximum delay before jitter, in seconds.
        jitter: Random share, 0 for none.
        reset_after: A timer resets when this many seconds have passed since its last
            reset; `None` for never.
    """

    base: float
    factor: float = 2.0
    cap: float = 30.0
    jitter: float = 0.0
    reset_after: float | None = None

    def __post_init__(self) -> None:
        if self.base <= 0:
            raise ConfigError("base", self.base, "the delay must be above 0")
        if self.factor < 1:
            raise ConfigError("factor", self.factor, "the factor must be 1 or more")
        if self.jitter < 0:
            raise ConfigError("jitter", self.jitter, "the jitter must not be negative")

    def delay(self, attempt: int, *, rand: Callable[[], float] = uniform) -> float:
        """Return the seconds to wait after `attempt` failures (0 is the first).

        Args:
            attempt: The number of earlier failures.
            rand: Source of numbers in [0, 1).
        """
        # Limited, because larger exponents overflow; every policy has reached its cap.
        grown = min(self.base * self.factor ** min(attempt, 512), self.cap)
        return grown + rand() * self.jitter * grown


class BackoffTimer:
    """A `Backoff` with a counter. Owned by one thread."""

    def __init__(
        self,
        policy: Backoff,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rand: Callable[[], float] = uniform,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._rand = rand
        self._step = 0
        self._reset_at = clock.monotonic()

    def next(self) -> float:
        """Return the next delay in seconds, and count a failure.

        As in client-go's backoff manager, `reset_after` is measured from the last reset,
        not from the last failure (RF-02).
        """
        after = self._policy.reset_after
        if after is not None and self._clock.monotonic() - self._reset_at > after:
            self.reset()
        delay = self._policy.delay(self._step, rand=self._rand)
        self._step += 1
        return delay

    def reset(self) -> None:
        """Continue with the base delay."""
        self._step = 0
        self._reset_at = self._clock.monotonic()


class KeyedBackoff(Generic[K]):
    """A growing delay for each key (client-go's `util/flowcontrol/backoff.go`, WQ-32).

    The first delay is `initial`; each later delay is twice the previous one plus a random
    part of up to `jitter` times the previous delay, at most `cap`. A key without a failure
    for more than twice the cap starts with `initial` again.

    Does not promise: to forget keys. Call `collect` from time to time, or `reset`.

    Args:
        initial: First delay in seconds, above 0.
        cap: Maximum delay in seconds; the random part of a first delay may exceed it.
        jitter: Random share, 0 for none.
        clock: The clock; times are its `monotonic()`.
        rand: Source of numbers in [0, 1).

    Threads: safe from any thread.
    """

    def __init__(
        self,
        initial: float,
        cap: float,
        *,
        jitter: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
        rand: Callable[[], float] = uniform,
    ) -> None:
        if initial <= 0:
            raise ConfigError("initial", initial, "the delay must be above 0")
        if jitter < 0:
            raise ConfigError("jitter", jitter, "the jitter must not be negative")
        self._initial = initial
        self._cap = cap
        self._jitter = jitter
        self._clock = clock
        self._rand = rand
        self._delays_lock = threading.Lock()
        # Delay, and time of the last change. Guarded by _delays_lock.
        self._delays: dict[K, tuple[float, float]] = {}

    def next(self, key: K) -> float:
        """Count a failure of `key`; return its new delay in seconds."""
        with self._delays_lock:
            now = self._clock.monotonic()
            before = self._current_locked(key, now)
            if before is None:
                delay = self._initial + self._share_of(self._initial)
            else:
                delay = min(2 * before[0] + self._share_of(before[0]), self._cap)
            self._delays[key] = (delay, now)
            return delay

    def get(self, key: K) -> float:
        """Return the delay of `key` in seconds; 0 for an unknown key."""
        with self._delays_lock:
            return self._delays.get(key, (0.0, 0.0))[0]

    def reset(self, key: K) -> None:
        """Forget the failures of `key`."""
        with self._delays_lock:
            self._delays.pop(key, None)

    def is_in_backoff_since(self, key: K, event: float) -> bool:
        """Return whether less than the delay of `key` has passed since an event."""
        with self._delays_lock:
            current = self._current_locked(key, event)
            return current is not None and self._clock.monotonic() - event < current[0]

    def is_in_backoff_since_update(self, key: K, at: float) -> bool:
        """Return whether `at` is less than the delay of `key` after its last failure."""
        with self._delays_lock:
            current = self._current_locked(key, at)
            return current is not None and at - current[1] < current[0]

    def collect(self) -> None:
        """Forget keys that would start with `initial` again."""
        with self._delays_lock:
            now = self._clock.monotonic()
            self._delays = {
                key: entry for key, entry in self._delays.items() if not self._is_stale(entry, now)
            }

    def _current_locked(self, key: K, now: float) -> tuple[float, float] | None:
        entry = self._delays.get(key)
        return None if entry is None or self._is_stale(entry, now) else entry

    def _is_stale(self, entry: tuple[float, float], now: float) -> bool:
        return now - entry[1] > 2 * self._cap

    def _share_of(self, delay: float) -> float:
        return self._rand() * self._jitter * delay
