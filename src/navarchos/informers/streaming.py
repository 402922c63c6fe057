"""Streaming lists: the initial list as events of the watch that goes on after it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from navarchos.client.errors import WatchBroken
from navarchos.clock import Clock
from navarchos.informers.consistency import ConsistencyDetector
from navarchos.informers.errors import InconsistentList
from navarchos.informers.ingest import Draft, Ingest
from navarchos.informers.listing import LastVersion, is_version_unavailable
from navarchos.informers.pausing import Pauses, is_busy
from navarchos.informers.scoped import ScopedSource
from navarchos.informers.source import Stream
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["StreamingList"]

T = TypeVar("T")

_UNFINISHED_LIMIT: Final = 3
_WARN_EVERY: Final = 10.0
"""Seconds (RF-27)."""

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
        pauses: Pauses,
        clock: Clock,
        detector: ConsistencyDetector[T] | None = None,
    ) -> None:
        self._source = source
        self._last = last
        self._ingest = ingest
        self._pauses = pauses
        self._clock = clock
        self._detector = detector

    def fill(self, stop: StopToken) -> Stream[T] | None:
        """Fill the store and return the stream, which goes on as the watch.

        Returns:
            `None` if this server cannot: list and watch then. So it is too for a
            server that does not know the request and ends one stream after the
            other without the bookmark.

        Raises:
            Stopped: The token was set; nothing was stored.
            InconsistentList: The detector found a difference; nothing changed.
        """
        unfinished = 0
        while unfinished < _UNFINISHED_LIMIT:
            try:
                return self._attempt(stop)
            except WatchBroken as error:
                unfinished += 1
                _log.info("streaming_list_unfinished", why=error.why, resource=error.resource)
            except InconsistentList:
                raise  # to list in another way would hide it
            except Exception as error:  # noqa: BLE001 - told apart below
                if is_busy(error):
                    self._pauses.wait_for_server(error, stop)
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
            with self._warning(stop):
                version = self._read(stream, draft)
            stop.raise_if_set()
            if self._detector is not None:
                self._detector.check(draft, version, stop)
            self._ingest.take_draft(draft, version)
        except BaseException:
            stream.close()
            raise
        self._last.listed(version)
        return stream

    def _read(self, stream: Stream[T], draft: Draft[T]) -> ResourceVersion:
        for event in stream:
            # Any other bookmark says how far, not that it is all (RT-13).
            if event.initial_events_end:
                return ResourceVersion(event.resource_version)
            self._ingest.draft(draft, event)
        raise WatchBroken(self._source.name, "it ended before the list was complete")

    @contextmanager
    def _warning(self, stop: StopToken) -> Iterator[None]:
        """Warn while the end of the list does not come, also when nothing comes at all.

        That takes a thread: the reflector's own is blocked in the read.
        """
        done = stop.child()
        threads = ThreadGroup(f"slow-{self._source.name}", stop=done, clock=self._clock)
        threads.start("", lambda: self._warn(done))
        try:
            yield
        finally:
            done.stop("the list is complete, or given up")
            threads.join()

    def _warn(self, done: StopToken) -> None:
        began = self._clock.monotonic()
        while not done.wait(_WARN_EVERY):
            seconds = self._clock.monotonic() - began
            _log.warning("streaming_list_is_slow", resource=self._source.name, seconds=seconds)

    def _fall_back(self, error: Exception) -> None:
        _log.info("streaming_list_refused", resource=self._source.name, why=str(error))
