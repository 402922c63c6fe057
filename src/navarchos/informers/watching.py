"""The watch of one round: streams, one after the other, until history has a gap."""

from typing import Final, Generic, NoReturn, TypeVar

from navarchos.backoff import BackoffTimer
from navarchos.client.errors import TooManyRequests, WatchBroken, WatchError
from navarchos.clock import Clock
from navarchos.informers.ingest import Ingest
from navarchos.informers.listing import LastVersion
from navarchos.informers.scoped import ScopedSource
from navarchos.informers.source import Event, Stream
from navarchos.informers.streaming import is_busy
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = ["SHORT_WATCH", "ShortWatch", "Watching"]

T = TypeVar("T")

SHORT_WATCH: Final = 1.0
"""A watch that ends in fewer seconds without an event is a sign of trouble (RF-20)."""

_log = get_logger(__name__)


class ShortWatch(WatchError):
    """A watch ended at once without an event, as with a proxy that accepts and closes."""

    _next = "list again after a pause"


class Watching(Generic[T]):
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
        backoff: BackoffTimer,
        clock: Clock,
    ) -> None:
        self._source = source
        self._last = last
        self._ingest = ingest
        self._backoff = backoff
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
            began = self._clock.monotonic()
            try:
                events = self._read(stream, synthetic=synthetic)
            except TooManyRequests as error:
                self._wait(error, stop)  # and resume without a list (RF-21)
            else:
                if resumed and not events and self._clock.monotonic() - began < SHORT_WATCH:
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

    def _read(self, stream: Stream[T], *, synthetic: bool) -> int:
        """Pass a stream's events on until it ends; return how many there were."""
        events = 0
        try:
            for event in stream:
                events += 1
                # A watch from no version begins with what exists, in no order; to
                # resume from one of those would skip the rest (RF-18, RT-11).
                synthetic = synthetic and event.type == "ADDED"
                self._take(event, advance=not synthetic)
        except WatchBroken as error:
            _log.info("watch_broken", resource=error.resource, why=error.why)
        finally:
            stream.close()
        return events

    def _take(self, event: Event[T], *, advance: bool) -> None:
        seen = self._ingest.take_event(event)
        if seen and advance and event.resource_version:
            # Also when it is a smaller number: versions are opaque here (RF-17).
            self._last.value = ResourceVersion(event.resource_version)

    def _wait(self, error: Exception, stop: StopToken) -> None:
        delay = self._backoff.next()
        _log.warning("server_is_busy", resource=self._source.name, why=str(error), delay=delay)
        stop.wait(delay)
        stop.raise_if_set()
