"""Stop requests that flow down a tree and carry their reason."""

import threading
from collections.abc import Callable
from typing import NoReturn

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import Stopped

__all__ = ["StopToken"]


class StopToken:
    """A one-way switch: not set, then set for ever, with a reason.

    A token made by `child()` is set when its parent is; setting a child leaves
    the parent alone. Waiting goes through the clock, so that tests own it.

    Promises: the first reason wins; callbacks run exactly once, on the thread
    that sets the token, before `stop()` returns, and without any lock of the
    token held; a callback added to a set token runs at once.

    Does not promise: that whoever was told to stop has stopped. Join for that.

    Threads: every method is safe from any thread.
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        # Written once, with _changed held, and None before. To read it takes no lock: it is
        # asked for several times for every event of a watch.
        self._reason: str | None = None
        self._callbacks: dict[object, Callable[[], None]] = {}  # guarded by _changed
        # Set once, by `child()`. Until then only the parent can set this token, and a
        # parent that is set has let go of its callbacks: there is nothing to detach.
        self._detach: Callable[[], None] | None = None

    def __bool__(self) -> NoReturn:
        raise TypeError("a StopToken has no truth value; call is_set()")

    @property
    def reason(self) -> str | None:
        """Why it was set; `None` while it is not."""
        return self._reason

    def is_set(self) -> bool:
        """Tell whether stopping has been asked for."""
        return self._reason is not None

    def stop(self, reason: str = "asked to stop") -> None:
        """Set the token and every token below it. Later calls do nothing."""
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
            timeout: Longest wait in seconds; `None` waits without limit, `0`
                only looks.

        Returns:
            True if the token is set, False if the time passed first. So
            `stop.wait(delay)` is the interruptible sleep of this library.
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
        """Call `callback` when the token is set; now, if it already is.

        The callback must be quick and must not raise: it frees something that
        blocks (shuts a socket down, notifies a condition).

        Returns:
            A function that withdraws the callback; harmless when it has run.
        """
        handle = object()
        with self._changed:
            if self._reason is None:
                self._callbacks[handle] = callback
                return lambda: self._withdraw(handle)
        callback()
        return lambda: None

    def child(self) -> "StopToken":
        """Return a token that is set when this one is, and can be set alone."""
        child = StopToken(clock=self._clock)
        # The closure reads the reason late: it exists only once we are set.
        child._detach = self.on_stop(lambda: child.stop(self.reason or "parent stopped"))
        return child

    def _withdraw(self, handle: object) -> None:
        with self._changed:
            self._callbacks.pop(handle, None)
