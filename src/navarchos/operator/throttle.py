"""Limits on frequent work: status writes that may be late, and scans over many objects."""

import threading
from typing import Final

from navarchos.clock import Clock

__all__ = ["REQUEUE_SOON", "DeferredWrites", "ScanThrottle", "delay_factor"]

REQUEUE_SOON: Final = 0.001
"""Seconds. A requeue after 0 seconds would mean that the object is not reconciled again."""

_SMALL: Final = 200
"""Sets of at most this many objects are never delayed."""

_PER_OBJECT: Final = 0.0006
"""Seconds between two scans for each object beyond the first `_SMALL`.

Scanning one object takes some microseconds of CPU time.
"""


def delay_factor(objects: int) -> float:
    """Return the delay multiplier for a set of this size, at least 1."""
    return max(1.0, objects / _SMALL)


class DeferredWrites:
    """Remembers until when a pending write may be delayed, so that several changes are one write.

    Promises: the deadline counts from the first change, so that a steady stream of changes
    does not delay the write for ever.

    Does not promise: to survive a restart. The write may then be late by the same time again;
    nothing else is lost, because the content is computed from the objects each time.

    Args:
        seconds: How late a write may be.
        clock: Time.

    Threads: safe from any thread.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._due_lock = threading.Lock()
        self._due: dict[str, float] = {}  # guarded by _due_lock; monotonic

    def due_in(self, name: str, times: float = 1.0) -> float:
        """Return the seconds until `name` must be written; the first call sets the deadline.

        Args:
            name: The object to write.
            times: A multiplier of the usual delay.
        """
        now = self._clock.monotonic()
        with self._due_lock:
            return max(0.0, self._due.setdefault(name, now + times * self._seconds) - now)

    def remaining(self, name: str) -> float | None:
        """Return the seconds until `name` must be written, above 0; `None` if no write is due."""
        now = self._clock.monotonic()
        with self._due_lock:
            due = self._due.get(name)
        return None if due is None else max(REQUEUE_SOON, due - now)

    def clear(self, name: str) -> None:
        """Forget the deadline of `name`, after its write or because no write is needed."""
        with self._due_lock:
            self._due.pop(name, None)


class ScanThrottle:
    """Keeps scans over many objects apart, so that a burst of changes causes one scan.

    A scan over few objects costs little and is never delayed.

    Threads: safe from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scans_lock = threading.Lock()
        # guarded by _scans_lock; by name: the `urgent` value of the last scan, and the monotonic
        # time of the next one
        self._scans: dict[str, tuple[object, float]] = {}

    def wait(self, name: str, urgent: object = None) -> float | None:
        """Return the seconds until the next scan may start; `None` if it may start now.

        Args:
            name: The set of objects.
            urgent: A value whose changes must not be delayed: when it differs from the value at
                the last scan, the next scan may start now.
        """
        now = self._clock.monotonic()
        with self._scans_lock:
            before, due = self._scans.get(name, (urgent, now))
        return due - now if due > now and before == urgent else None

    def record(self, name: str, objects: int, urgent: object = None) -> None:
        """Record that a scan over this many objects has ended."""
        pause = _PER_OBJECT * max(0, objects - _SMALL)
        with self._scans_lock:
            self._scans[name] = urgent, self._clock.monotonic() + pause

    def forget(self, name: str) -> None:
        """Forget a set of objects that no longer exists."""
        with self._scans_lock:
            self._scans.pop(name, None)
