"""Taking a busy lock without a convoy.

CPython threads take turns of some milliseconds. Whoever blocks on a lock that is
free most of the time is given it by the operating system while another thread
runs; that one then blocks at its next use of the lock, and from there on every
operation costs a switch of threads: a fifth of the throughput with four workers.
So a thread that finds the lock taken steps aside and asks again at its next
turn. Without the interpreter's global lock this would only waste time.
"""

import sys
import threading
from typing import Final

__all__ = ["acquire_without_convoy"]

_YIELD_SECONDS: Final = 1e-6
_TURNS: Final = 100
"""Turns after which a thread queues up in the operating system after all."""

_TURNS_EXIST: Final = getattr(sys, "_is_gil_enabled", lambda: True)()

_never_free: Final = threading.Lock()
_never_free.acquire()


def acquire_without_convoy(lock: threading.Lock) -> None:
    """Acquire a lock that was found taken a moment ago."""
    if _TURNS_EXIST:
        for _ in range(_TURNS):
            # Gives the turn away; returns with the next one.
            _never_free.acquire(timeout=_YIELD_SECONDS)
            if lock.acquire(blocking=False):
                return
    lock.acquire()
