"""The reflector: list, watch, and list again when a change may have been missed.

```text
  start ──> list ──────────> watch ──> watch ──> ...      a stream that ends is resumed
              ^  (streamed      │
              │   or in pages)  │  expired, refused, too short, relist requested
              └──── pause <─────┘
```
"""

import threading
from typing import Final, Generic, TypeVar

from navarchos.backoff import BackoffTimer
from navarchos.client.errors import Expired, WatchExpired
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import Stopped
from navarchos.informers.errors import InconsistentList
from navarchos.informers.ingest import Ingest
from navarchos.informers.metrics import InformerMetrics, RelistReason
from navarchos.informers.options import InformerOptions
from navarchos.informers.paged_list import PagedList
from navarchos.informers.position import CachePosition, is_at_least
from navarchos.informers.reflector_context import ReflectorBackoff, ReflectorContext
from navarchos.informers.scope import ScopedSource
from navarchos.informers.source import Stream
from navarchos.informers.streaming_list import ConsistencyDetector, StreamingList, detector_wanted
from navarchos.informers.watch_loop import ErrorTolerance, ShortWatch, WatchLoop
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = ["Reflector"]

T = TypeVar("T")

_SLOW_LIST: Final = 10.0

_log = get_logger(__name__)


class Reflector(Generic[T]):
    """Keeps a cache in step with the server until it is stopped.

    Promises: the cache ends up with the server's list, whatever happened in between; it
    never goes back in time as long as the server does not. Every opened stream is closed.

    Does not promise: every intermediate state. The only reaction to an error is a report
    and another attempt after a pause.

    Threads: `run` is for one thread, once; `relist` is safe from any thread.
    """

    def __init__(
        self,
        source: ScopedSource[T],
        ingest: Ingest[T],
        position: CachePosition,
        options: InformerOptions[T],
        *,
        metrics: InformerMetrics,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._kind = source.name
        self._ingest = ingest
        self._position = position
        self._metrics = metrics
        self._clock = clock
        self._streaming = options.streaming and source.streams_lists
        self._on_error = options.on_watch_error or self._log_error
        timer = BackoffTimer(options.backoff, clock=clock, rand=options.rand)
        self._backoff = ReflectorBackoff(source.name, timer)
        context = ReflectorContext(source, ingest, position, self._backoff, metrics, clock)
        self._paged_list = PagedList(
            source, position, page_size=options.page_size, on_object=ingest.intern
        )
        self._streaming_list = StreamingList(
            context, detector=ConsistencyDetector(source) if detector_wanted() else None
        )
        self._watch_loop = WatchLoop(
            context, tolerance=ErrorTolerance(options.tolerate_internal_errors, clock=clock)
        )
        self._reason = RelistReason.START
        self.failure = ""
        """The error that ended the last round, in words, until a list is complete."""
        self._round_lock = threading.Lock()
        self._round: StopToken | None = None  # guarded by _round_lock; ends the present round
        # guarded by _round_lock; the version that the next list has to contain
        self._requested: ResourceVersion | None = None
        self._is_listing = False  # guarded by _round_lock

    def run(self, stop: StopToken) -> None:
        """List and watch until the token is set. Blocks.

        Raises:
            Stopped: The client was closed before.
            InconsistentList: The detector was on and found a difference.
        """
        try:
            while not stop.is_set():
                self._round_and_pause(self._begin(stop))
        finally:
            self._position.set_disconnected(False)  # a stopped cache needs no watch

    def _round_and_pause(self, stop: StopToken) -> None:
        try:
            failure = self._try_round(stop)
            # The pause comes after every round (RF-01), but not before a list that was
            # requested and that another thread waits for.
            if not stop.is_set():
                stop.wait(self._backoff.delay(failure))
        finally:
            stop.stop("the round is over")

    def relist(self, not_older_than: ResourceVersion) -> None:
        """List again: now, or after the list that is under way, if that one is too old.

        A list under way is never cut short. Otherwise many requests, one after the other,
        could prevent every list from completing.

        Args:
            not_older_than: The version that the list has to contain.
        """
        with self._round_lock:
            if self._requested is None or is_at_least(not_older_than, self._requested) is not False:
                self._requested = not_older_than
            present = None if self._is_listing else self._round
        if present is not None:
            present.stop("relist requested")

    def _begin(self, stop: StopToken) -> StopToken:
        with self._round_lock:
            self._round = stop.child()
            self._is_listing = True
            requested, self._requested = self._requested, None
            if requested is not None:
                self._position.resume_from(requested)
                self._reason = RelistReason.CATCH_UP
            return self._round

    def _try_round(self, stop: StopToken) -> Exception | None:
        """List and watch; return the error that ended the round, or `None` for the token."""
        try:
            self._list_and_watch(stop)
        except Stopped:
            if not stop.is_set():
                raise  # not this token: the client was closed
        except InconsistentList:
            raise  # the detector is on so that this ends the informer
        except Exception as error:  # noqa: BLE001 - every failure leads to another round
            self._position.set_disconnected(True)
            self.failure = str(error)
            self._reason = _reason(error)
            self._report(error)
            return error
        return None

    def _list_and_watch(self, stop: StopToken) -> None:
        stop.raise_if_set()
        self._metrics.relist(self._reason)
        began = self._clock.monotonic()
        try:
            stream = self._fill(stop)
        finally:
            self._end_list(stop)
        self._listed(self._clock.monotonic() - began)
        self._watch_loop.run(stream, stop)

    def _end_list(self, stop: StopToken) -> None:
        with self._round_lock:
            self._is_listing = False
            requested = self._requested
            if requested is not None and is_at_least(self._position.resume_version, requested):
                self._requested = None
            again = self._requested is not None
        if again:
            stop.stop("relist requested")

    def _fill(self, stop: StopToken) -> Stream[T] | None:
        if self._streaming:
            stream = self._streaming_list.fill(stop)
            if stream is not None:
                return stream
        found = self._paged_list.fetch(stop)
        self._ingest.take_list(found)
        self._position.resume_from(found.version)
        return None

    def _listed(self, seconds: float) -> None:
        items = self._ingest.stored()
        self._metrics.listed(seconds, items)
        self.failure = ""
        if seconds > _SLOW_LIST:
            _log.info("list_was_slow", resource=self._kind, seconds=seconds, items=items)

    def _report(self, error: Exception) -> None:
        try:
            self._on_error(error)
        except Exception:  # noqa: BLE001 - user code; logged
            # User code must not end the reflector. The error that it was given is chained.
            _log.exception("watch_error_handler_failed", resource=self._kind)

    def _log_error(self, error: Exception) -> None:
        """Log an error at the level of its severity (RF-04)."""
        if isinstance(error, WatchExpired | Expired):
            _log.debug("watch_expired", resource=self._kind)
        elif isinstance(error, ShortWatch):
            _log.info("watch_ended_at_once", resource=self._kind)
        else:
            _log.error("list_and_watch_failed", resource=self._kind, error=str(error))


def _reason(error: Exception) -> RelistReason:
    if isinstance(error, WatchExpired | Expired):
        return RelistReason.EXPIRED
    return RelistReason.SHORT_WATCH if isinstance(error, ShortWatch) else RelistReason.FAILED
