"""The reflector: list, watch, and begin again whenever history has a gap.

```text
  start ──> list ──────────> watch ──> watch ──> ...      a stream that ends is resumed
              ^  (streamed      │
              │   or in pages)  │  expired, refused, too short, asked to relist
              └──── pause <─────┘
```
"""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from navarchos.backoff import Backoff, BackoffTimer
from navarchos.client.errors import Expired, WatchExpired
from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.errors import Stopped
from navarchos.informers.errors import InconsistentList
from navarchos.informers.ingest import Ingest
from navarchos.informers.metrics import InformerMetrics
from navarchos.informers.paged_list import LastVersion, PagedList
from navarchos.informers.position import Staleness, is_at_least
from navarchos.informers.reflector_backoff import ReflectorBackoff
from navarchos.informers.scope import ScopedSource
from navarchos.informers.source import Stream
from navarchos.informers.streaming_list import ConsistencyDetector, StreamingList, detector_wanted
from navarchos.informers.watch_loop import ErrorTolerance, ShortWatch, WatchLoop
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion
from navarchos.stopping import StopToken

__all__ = ["REFLECTOR_BACKOFF", "Reflector", "WatchErrorHandler"]

T = TypeVar("T")

REFLECTOR_BACKOFF: Final = Backoff(base=0.8, factor=2.0, cap=30.0, jitter=1.0, reset_after=120.0)
"""The pause between rounds (RF-02)."""

WatchErrorHandler = Callable[[Exception], object]
"""Hears why a round ended, before the pause. Must be quick and must not raise."""

_SLOW_LIST: Final = 10.0

_log = get_logger(__name__)


class Reflector(Generic[T]):
    """Keeps an intake in step with the server until it is stopped.

    Promises: whatever happened in between, the intake ends up with the server's
    list; it never goes back in time as long as the server does not. Every stream
    that was opened is closed.

    Does not promise: every intermediate state, or any reaction to errors but a
    report and another try after a pause.

    Threads: `run` is for one thread, once; `relist` is safe from any.
    """

    def __init__(
        self,
        source: ScopedSource[T],
        ingest: Ingest[T],
        *,
        metrics: InformerMetrics,
        staleness: Staleness,
        streaming: bool = True,
        page_size: int | None = None,
        backoff: Backoff = REFLECTOR_BACKOFF,
        tolerate_internal_errors: float = 0.0,
        on_error: WatchErrorHandler | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rand: Callable[[], float] = uniform,
    ) -> None:
        self._resource = source.name
        self._ingest = ingest
        self._metrics = metrics
        self._staleness = staleness
        self._clock = clock
        self._streaming = streaming and source.streams_lists
        self._on_error = on_error or self._log_error
        self._pauses = ReflectorBackoff(source.name, BackoffTimer(backoff, clock=clock, rand=rand))
        self._last = LastVersion()
        self._list = PagedList(source, self._last, page_size=page_size, each=ingest.share)
        parts = (source, self._last, ingest)
        self._stream_list = StreamingList(
            *parts,
            pauses=self._pauses,
            clock=clock,
            detector=ConsistencyDetector(source) if detector_wanted() else None,
        )
        self._watching = WatchLoop(
            *parts,
            pauses=self._pauses,
            tolerance=ErrorTolerance(tolerate_internal_errors, clock=clock),
            staleness=staleness,
            metrics=metrics,
            clock=clock,
        )
        self._reason = "start"
        self._round_lock = threading.Lock()
        self._round: StopToken | None = None  # guarded by _round_lock; ends the present round
        self._asked: ResourceVersion | None = None  # guarded by _round_lock; for the next round
        self._is_listing = False  # guarded by _round_lock

    def run(self, stop: StopToken) -> None:
        """List and watch until the token is set. Blocks.

        Raises:
            Stopped: The client was closed before.
            InconsistentList: The detector was on, and found a difference.
        """
        try:
            while not stop.is_set():
                self._round_and_pause(self._begin(stop))
        finally:
            self._staleness.found()  # nobody is waiting for it any more

    def _round_and_pause(self, stop: StopToken) -> None:
        try:
            failure = self._try_round(stop)
            # The pause comes after the round, however it ended (RF-01); not before a
            # list that somebody waits for.
            if not stop.is_set():
                stop.wait(self._pauses.delay(failure))
        finally:
            stop.stop("the round is over")

    def relist(self, not_older_than: ResourceVersion) -> None:
        """List again: now, or after the list that is under way, if that is too old.

        A list under way is never cut short. Otherwise many who ask, one after the
        other, could keep every list from its end.

        Args:
            not_older_than: The version that the list has to contain.
        """
        with self._round_lock:
            if self._asked is None or is_at_least(not_older_than, self._asked) is not False:
                self._asked = not_older_than
            present = None if self._is_listing else self._round
        if present is not None:
            present.stop("relist asked for")

    def _begin(self, stop: StopToken) -> StopToken:
        with self._round_lock:
            self._round = stop.child()
            self._is_listing = True
            asked, self._asked = self._asked, None
            if asked is not None:
                self._last.listed(asked)
                self._reason = "catch_up"
            return self._round

    def _try_round(self, stop: StopToken) -> Exception | None:
        """List and watch; return what ended it, unless it was the token."""
        try:
            self._list_and_watch(stop)
        except Stopped:
            if not stop.is_set():
                raise  # not ours: the client was closed
        except InconsistentList:
            raise  # whoever turned the detector on wants to know
        except Exception as error:  # noqa: BLE001 - every failure leads to another round
            self._staleness.lost()
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
        self._watching.follow(stream, stop)

    def _end_list(self, stop: StopToken) -> None:
        with self._round_lock:
            self._is_listing = False
            if self._asked is not None and is_at_least(self._last.value, self._asked):
                self._asked = None
            again = self._asked is not None
        if again:
            stop.stop("relist asked for")

    def _fill(self, stop: StopToken) -> Stream[T] | None:
        if self._streaming:
            stream = self._stream_list.fill(stop)
            if stream is not None:
                return stream
        found = self._list.fetch(stop)
        self._ingest.take_list(found)
        self._last.listed(found.version)
        return None

    def _listed(self, seconds: float) -> None:
        items = self._ingest.stored()
        self._metrics.listed(seconds, items)
        self._metrics.seen(self._last.value)
        if seconds > _SLOW_LIST:
            _log.info("list_was_slow", resource=self._resource, seconds=seconds, items=items)

    def _report(self, error: Exception) -> None:
        try:
            self._on_error(error)
        except Exception:  # noqa: BLE001 - foreign code; logged
            # Foreign code must not end the reflector; what it missed is chained.
            _log.exception("watch_error_handler_failed", resource=self._resource)

    def _log_error(self, error: Exception) -> None:
        """Report as loudly as it matters (RF-04)."""
        if isinstance(error, WatchExpired | Expired):
            _log.debug("watch_expired", resource=self._resource)
        elif isinstance(error, ShortWatch):
            _log.info("watch_ended_at_once", resource=self._resource)
        else:
            _log.error("list_and_watch_failed", resource=self._resource, why=str(error))


def _reason(error: Exception) -> str:
    if isinstance(error, WatchExpired | Expired):
        return "expired"
    return "short_watch" if isinstance(error, ShortWatch) else "failed"
