"""One handler's buffer, the thread that empties it, and the count of its initial list."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, Generic, TypeVar

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import AlreadyStopped, Stopped
from navarchos.informers.handlers import EventHandler, Notification
from navarchos.informers.metrics import HandlerMetrics
from navarchos.informers.position import wait_until
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["FAILURE_PAUSE", "Delivery", "Registration"]

T = TypeVar("T")

FAILURE_PAUSE: Final = 1.0
"""Seconds between a notification on which a handler failed and the next one (SI-09)."""

_MANY: Final = 1024
_SLOW: Final = 0.1

_is_initial: Final = attrgetter("initial")

_log = get_logger(__name__)


class Delivery(Generic[T]):
    """Calls one handler, in order, on a separate thread (SI-07).

    Promises: `enqueue` never waits for the handler; calls are strictly sequential and in
    the order of `enqueue`. After a stop at most the call in flight ends; buffered
    notifications are dropped (RT-10).

    The initial list counts as handled only when the handler has *returned* from each of its
    notifications. They are counted when they are buffered, and `end_initial_list` is called
    only after the last one was buffered, so the count is never zero too early (SI-11,
    RT-06). A notification on which the handler fails stays counted.

    Does not promise: bounded memory. A handler that is slower than the changes, or does
    not return, shows in the gauge of pending notifications.

    Threads: every method is safe from any thread.
    """

    def __init__(
        self,
        handler: EventHandler[T],
        metrics: HandlerMetrics,
        *,
        stop: StopToken,
        on_failure: Callable[[Exception], object],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Make an empty buffer; its thread starts with `start`.

        Args:
            handler: The handler to call.
            metrics: The handler's series; also its name for logs and threads.
            stop: Ends the thread.
            on_failure: Called with the error if the thread itself crashes.
            clock: Time and waiting.
        """
        self.name = metrics.name
        self._handler = handler
        self._clock = clock
        self._errors = metrics.errors
        self._seconds = metrics.seconds
        self._stop = stop.child()
        self._on_failure = on_failure
        group = f"handle-{metrics.resource}-{metrics.name}"
        self._threads = ThreadGroup(group, stop=self._stop, clock=clock)
        self._buffer_lock = threading.Lock()
        self._filled = threading.Condition(self._buffer_lock)  # for the thread
        self._synced = threading.Condition(self._buffer_lock)  # for wait_for_sync
        # Oldest first. Filled and dropped with _buffer_lock held; the thread takes from it
        # without the lock, because `popleft` of a deque is atomic.
        self._buffer: deque[Notification[T]] = deque()
        self._is_idle = False  # guarded by _buffer_lock; the thread waits for notifications
        self._is_calling = False  # the thread's own: the handler has not returned yet
        self._initial = 0  # guarded by _buffer_lock; initial notifications, handled or not
        self._initial_handled = 0  # the thread's own; never more than _initial
        self._listed = False  # guarded by _buffer_lock; no further initial ones will come
        self._started = False  # guarded by _buffer_lock
        self._stop.on_stop(self._drop)

    def start(self) -> None:
        """Start to call the handler. Later calls, and one after a stop, do nothing."""
        with self._buffer_lock:
            if self._started or self._stop.is_set():
                return
            self._started = True
        try:
            self._threads.start("", self._run)
        except AlreadyStopped:
            _log.debug("handler_removed_before_start", handler=self.name)

    def enqueue(self, notifications: Sequence[Notification[T]]) -> None:
        """Buffer notifications; never waits for the handler (RT-25)."""
        with self._buffer_lock:
            if self._stop.is_set():
                return
            # Counted first: the thread may have handled them before this method returns.
            self._initial += sum(map(_is_initial, notifications))
            self._buffer.extend(notifications)
            if self._is_idle:
                self._is_idle = False
                self._filled.notify()

    def end_initial_list(self) -> None:
        """Record that every notification of the initial list has been buffered."""
        with self._buffer_lock:
            self._listed = True
            self._synced.notify_all()

    def has_synced(self) -> bool:
        """Return whether the handler has handled the whole initial list."""
        with self._buffer_lock:
            return self._has_synced_locked()

    def wait_for_sync(self, timeout: float | None, stop: StopToken | None) -> bool:
        """Wait until `has_synced`; return False if the time passed or a token was set first."""
        return wait_until(
            self._synced, self._has_synced_locked, timeout, self._clock, stop, self._stop
        )

    def pending(self) -> int:
        """Return how many notifications wait."""
        return len(self._buffer)

    def outstanding(self) -> int:
        """Return how many notifications wait, or are with the handler."""
        return len(self._buffer) + self._is_calling

    @property
    def failure(self) -> BaseException | None:
        """The error that crashed the thread: a bug of this class, not of the handler."""
        return self._threads.failure

    def raise_failure(self) -> None:
        """Raise `ThreadCrashed` from the error that crashed the thread, if there was one."""
        self._threads.raise_failure()

    def has_ended(self) -> bool:
        """Return whether it was stopped and its thread has ended."""
        return self._stop.is_set() and not self._threads.running()

    def stop(self, reason: str) -> None:
        """End after the call in flight and drop buffered notifications. Does not wait."""
        self._stop.stop(reason)

    def join(self, timeout: float | None) -> bool:
        """Wait until the thread has ended; at once if it never started.

        Raises:
            SelfJoin: Called from the handler itself (SI-14).
        """
        return self._threads.join(timeout)

    def _has_synced_locked(self) -> bool:
        return self._listed and self._initial_handled == self._initial

    def _run(self) -> None:
        try:
            while (notification := self._next()) is not None:
                if not self._call(notification):
                    self._stop.wait(FAILURE_PAUSE)
                elif notification.initial:
                    self._handled_initial()
        except Exception as error:
            self._on_failure(error)
            raise

    def _next(self) -> Notification[T] | None:
        if not self._buffer and not self._wait():
            return None
        self._is_calling = True
        try:
            return self._buffer.popleft()
        except IndexError:
            # A stop has dropped it at this moment.
            self._is_calling = False
            return None

    def _wait(self) -> bool:
        """Wait for notifications; False if there will be none."""
        with self._buffer_lock:
            while not self._buffer:
                if self._stop.is_set():
                    return False
                self._is_idle = True
                self._clock.wait(self._filled, None)
            self._is_idle = False
            return True

    def _call(self, notification: Notification[T]) -> bool:
        began = self._clock.monotonic()
        try:
            notification.deliver(self._handler)
        except (Exception, Stopped) as error:
            # A handler may use another token; only the delivery's token ends this thread.
            if isinstance(error, Stopped) and self._stop.is_set():
                raise
            self._errors.inc()
            notified = type(notification).__name__.lower()
            _log.exception("handler_failed", handler=self.name, notification=notified)
            return False
        finally:
            # Reset only after the call, so that the gauge shows a handler that never returns.
            self._is_calling = False
            seconds = self._clock.monotonic() - began
            self._seconds.observe(seconds)
        if seconds > _SLOW and (pending := self.pending()) > _MANY:
            _log.info("handler_is_slow", handler=self.name, seconds=seconds, pending=pending)
        return True

    def _handled_initial(self) -> None:
        self._initial_handled += 1
        # Not each time: waiting threads would wake up for every object. Not under the lock
        # either: if more notifications are being buffered, `end_initial_list` is still to
        # come and notifies the waiting threads.
        if self._initial_handled < self._initial:
            return
        if self._initial_handled > self._initial:
            raise AssertionError(f"handler {self.name} handled more than it was sent")
        with self._buffer_lock:
            self._synced.notify_all()

    def _drop(self) -> None:
        with self._buffer_lock:
            self._buffer.clear()
            self._filled.notify_all()
            self._synced.notify_all()


