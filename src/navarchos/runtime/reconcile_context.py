"""The context of one reconcile: its id, its stop token, its deadline (CT-15, CT-16)."""

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
    """The reconcile that this thread runs.

    A thread cannot be killed. Code that must not outlast the reconcile has to check: wait on
    `stop`, and pass `time_left()` to requests as their timeout.

    Attributes:
        controller: The name of the controller.
        kind: The reconciled kind; empty for controllers without `for_`.
        request: The object to reconcile.
        id: Unique; it is also on every log line.
        stop: Set when the controller stops, when the time is over, and at the end.
        deadline: On `clock.monotonic()`; `None` without a limit.
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
        """Return the seconds until the deadline, at least 0; `None` without a deadline."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - self.clock.monotonic())


class _OutsideReconcile(NotStarted):
    _why = "was called outside a reconcile"


_current: contextvars.ContextVar[ReconcileContext] = contextvars.ContextVar("navarchos_reconcile")


def current_reconcile() -> ReconcileContext:
    """Return the context of the reconcile that this thread runs.

    Raises:
        NotStarted: This thread does not run a reconcile.
    """
    try:
        return _current.get()
    except LookupError:
        raise _OutsideReconcile("current_reconcile()") from None


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
    """Make a context the current one of this thread until the block ends."""
    token = stop.child()
    deadline = limit.begin(token) if limit is not None else None
    context = ReconcileContext(controller, kind, request, uuid.uuid4().hex, token, deadline, clock)
    former = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(former)
        token.stop("the reconcile has ended")


class TimeLimit:
    """Sets the stop tokens of reconciles that take too long. All have the same limit.

    Lifecycle: `watch` on a separate thread, until `close`.

    Args:
        seconds: How long a reconcile may take, above 0.
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
        """Limit a reconcile until its token is set. Returns its deadline."""
        deadline = self._clock.monotonic() + self._seconds
        with self._changed:
            self._forget_ended_locked()
            self._open.append((deadline, token))
            self._changed.notify_all()
        return deadline

    def has_ended(self, token: StopToken) -> bool:
        """Tell whether this limit has set the token."""
        return token.reason == self.reason

    def watch(self) -> None:
        """Set the tokens of reconciles whose time is over, until closed."""
        while (token := self._next()) is not None:
            token.stop(self.reason)  # its callbacks run without our lock

    def close(self) -> None:
        """End `watch`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _next(self) -> StopToken | None:
        """Wait for a reconcile whose time is over; `None` when closed."""
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
