"""Runnables that start together and end together."""

import threading
from collections.abc import Callable
from typing import Protocol

from navarchos.clock import Clock
from navarchos.errors import AlreadyStopped, Stopped
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["Runnable", "RunnableGroup"]


class Runnable(Protocol):
    """Anything that runs until it is told to stop."""

    def run(self, stop: StopToken) -> None:
        """Run. Returning early is fine (MG-07); raising stops the manager."""
        ...


class RunnableGroup:
    """Runnables with one stop signal of their own, set only when their turn comes.

    Promises: each runnable is started exactly once, whether it was added before,
    during or after the start (MG-13); a group that was closed never starts (MG-11).

    Threads: every method is safe from any thread.

    Args:
        name: Of the threads.
        fail: Told what a runnable raised.
        clock: Time and waiting.
    """

    def __init__(self, name: str, fail: Callable[[BaseException], None], clock: Clock) -> None:
        self._fail = fail
        self._stop = StopToken(clock=clock)
        self._threads = ThreadGroup(name, stop=self._stop, clock=clock)
        self._name = name
        self._waiting_lock = threading.Lock()
        self._waiting: list[tuple[str, Runnable]] = []  # guarded by _waiting_lock
        self._open = False  # guarded by _waiting_lock; started and not closed
        self._closed = False  # guarded by _waiting_lock

    def add(self, name: str, runnable: Runnable) -> None:
        """Take a runnable in; it starts with the group, or now.

        Raises:
            AlreadyStopped: The group has been closed.
        """
        with self._waiting_lock:
            if self._closed:
                raise AlreadyStopped(f"group {self._name}")
            if not self._open:
                self._waiting.append((name, runnable))
                return
            self._run_locked(name, runnable)

    def start(self) -> None:
        """Start what was added. Does nothing once closed."""
        with self._waiting_lock:
            if self._closed or self._open:
                return
            self._open = True
            waiting, self._waiting = self._waiting, []
            for name, runnable in waiting:
                self._run_locked(name, runnable)

    def stop(self, reason: str) -> None:
        """Ask every runnable to end, and start no more."""
        with self._waiting_lock:
            self._closed = True
            self._waiting.clear()
        self._stop.stop(reason)

    def join(self, timeout: float | None) -> bool:
        """Wait until every runnable has ended; see `ThreadGroup.join`."""
        return self._threads.join(timeout)

    def running(self) -> tuple[str, ...]:
        """Return the names of the threads that still run."""
        return self._threads.running()

    def _run_locked(self, name: str, runnable: Runnable) -> None:
        # Locked, so that whoever asks the group to stop finds each thread started.
        def run() -> None:
            try:
                runnable.run(self._stop)
            except Stopped:
                return
            except BaseException as error:  # noqa: BLE001 - the manager raises it
                self._fail(error)

        self._threads.start(name, run)
