"""Clocks for code that waits."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

__all__ = ["HeldClock", "JumpingClock", "ManualClock"]


class JumpingClock:
    """Ends every wait at once, at its deadline; the test decides what happens in between.

    For a single thread, which may send requests in real time between two waits.
    """

    def __init__(self) -> None:
        self.passed = 0.0
        self.meanwhile: Callable[[float], object] = lambda passed: None

    def monotonic(self) -> float:
        return self.passed

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.passed)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        assert timeout is not None
        self.passed += timeout
        condition.release()
        try:
            self.meanwhile(self.passed)
        finally:
            condition.acquire()
        return False


class ManualClock:
    """Time that the test moves; a wait blocks until it is notified.

    For code that does not wait, next to threads that wait with another clock.
    """

    def __init__(self, start: datetime) -> None:
        self._start = start
        self.passed = 0.0

    def advance(self, seconds: float) -> None:
        """Move time forward."""
        self.passed += seconds

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.passed)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        return condition.wait(timeout)


class HeldClock:
    """Runs a given number of times as fast as real time, and stops while it is held.

    While it is held, no wait reaches its deadline, so a thread continues only after a
        notification. Also for threads that block on sockets.
    """

    def __init__(self, *, speed: float) -> None:
        self._speed = speed
        self._held_lock = threading.Lock()
        self._passed = 0.0  # guarded by _held_lock; up to _since
        self._since: float | None = time.monotonic()  # guarded by _held_lock; None: held

    def hold(self) -> None:
        """Stop the time. Takes only this clock's lock."""
        with self._held_lock:
            self._passed, self._since = self._now_locked(), None

    def go_on(self) -> None:
        with self._held_lock:
            self._passed, self._since = self._now_locked(), time.monotonic()

    def monotonic(self) -> float:
        with self._held_lock:
            return self._now_locked()

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        if timeout is None:
            return condition.wait()
        deadline = self.monotonic() + timeout
        # A short wait: callers loop, and the time may be held or released in between.
        woken = condition.wait(min(max(timeout, 0.0) / self._speed, 0.02))
        return woken or self.monotonic() < deadline

    def _now_locked(self) -> float:
        if self._since is None:
            return self._passed
        return self._passed + (time.monotonic() - self._since) * self._speed
