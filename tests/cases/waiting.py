"""Waiting for what happens in other processes, which takes looking again and again."""

import time
from collections.abc import Callable
from typing import TypeVar

from navarchos.stopping import StopToken

__all__ = ["LATE", "wait_for"]

T = TypeVar("T")

LATE = 100.0
"""Seconds after which what was waited for is given up: far more than it takes."""

_PERIOD = 0.05


def wait_for(what: str, look: Callable[[], T], timeout: float = LATE) -> T:
    """Return what `look` returns once that is true; fail the test when it never is."""
    deadline, nobody = time.monotonic() + timeout, StopToken()
    while not (found := look()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {what} (last seen: {found!r})")
        nobody.wait(_PERIOD)
    return found
