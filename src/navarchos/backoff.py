"""Growing delays between attempts."""

from collections.abc import Callable
from dataclasses import dataclass

from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.errors import ConfigError

__all__ = ["Backoff", "BackoffTimer"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """A policy: how long to wait before attempt n+1.

    The n-th delay is `base * factor**n`, at most `cap`, plus a random part of
    `jitter` times itself; so with `jitter=1` the ceiling is twice the cap.

    Attributes:
        base: First delay in seconds, above 0.
        factor: Growth per attempt, at least 1.
        cap: Largest delay before jitter, in seconds.
        jitter: Random share added, 0 for none.
        reset_after: A timer starts over when this many seconds have passed since
            it last did; `None` keeps growing.
    """

    base: float
    factor: float = 2.0
    cap: float = 30.0
    jitter: float = 0.0
    reset_after: float | None = None

    def __post_init__(self) -> None:
        if self.base <= 0:
            raise ConfigError("base", self.base, "a back-off needs a delay above 0")
        if self.factor < 1:
            raise ConfigError("factor", self.factor, "a back-off must not shrink: use 1 or more")
        if self.jitter < 0:
            raise ConfigError("jitter", self.jitter, "a random share must not be negative")

    def delay(self, attempt: int, *, rand: Callable[[], float] = uniform) -> float:
        """Return the seconds to wait after `attempt` failures (0 is the first).

        Args:
            attempt: Failures so far, not counting the present one.
            rand: Source of numbers in [0, 1).
        """
        # Beyond this exponent every policy has long met its cap; floats overflow.
        grown = min(self.base * self.factor ** min(attempt, 512), self.cap)
        return grown + rand() * self.jitter * grown


class BackoffTimer:
    """A `Backoff` with its count of steps. Owned by one thread."""

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
        """Return the next delay in seconds and grow.

        As in client-go's backoff manager the count is measured from the last
        *reset*, not from the last failure (RF-02).
        """
        after = self._policy.reset_after
        if after is not None and self._clock.monotonic() - self._reset_at > after:
            self.reset()
        delay = self._policy.delay(self._step, rand=self._rand)
        self._step += 1
        return delay

    def reset(self) -> None:
        """Start over at the base delay."""
        self._step = 0
        self._reset_at = self._clock.monotonic()
