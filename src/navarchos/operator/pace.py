"""Passes over many objects are kept apart, so that a burst of changes is one pass."""

import threading
from typing import Final

from navarchos.clock import Clock

__all__ = ["Pace", "times_few"]

_FEW: Final = 200
_EACH: Final = 0.0006
"""Seconds between passes for each object beyond the first few; a pass takes some microseconds
of a processor for each."""


def times_few(objects: int) -> float:
    """Return how many times as late as for a few something may be that is done for so many."""
    return max(1.0, objects / _FEW)


class Pace:
    """Remembers when something was last looked through, and how much there was.

    A pass over few objects is never put off: it costs next to nothing.

    Threads: safe from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._passes_lock = threading.Lock()
        # guarded by _passes_lock; by name: what was urgent at the last pass, and the monotonic
        # instant of the next
        self._passes: dict[str, tuple[object, float]] = {}

    def left(self, name: str, urgent: object = None) -> float | None:
        """Return the seconds before the next pass; `None` if it is due.

        Args:
            name: What is looked through.
            urgent: What must not wait: when this is another value than at the last pass,
                the next is due at once.
        """
        now = self._clock.monotonic()
        with self._passes_lock:
            before, due = self._passes.get(name, (urgent, now))
        return due - now if due > now and before == urgent else None

    def passed(self, name: str, objects: int, urgent: object = None) -> None:
        """Note a pass over so many objects."""
        pause = _EACH * max(0, objects - _FEW)
        with self._passes_lock:
            self._passes[name] = urgent, self._clock.monotonic() + pause

    def forget(self, name: str) -> None:
        """Forget what is gone."""
        with self._passes_lock:
            self._passes.pop(name, None)
