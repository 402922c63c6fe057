"""Streaming lists: the initial list as events of the watch that goes on after it."""

from typing import Final, Generic, TypeVar

from navarchos.backoff import BackoffTimer
from navarchos.client.errors import ConnectFailed, TooManyRequests, WatchBroken
from navarchos.clock import Clock
from navarchos.informers.ingest import Draft, Ingest
from navarchos.informers.listing import LastVersion, is_version_unavailable
from navarchos.informers.scoped import ScopedSource
from navarchos.informers.source import Stream
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = ["StreamingList", "is_busy"]

T = TypeVar("T")

_UNFINISHED_LIMIT: Final = 3
_WARN_EVERY: Final = 10.0

_log = get_logger(__name__)


class StreamingList(Generic[T]):
    """Fills the store from a watch, object by object (RF-24 to RF-27).

    The server sends an ADDED for each object, then a bookmark that says it is
    complete, then changes. Neither side ever holds the whole list as one answer,
    which is what an informer of a large kind needs most of its memory for.

    Owned by the reflector's thread.
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

    def fill(self, stop: StopToken) -> Stream[T] | None:
        """Fill the store and return the stream, which goes on as the watch.

        Returns:
            `None` if this server cannot: list and watch then. So it is too for a
            server that does not know the request and ends one stream after the
            other without the bookmark.

        Raises:
            Stopped: The token was set; nothing was stored.
            IndexFailed: An index function raised; nothing changed.
        """
        unfinished = 0
        while unfinished < _UNFINISHED_LIMIT:
            try:
                return self._attempt(stop)
            except WatchBroken as error:
                unfinished += 1
                _log.info("streaming_list_unfinished", why=error.why, resource=error.resource)
            except Exception as error:  # noqa: BLE001 - told apart below
                if is_busy(error):
                    self._wait(error, stop)
                elif is_version_unavailable(error) and not self._last.is_unavailable:
                    self._last.is_unavailable = True
                else:
                    self._fall_back(error)
                    return None
        return None

    def _attempt(self, stop: StopToken) -> Stream[T]:
        stream = self._source.watch(self._last.for_streaming(), stop, streaming=True)
        try:
            draft = Draft[T]()
            version = self._read(stream, draft)
            stop.raise_if_set()
            self._ingest.take_draft(draft, version)
        except BaseException:
            stream.close()
            raise
        self._last.listed(version)
        return stream

    def _read(self, stream: Stream[T], draft: Draft[T]) -> ResourceVersion:
        warn_at = self._clock.monotonic() + _WARN_EVERY
        for event in stream:
            # Any other bookmark says how far, not that it is all (RT-13).
            if event.initial_events_end:
                return ResourceVersion(event.resource_version)
            self._ingest.draft(draft, event)
            if self._clock.monotonic() >= warn_at:
                warn_at = self._clock.monotonic() + _WARN_EVERY
                _log.warning("streaming_list_is_slow", resource=self._source.name)
        raise WatchBroken(self._source.name, "it ended before the list was complete")

    def _wait(self, error: Exception, stop: StopToken) -> None:
        delay = self._backoff.next()
        _log.warning("server_is_busy", resource=self._source.name, why=str(error), delay=delay)
        stop.wait(delay)
        stop.raise_if_set()

    def _fall_back(self, error: Exception) -> None:
        _log.info("streaming_list_refused", resource=self._source.name, why=str(error))


def is_busy(error: BaseException) -> bool:
    """Tell whether the server only wants to be asked later (RF-15): it is there, or soon."""
    return isinstance(error, TooManyRequests) or (
        isinstance(error, ConnectFailed) and error.refused
    )