class Registration(Generic[T]):
    """A registered handler. `add_handler` returns it.

    Threads: every method is safe from any thread.
    """

    def __init__(self, delivery: Delivery[T], *, remove: Callable[[], None]) -> None:
        self._delivery = delivery
        self._remove = remove

    @property
    def name(self) -> str:
        """The handler's name in logs and metrics."""
        return self._delivery.name

    @property
    def pending(self) -> int:
        """How many notifications wait for the handler."""
        return self._delivery.pending()

    def has_synced(self) -> bool:
        """Return whether the handler has handled the whole initial list (SI-11).

        Never true if it failed on a part of the list.
        """
        return self._delivery.has_synced()

    def wait_for_sync(self, timeout: float | None, stop: StopToken | None = None) -> bool:
        """Wait until `has_synced`.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit, `0` does not wait.
            stop: Ends the wait early.

        Returns:
            False if the time passed, `stop` was set, the handler was removed or its
            informer stopped first.
        """
        return self._delivery.wait_for_sync(timeout, stop)

    def remove(self) -> None:
        """Stop calling the handler (SI-13). A call in flight continues.

        Later calls do nothing, and so does a call after the informer has stopped.
        """
        self._remove()

    def shutdown(self, timeout: float | None = None) -> bool:
        """Remove the handler and wait until its thread has ended (SI-14).

        Args:
            timeout: Longest wait in seconds; `None` waits without limit.

        Returns:
            False if the time passed first; the handler is removed in any case.

        Raises:
            SelfJoin: Called from the handler itself; it is removed in any case.
        """
        self._remove()
        return self._delivery.join(timeout)
