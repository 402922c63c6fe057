"""The guarded work: what only a leader may do."""

import threading
from collections.abc import Callable

from navarchos.clock import Clock
from navarchos.errors import Stopped
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["InterruptibleSleep", "LeaderTask"]


class LeaderTask:
    """Runs the work on a thread of its own and knows whether leading may go on.

    It may until the work has failed, or until a stop was asked for and the work
    has ended, or has had its time to.

    Threads: every method is safe from any thread.
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
        self._withdraw = stop.on_stop(self._stop_asked)

    @property
    def failure(self) -> BaseException | None:
        """The exception that ended the work, if one did."""
        with self._changed:
            return self._failure

    def start(self, threads: ThreadGroup) -> None:
        """Begin. The work gets a token that is set when it has to end."""
        with self._changed:
            self._running = True
        threads.start("work", self._run)

    def cancel(self, reason: str) -> None:
        """Tell the work to end at once."""
        self._token.stop(reason)
        self._withdraw()

    def wait(self, timeout: float) -> bool:
        """Wait, and return whether leading may go on after it.

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

    def _stop_asked(self) -> None:
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
    """Waits for a time, a stop, or for `wake`.

    Threads: `wait` from one thread, `wake` from any.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._is_over = False  # guarded by _changed

    def wake(self) -> None:
        """End the pause, or the next one if there is none now."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait(self, stop: StopToken, seconds: float) -> bool:
        """Wait, and return whether `stop` is set."""
        deadline = self._clock.monotonic() + seconds
        withdraw = stop.on_stop(self.wake)
        try:
            with self._changed:
                while not self._is_over and (left := deadline - self._clock.monotonic()) > 0:
                    self._clock.wait(self._changed, left)
                self._is_over = False
        finally:
            withdraw()
        return stop.is_set()
