"""Stop tokens: cooperative cancellation with a reason, from parent to child."""

import threading
from collections.abc import Callable
from typing import NoReturn

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import Stopped

__all__ = ["StopToken"]


class StopToken:
    """A switch that can be set once, with a reason, and never reset.

    A token from `child()` is set when its parent is set; setting a child does not affect
    the parent. Waiting uses the clock, so that tests control it.

    Promises: the first reason wins; callbacks run exactly once, on the thread that sets the
    token, before `stop()` returns, and without any lock of the token; a callback added to a
    set token runs at once.

    Does not promise: that threads have ended when the token is set. Join them.

    Threads: every method is safe from any thread.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        # Written once, with _changed held. Reading needs no lock, which matters because it is
        # read several times for each event of a watch.
        self._reason: str | None = None
        self._callbacks: dict[object, Callable[[], None]] = {}  # guarded by _changed
        # Set once, by `child()`. Before that only the parent can set this token, and a set
        # parent has no callbacks, so there is nothing to detach.
        self._detach: Callable[[], None] | None = None

    def __bool__(self) -> NoReturn:
        raise TypeError("a StopToken has no truth value; call is_set()")

    @property
    def reason(self) -> str | None:
        """The reason; `None` while the token is not set."""
        return self._reason

    def is_set(self) -> bool:
        """Return whether the token is set."""
        return self._reason is not None

    def stop(self, reason: str = "asked to stop") -> None:
        """Set the token and all its children. Later calls have no effect."""
        with self._changed:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
            self._changed.notify_all()
        if self._detach is not None:
            self._detach()
        for callback in callbacks:
            callback()

    def raise_if_set(self) -> None:
        """Raise `Stopped` with the reason if the token is set."""
        if self._reason is not None:
            raise Stopped(self._reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the token is set.

        Args:
            timeout: Maximum wait in seconds; `None` waits without limit, `0` does not
                wait.

        Returns:
            True if the token is set, False after the timeout. So `stop.wait(delay)` is
            an interruptible sleep.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._changed:
            while self._reason is None:
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    return False
                self._clock.wait(self._changed, left)
            return True

    def on_stop(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the token is set; at once if it is set already.

        The callback must be fast and must not raise: it unblocks a thread, for instance by
        shutting down a socket or notifying a condition.

        Returns:
            A function that removes the callback; it may be called at any time.
        """
        handle = object()
        with self._changed:
            if self._reason is None:
                self._callbacks[handle] = callback
                return lambda: self._remove(handle)
        callback()
        return lambda: None

    def child(self) -> "StopToken":
        """Return a token that is set when this one is, and can be set separately."""
        child = StopToken(clock=self._clock)
        # The closure reads the reason when it runs: only then does it exist.
        child._detach = self.on_stop(lambda: child.stop(self.reason or "parent stopped"))
        return child

    def _remove(self, handle: object) -> None:
        with self._changed:
            self._callbacks.pop(handle, None)
