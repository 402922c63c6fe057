"""Groups of runnables that start and end together."""

import threading
from collections.abc import Callable
from typing import Protocol

from navarchos.clock import Clock
from navarchos.errors import AlreadyStopped, NavarchosError, Stopped
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["GracePeriodExceeded", "Runnable", "RunnableGroup"]


class GracePeriodExceeded(NavarchosError):
    """Runnables did not end in time.

    Attributes:
        seconds: The grace period.
        running: Names of the threads that still run.
    """

    def __init__(self, seconds: float, running: tuple[str, ...]) -> None:
        super().__init__(seconds, running)
        self.seconds = seconds
        self.running = running

    def __str__(self) -> str:
        running = ", ".join(self.running)
        return f"still running after the grace period of {self.seconds:g} s: {running}"


class Runnable(Protocol):
    """Anything that runs until it is stopped."""

    def run(self, stop: StopToken) -> None:
        """Run. Returning early is fine (MG-07); raising stops the manager."""
        ...


class RunnableGroup:
    """Runnables with a common stop token, which is set only when the group must end.

    Promises: each runnable is started exactly once, whether it was added before, during or
    after the start (MG-13); a group that was stopped never starts (MG-11).

    Threads: every method is safe from any thread.

    Args:
        name: Prefix of the thread names.
        fail: Called with the exception of a runnable.
        clock: Time and waiting.
    """

    def __init__(self, name: str, fail: Callable[[BaseException], None], clock: Clock) -> None:
        self._fail = fail
        self._stop = StopToken(clock=clock)
        self._threads = ThreadGroup(name, stop=self._stop, clock=clock)
        self._name = name
        self._waiting_lock = threading.Lock()
        self._waiting: list[tuple[str, Runnable]] = []  # guarded by _waiting_lock
        self._open = False  # guarded by _waiting_lock; started and not stopped
        self._closed = False  # guarded by _waiting_lock

    def add(self, name: str, runnable: Runnable) -> None:
        """Add a runnable; it starts with the group, or at once if the group runs.

        Raises:
            AlreadyStopped: The group was stopped.
        """
        with self._waiting_lock:
            if self._closed:
                raise AlreadyStopped(f"group {self._name}")
            if not self._open:
                self._waiting.append((name, runnable))
                return
            self._run_locked(name, runnable)

    def start(self) -> None:
        """Start all added runnables. Does nothing after a stop."""
        with self._waiting_lock:
            if self._closed or self._open:
                return
            self._open = True
            waiting, self._waiting = self._waiting, []
            for name, runnable in waiting:
                self._run_locked(name, runnable)

    def stop(self, reason: str) -> None:
        """Ask every runnable to end, and do not start any more."""
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
        # Under the lock, so that `stop` finds every thread either started or not to be started.
        def run() -> None:
            try:
                runnable.run(self._stop)
            except Stopped:
                return
            except BaseException as error:  # noqa: BLE001 - the manager raises it
                self._fail(error)

        self._threads.start(name, run)
