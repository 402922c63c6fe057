"""Time, as an argument.

Everything in this library that reads the time or waits does it through a
`Clock`, so that tests own time. `navarchos.testing.FakeClock` is the other
implementation.
"""

import random
import threading
import time
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock", "uniform"]


# On Linux the ordinary monotonic clock stands still while the machine is suspended; a
# lease does not. Elsewhere the one with that name goes on.
_ELAPSED: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Reads time and waits.

    Promises: `monotonic()` never goes back, counts the time for which the machine
    was suspended, and is the only source for deadlines, delays and lease
    arithmetic; `now()` is for what is written to the API or shown to people.
    """

    def monotonic(self) -> float:
        """Return seconds since an arbitrary, fixed instant."""
        ...

    def now(self) -> datetime:
        """Return the wall-clock time, aware and in UTC. It may jump."""
        ...

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on a condition that the caller holds.

        Spurious wake-ups are allowed: callers loop on their predicate.

        Args:
            condition: Held by the caller, as for `threading.Condition.wait`.
            timeout: Longest wait in seconds on this clock; `None` waits without
                limit, `0` or less only yields the lock.

        Returns:
            False if the timeout passed, True if it was woken before.
        """
        ...


class SystemClock:
    """The machine's own clock. Stateless, and safe from any thread."""

    # No method: it is called several times for every event of a watch.
    monotonic = staticmethod(partial(time.clock_gettime, _ELAPSED))
    """Return seconds since an arbitrary, fixed instant."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware and in UTC."""
        return datetime.now(UTC)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on a condition that the caller holds."""
        # Condition.wait overflows the platform's time type beyond this.
        limit = None if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)
        return condition.wait(limit)


SYSTEM_CLOCK: Clock = SystemClock()
"""The clock that is used where none is given."""


def uniform() -> float:
    """Return a random number in [0, 1): the default source of jitter."""
    return random.random()  # noqa: S311 - jitter is no secret
