"""One reconcile as code sees it from inside: its id, its stop token, its time (CT-15, CT-16)."""

import contextvars
import threading
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from navarchos.clock import Clock
from navarchos.errors import ConfigError, NotStarted
from navarchos.runtime.reconciler import Request
from navarchos.stopping import StopToken

__all__ = ["ReconcileContext", "TimeLimit", "current_reconcile", "reconcile_scope"]


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """A reconcile in hand.

    A thread cannot be killed. What a pass may not outlast, it has to ask about: wait
    on `stop`, and give `time_left()` to requests as their timeout.

    Attributes:
        controller: Whose it is.
        kind: What is reconciled; empty for controllers without `for_`.
        request: Which object.
        id: Unique; it is on every log line, too.
        stop: Set when the controller stops, when the time is over, and at the end.
        deadline: Until when, on `clock.monotonic()`; `None` without a limit.
        clock: Time.
    """

    controller: str
    kind: str
    request: Request
    id: str
    stop: StopToken
    deadline: float | None
    clock: Clock

    def time_left(self) -> float | None:
        """Return the seconds until the deadline, at least 0; `None` without one."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - self.clock.monotonic())


_current: contextvars.ContextVar[ReconcileContext] = contextvars.ContextVar("navarchos_pass")


def current_reconcile() -> ReconcileContext:
    """Return the pass that this thread is in.

    Raises:
        NotStarted: It is in none.
    """
    try:
        return _current.get()
    except LookupError:
        raise NotStarted("a reconcile of this thread") from None


@contextmanager
def reconcile_scope(
    controller: str,
    kind: str,
    request: Request,
    *,
    stop: StopToken,
    limit: "TimeLimit | None",
    clock: Clock,
) -> Iterator[ReconcileContext]:
    """Make a pass the current one of this thread, until the block ends."""
    token = stop.child()
    deadline = limit.begin(token) if limit is not None else None
    opened = ReconcileContext(controller, kind, request, uuid.uuid4().hex, token, deadline, clock)
    former = _current.set(opened)
    try:
        yield opened
    finally:
        _current.reset(former)
        token.stop("the reconcile has ended")


class TimeLimit:
    """Sets the tokens of passes that take too long. All have the same limit.

    Lifecycle: `watch` on a thread of its own, until `close`.

    Args:
        seconds: How long a pass may take, above 0.
        clock: Time and waiting.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        if seconds <= 0:
            raise ConfigError("reconcile_timeout", seconds, "it must be above 0, or None")
        self.reason = f"took longer than {seconds:g} s"
        self._seconds = seconds
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._open: deque[tuple[float, StopToken]] = deque()  # guarded by _changed; oldest first
        self._closed = False  # guarded by _changed

    def begin(self, token: StopToken) -> float:
        """Watch over a pass; whoever ends it sets its token. Returns its deadline."""
        deadline = self._clock.monotonic() + self._seconds
        with self._changed:
            self._forget_ended_locked()
            self._open.append((deadline, token))
            self._changed.notify_all()
        return deadline

    def has_ended(self, token: StopToken) -> bool:
        """Tell whether it was the limit that set a token."""
        return token.reason == self.reason

    def watch(self) -> None:
        """Set tokens whose time is over, until closed."""
        while (token := self._next()) is not None:
            token.stop(self.reason)  # its callbacks run without our lock

    def close(self) -> None:
        """End `watch`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self) -> StopToken | None:
        """Wait for a pass whose time is over; `None` when closed."""
        with self._changed:
            while not self._closed:
                self._forget_ended_locked()
                left = self._open[0][0] - self._clock.monotonic() if self._open else None
                if left is not None and left <= 0:
                    return self._open.popleft()[1]
                self._clock.wait(self._changed, left)
            return None

    def _forget_ended_locked(self) -> None:
        while self._open and self._open[0][1].is_set():
            self._open.popleft()
