"""The task that only a leader may run, and a sleep that can be interrupted."""

import threading
from collections.abc import Callable

from navarchos.clock import Clock
from navarchos.errors import Stopped
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["InterruptibleSleep", "LeaderTask"]


class LeaderTask:
    """Runs the leader's work on a thread and knows whether to keep renewing for it.

    Leadership continues until the work has failed, or, after a stop, until the work has ended
    or its grace period is over.

    Threads: every method is safe from any thread.

    Args:
        work: Runs on the thread; gets a token that is set when the work must end.
        stop: Starts the grace period.
        grace: Seconds that the work may take to end after a stop; `None` for no limit.
        clock: Time and waiting.
    """

    def __init__(
        self, work: Callable[[StopToken], None], stop: StopToken, grace: float | None, clock: Clock
    ) -> None:
        self._work = work
        self._grace = grace
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._running = False  # guarded by _changed
        self._failure: BaseException | None = None  # guarded by _changed
        self._stopped_at: float | None = None  # guarded by _changed
        self._token = stop.child()
        self._withdraw = stop.on_stop(self._on_stop)

    @property
    def failure(self) -> BaseException | None:
        """The exception that ended the work, or `None`."""
        with self._changed:
            return self._failure

    def start(self, threads: ThreadGroup) -> None:
        """Start the work on a thread of this group."""
        with self._changed:
            self._running = True
        threads.start("work", self._run)

    def cancel(self, reason: str) -> None:
        """Ask the work to end at once."""
        self._token.stop(reason)
        self._withdraw()

    def wait(self, timeout: float) -> bool:
        """Wait, and return whether leadership should continue after that.

        Args:
            timeout: Seconds. Returns early when the answer becomes False.
        """
        deadline = self._clock.monotonic() + timeout
        with self._changed:
            while not self._is_over_locked():
                limit = min(deadline, self._grace_end_locked())
                left = limit - self._clock.monotonic()
                if left <= 0:
                    break
                self._clock.wait(self._changed, left)
            return not self._is_over_locked()

    def join(self, timeout: float | None) -> bool:
        """Wait until the work has ended; return whether it has."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._changed:
            while self._running:
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    return False
                self._clock.wait(self._changed, left)
            return True

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self._work(self._token)
        except Stopped:
            pass
        except BaseException as error:
            failure = error
            raise
        finally:
            with self._changed:
                self._running = False
                self._failure = failure
                self._changed.notify_all()

    def _on_stop(self) -> None:
        with self._changed:
            self._stopped_at = self._clock.monotonic()
            self._changed.notify_all()

    def _is_over_locked(self) -> bool:
        if self._failure is not None:
            return True
        if self._stopped_at is None:
            return False
        return not self._running or self._clock.monotonic() >= self._grace_end_locked()

    def _grace_end_locked(self) -> float:
        if self._stopped_at is None or self._grace is None:
            return float("inf")
        return self._stopped_at + self._grace


class InterruptibleSleep:
    """Waits for a time, a stop, or a call of `wake`.

    Threads: `wait` from one thread, `wake` from any.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._woken = False  # guarded by _changed

    def wake(self) -> None:
        """End the current wait, or the next one if no thread waits now."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def wait(self, stop: StopToken, seconds: float) -> bool:
        """Wait, and return whether `stop` is set."""
        deadline = self._clock.monotonic() + seconds
        withdraw = stop.on_stop(self.wake)
        try:
            with self._changed:
                while not self._woken and (left := deadline - self._clock.monotonic()) > 0:
                    self._clock.wait(self._changed, left)
                self._woken = False
        finally:
            withdraw()
        return stop.is_set()
