"""What feeds a controller: its sources, from their start to their end."""

import threading
from collections.abc import Callable
from enum import Enum
from functools import partial

from navarchos import logs
from navarchos.clock import Clock
from navarchos.errors import AlreadyStopped
from navarchos.informers import SyncTimeout
from navarchos.runtime.reconciler import Request
from navarchos.runtime.sources import RequestQueue, Source
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["SourceGroup"]

_log = logs.get_logger(__name__)


class _State(Enum):
    """How far a source has come; the value is for errors."""

    NEW = ", which was not started"
    STARTING = ", whose start has not returned"
    SYNCING = ""
    SYNCED = ", which has synced"


class _Debounced:
    """Hands requests on after a while, so that those of a key collapse."""

    def __init__(self, add: Callable[..., None], seconds: float) -> None:
        self._add = add
        self._seconds = seconds

    def add(self, key: Request, *, priority: int = 0) -> None:
        """Queue a request for later."""
        self._add(key, after=self._seconds, priority=priority)


class _SourceState:
    """A source, and how far it has come."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.state = _State.NEW  # guarded by the intake's _changed


class SourceGroup:
    """The sources of one controller.

    Promises: each source is started once, whoever asks (CT-06), all at the same time
    (CT-04); a source that started is stopped once.

    Threads: every method is safe from any thread. One thread of its own for each
    source, until that has synced.

    Args:
        controller: For errors and names.
        add: Of the queue that is fed.
        debounce: Seconds by which requests are delayed.
        timeout: Seconds that sources may take to start and to feed what exists.
        clock: Time and waiting.
    """

    def __init__(
        self,
        controller: str,
        add: Callable[..., None],
        *,
        debounce: float,
        timeout: float,
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._requests: RequestQueue = _Debounced(add, debounce)
        self._timeout = timeout
        self._clock = clock
        self._stop = StopToken(clock=clock)
        self._threads = ThreadGroup(f"feed-{controller}", stop=self._stop, clock=clock)
        self._changed = threading.Condition(threading.Lock())
        self._feeds: list[_SourceState] = []  # guarded by _changed
        self._failure: Exception | None = None  # guarded by _changed
        self._begun = False  # guarded by _changed
        self._ended = False  # guarded by _changed

    def add(self, source: Source) -> None:
        """Take a source in; it starts with the others, or before this returns.

        Raises:
            AlreadyStopped: The controller has ended.
        """
        feed = _SourceState(source)
        with self._changed:
            self._raise_if_ended_locked()
            self._feeds.append(feed)
            begun = self._begun
        if begun:
            self._start(feed)
            self._threads.start(source.name, lambda: self._follow(feed))

    def begin(self) -> None:
        """Start every source, unless that has been done."""
        with self._changed:
            self._raise_if_ended_locked()
            if self._begun:
                return
            self._begun = True
            for feed in self._feeds:
                self._threads.start(feed.source.name, partial(self._feed, feed))

    def wait(self, stop: StopToken) -> None:
        """Wait until every source has fed what exists.

        Raises:
            SyncTimeout: Some have not in time; names them.
            Stopped: `stop` was set first.
        """
        deadline = self._clock.monotonic() + self._timeout
        withdraw = stop.on_stop(self._wake)
        try:
            with self._changed:
                while late := self._late_locked():
                    stop.raise_if_set()
                    left = deadline - self._clock.monotonic()
                    if left <= 0:
                        raise SyncTimeout(late)
                    self._clock.wait(self._changed, left)
        finally:
            withdraw()

    def stop(self) -> None:
        """Stop what was started and wait for it. A start that hangs is left behind."""
        with self._changed:
            if self._ended:
                return
            self._ended = True
            running = [
                feed.source for feed in self._feeds if feed.state in {_State.SYNCING, _State.SYNCED}
            ]
            hanging = [feed.source.name for feed in self._feeds if feed.state is _State.STARTING]
        self._stop.stop("the controller has ended")
        for source in running:
            source.stop()
        if hanging:
            _log.warning("sources_hang", controller=self._controller, sources=hanging)
        else:
            self._threads.join()

    def _feed(self, feed: _SourceState) -> None:
        try:
            self._start(feed)
            self._follow(feed)
        except AlreadyStopped:
            return
        except Exception as error:  # noqa: BLE001 - whoever waits for the sources raises it
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()

    def _start(self, feed: _SourceState) -> None:
        with self._changed:
            self._raise_if_ended_locked()
            feed.state = _State.STARTING
        feed.source.start(self._requests)
        with self._changed:
            feed.state = _State.SYNCING
            if not self._ended:
                return
        feed.source.stop()
        raise AlreadyStopped(f"controller {self._controller}")

    def _follow(self, feed: _SourceState) -> None:
        if feed.source.wait_for_sync(None, self._stop):
            with self._changed:
                feed.state = _State.SYNCED
                self._changed.notify_all()

    def _raise_if_ended_locked(self) -> None:
        if self._ended:
            raise AlreadyStopped(f"controller {self._controller}")

    def _late_locked(self) -> list[str]:
        if self._failure is not None:
            raise self._failure
        return [
            f"{feed.source.name} of controller {self._controller}{feed.state.value}"
            for feed in self._feeds
            if feed.state is not _State.SYNCED
        ]

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
