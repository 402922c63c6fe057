"""Clocks: time as an argument.

All code of this library that reads the time or waits uses a `Clock`, so that tests control
time. The other implementation is `navarchos.testing.FakeClock`.
"""

import random
import threading
import time
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock", "uniform"]


# On Linux CLOCK_MONOTONIC stops while the machine is suspended, and a lease still expires.
# Therefore CLOCK_BOOTTIME; on other systems CLOCK_MONOTONIC continues.
_ELAPSED: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Reads the time and waits.

    Promises: `monotonic()` never decreases, includes the time while the machine was
    suspended, and is the only source for deadlines, delays and leases; `now()` is for times
    that are written to the API or shown to users.
    """

    def monotonic(self) -> float:
        """Return seconds since an arbitrary, fixed instant."""
        ...

    def now(self) -> datetime:
        """Return the wall-clock time, aware and in UTC. It may be set forwards or back."""
        ...

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on a condition that the caller holds.

        It may return early; the caller checks its predicate in a loop.

        Args:
            condition: Held by the caller, as for `threading.Condition.wait`.
            timeout: Maximum wait in seconds on this clock; `None` waits without limit,
                `0` or less only releases and acquires the lock.

        Returns:
            False if the timeout passed, otherwise True.
        """
        ...


class SystemClock:
    """The clock of the machine. Stateless; safe from any thread."""

    # Not a method, which would be slower: it is called several times for each watch event.
    monotonic = staticmethod(partial(time.clock_gettime, _ELAPSED))
    """Return seconds since an arbitrary, fixed instant."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware and in UTC."""
        return datetime.now(UTC)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on a condition that the caller holds."""
        # A larger timeout overflows the platform's time type in Condition.wait.
        limit = None if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)
        return condition.wait(limit)


SYSTEM_CLOCK: Clock = SystemClock()
"""The default clock."""


def uniform() -> float:
    """Return a random number in [0, 1): the default source of jitter."""
    return random.random()  # noqa: S311 - jitter is not a secret
