"""The watch of one round: streams, one after the other, until history has a gap."""

from typing import Final, Generic, NoReturn, TypeVar

from navarchos.client.errors import ServerError, TooManyRequests, WatchBroken, WatchError
from navarchos.clock import Clock
from navarchos.informers.ingest import Ingest
from navarchos.informers.metrics import InformerMetrics
from navarchos.informers.paged_list import LastVersion
from navarchos.informers.position import Staleness
from navarchos.informers.reflector_backoff import ReflectorBackoff, is_busy
from navarchos.informers.scope import ScopedSource
from navarchos.informers.source import Event, Stream
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = ["SHORT_WATCH", "ShortWatch", "WatchLoop"]

T = TypeVar("T")

SHORT_WATCH: Final = 1.0
"""A watch that ends in fewer seconds without an event is a sign of trouble (RF-20)."""

_CALM: Final = 60.0

_log = get_logger(__name__)


class ShortWatch(WatchError):
    """A watch ended at once without an event, as with a proxy that accepts and closes."""

    _next = "list again after a pause"


class ErrorTolerance:
    """For how long internal errors in streams are answered with another watch (RF-22).

    The period begins with the first such error, and anew after a minute without.
    As client-go's retry_with_deadline.go. Owned by one thread.
    """

    def __init__(self, seconds: float, *, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._first = self._latest = -_CALM  # when errors came

    def allows(self, error: Exception) -> bool:
        """Tell whether another watch is in order after this error."""
        if not isinstance(error, ServerError) or error.reason != "InternalError":
            return False
        now = self._clock.monotonic()
        if now - self._latest >= _CALM:
            self._first = now
        self._latest = now
        return now - self._first < self._seconds


class WatchLoop(Generic[T]):
    """Reads watches and passes their events on.

    A stream that ends, by the server's decision or by accident, is followed by
    another from the last version, at once and without a list. Owned by the
    reflector's thread.
    """

    def __init__(
        self,
        source: ScopedSource[T],
        last: LastVersion,
        ingest: Ingest[T],
        *,
        pauses: ReflectorBackoff,
        tolerance: ErrorTolerance,
        staleness: Staleness,
        metrics: InformerMetrics,
        clock: Clock,
    ) -> None:
        self._source = source
        self._last = last
        self._ingest = ingest
        self._pauses = pauses
        self._tolerance = tolerance
        self._staleness = staleness
        self._metrics = metrics
        self._clock = clock

    def follow(self, stream: Stream[T] | None, stop: StopToken) -> NoReturn:
        """Pass events on until the round has to end.

        Args:
            stream: An open watch to begin with, if there is one.
            stop: Ends the watch; every stream is closed on every path (RF-03).

        Raises:
            Stopped: The token was set.
            WatchExpired: The server has forgotten the last version: list again.
            ShortWatch: See there.
            ClientError: Anything else: list again after a pause.
        """
        while True:
            # A stream that has brought a list is no short watch however soon it ends.
            resumed = stream is None
            synthetic = resumed and self._last.value in {"", "0"}
            stream = stream or self._open(stop)
            self._staleness.found()
            self._metrics.watches.inc()
            began = self._clock.monotonic()
            try:
                events = self._read(stream, synthetic=synthetic)
            except Exception as error:
                # Resumed without a list after a pause (RF-21, RF-22).
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
                return self._source.watch(self._last.value, stop)
            except Exception as error:
                if not is_busy(error):
                    raise
                self._wait(error, stop)

    def _wait(self, error: Exception, stop: StopToken) -> None:
        self._staleness.lost()
        self._pauses.wait_for_server(error, stop)

    def _read(self, stream: Stream[T], *, synthetic: bool) -> int:
        """Pass a stream's events on until it ends; return how many there were."""
        began, events = self._clock.monotonic(), 0
        try:
            for event in stream:
                events += 1
                # A watch from no version begins with what exists, in no order; to
                # resume from one of those would skip the rest (RF-18, RT-11).
                synthetic = synthetic and event.type == "ADDED"
                self._take(event, advance=not synthetic)
        except WatchBroken as error:
            self._staleness.lost()
            _log.info("watch_broken", resource=error.resource, why=error.why)
        finally:
            stream.close()
            self._metrics.watched(self._clock.monotonic() - began, events)
        return events

    def _take(self, event: Event[T], *, advance: bool) -> None:
        seen = self._ingest.take_event(event)
        if seen and advance and event.resource_version:
            # Also when it is a smaller number: versions are opaque here (RF-17).
            self._last.value = ResourceVersion(event.resource_version)
            self._metrics.seen(self._last.value)
