"""Wait for changes in other processes by polling."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

from navarchos.stopping import StopToken

__all__ = ["LATE", "wait_for"]

T = TypeVar("T")

LATE = 100.0
"""Seconds after which a wait fails: far more than it usually takes."""

_PERIOD = 0.05


def wait_for(what: str, look: Callable[[], T | Literal[False] | None], timeout: float = LATE) -> T:
    """Return the first true result of `look`; fail the test at the timeout."""
    deadline, nobody = time.monotonic() + timeout, StopToken()
    while not (found := look()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {what} (last seen: {found!r})")
        nobody.wait(_PERIOD)
    return found
