"""Writes that nobody waits for may be late, so that several changes are one request."""

import threading
from typing import Final, TypeVar

import msgspec

from navarchos.clock import Clock

__all__ = ["Leeway", "differs_only_in"]

S = TypeVar("S", bound=msgspec.Struct)

_MOMENT: Final = 0.001


class Leeway:
    """Remembers since when something is to be written that may wait.

    A restart forgets it, and then it may be late by as much once more; nothing else is
    lost, for what is written is made from the objects each time.

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

    def take(self, name: str, times: float = 1.0) -> float:
        """Return the seconds until `name` must be written; its time begins with the first call.

        Args:
            name: What is to be written.
            times: How many times as late as usual this one may be.
        """
        now = self._clock.monotonic()
        with self._due_lock:
            return max(0.0, self._due.setdefault(name, now + times * self._seconds) - now)

    def end(self, name: str) -> None:
        """Say that nothing is to be written: it has been, or there is nothing any more."""
        with self._due_lock:
            self._due.pop(name, None)

    def left(self, name: str) -> float | None:
        """Return the seconds until `name` must be written, above 0; `None` if nothing is."""
        now = self._clock.monotonic()
        with self._due_lock:
            due = self._due.get(name)
        return None if due is None else max(_MOMENT, due - now)


def differs_only_in(before: S, after: S, *fields: str) -> bool:
    """Tell whether two structs of a type differ, and only in fields among these."""
    alike = {field: getattr(before, field) for field in fields}
    return before != after and before == msgspec.structs.replace(after, **alike)
