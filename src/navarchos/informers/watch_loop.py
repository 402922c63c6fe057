"""The watch of one round: one stream after the other, until a change may have been missed."""

from typing import Final, Generic, NoReturn, TypeVar

from navarchos.client.errors import ServerError, TooManyRequests, WatchBroken, WatchError
from navarchos.clock import Clock
from navarchos.informers.reflector_context import ReflectorContext, is_busy
from navarchos.informers.source import Stream
from navarchos.logs import get_logger
from navarchos.stopping import StopToken

__all__ = ["SHORT_WATCH", "ErrorTolerance", "ShortWatch", "WatchLoop"]

T = TypeVar("T")

SHORT_WATCH: Final = 1.0
"""A watch that ends without an event in fewer seconds is a sign of trouble (RF-20)."""

_CALM: Final = 60.0

_log = get_logger(__name__)


class ShortWatch(WatchError):
    """A watch ended at once without an event, as with a proxy that accepts and closes."""

    _next = "list again after a pause"


class ErrorTolerance:
    """For how long internal errors in streams lead to another watch without a list (RF-22).

    The period begins with the first such error, and again after a minute without one. As
    client-go's retry_with_deadline.go.

    Threads: owned by the reflector's thread.
    """

    def __init__(self, seconds: float, *, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._first = self._latest = -_CALM  # when errors came

    def allows(self, error: Exception) -> bool:
        """Return whether to open another watch after this error."""
        if not isinstance(error, ServerError) or error.reason != "InternalError":
            return False
        now = self._clock.monotonic()
        if now - self._latest >= _CALM:
            self._first = now
        self._latest = now
        return now - self._first < self._seconds


class WatchLoop(Generic[T]):
    """Reads watches and passes their events on.

    When a stream ends, by the server's decision or by accident, another one is opened from
    the last version, at once and without a list.

    Threads: owned by the reflector's thread.
    """

    def __init__(self, context: ReflectorContext[T], *, tolerance: ErrorTolerance) -> None:
        self._source = context.source
        self._ingest = context.ingest
        self._position = context.position
        self._backoff = context.backoff
        self._metrics = context.metrics
        self._clock = context.clock
        self._tolerance = tolerance

    def run(self, stream: Stream[T] | None, stop: StopToken) -> NoReturn:
        """Pass events on until the round has to end.

        Args:
            stream: An open watch to start with, if there is one.
            stop: Ends the watch; every stream is closed in every case (RF-03).

        Raises:
            Stopped: The token was set.
            WatchExpired: The server no longer has the last version: list again.
            ShortWatch: A watch ended at once: list again after a pause.
            ClientError: Any other failure: list again after a pause.
        """
        while True:
            # A stream that has brought a list is not a short watch, however soon it ends.
            resumed = stream is None
            synthetic = resumed and self._position.resume_version in {"", "0"}
            stream = stream or self._open(stop)
            self._position.set_disconnected(False)
            self._metrics.watches.inc()
            began = self._clock.monotonic()
            try:
                events = self._read(stream, synthetic=synthetic)
            except Exception as error:
                # Resumed after a pause, without a list (RF-21, RF-22).
                if not isinstance(error, TooManyRequests) and not self._tolerance.allows(error):
                    raise
                self._wait(error, stop)
            else:
                if resumed and not events and self._clock.monotonic() - began < SHORT_WATCH:
                    self._metrics.short_watches.inc()
                    raise ShortWatch(self._source.name, "it ended without an event")
            stream = None

    def _open(self, stop: StopToken) -> Stream[T]:
        while True:
            stop.raise_if_set()
            try:
                return self._source.watch(self._position.resume_version, stop)
            except Exception as error:
                if not is_busy(error):
                    raise
                self._wait(error, stop)

    def _wait(self, error: Exception, stop: StopToken) -> None:
        self._position.set_disconnected(True)
        self._backoff.wait_for_server(error, stop)

    def _read(self, stream: Stream[T], *, synthetic: bool) -> int:
        """Pass a stream's events on until it ends; return their number."""
        began, events = self._clock.monotonic(), 0
        try:
            for event in stream:
                events += 1
                # A watch from no version begins with the existing objects, in any order. To
                # resume from the version of one of them would skip others (RF-18, RT-11).
                synthetic = synthetic and event.type == "ADDED"
                seen = self._ingest.take_event(event)
                if seen and not synthetic and event.resource_version:
                    # Also if it is a smaller number: here versions are opaque (RF-17).
                    self._position.resume_version = event.resource_version
        except WatchBroken as error:
            self._position.set_disconnected(True)
            _log.info("watch_broken", resource=error.resource, error=error.why)
        finally:
            stream.close()
            self._metrics.watched(self._clock.monotonic() - began, events)
        return events
