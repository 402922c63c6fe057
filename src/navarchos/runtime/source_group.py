"""The sources of a controller, from their start to their end."""

import threading
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
from navarchos.workqueue import PriorityQueue

__all__ = ["SourceGroup"]

_log = logs.get_logger(__name__)


class _Stage(Enum):
    """How far a source has come; the value is the end of an error message."""

    NEW = ", which was not started"
    STARTING = ", whose start has not returned"
    SYNCING = ""
    SYNCED = ", which has synced"


class _Debounced:
    """Delays requests, so that several requests for the same key collapse."""

    def __init__(self, queue: PriorityQueue[Request], seconds: float) -> None:
        self._queue = queue
        self._seconds = seconds

    def add(self, key: Request, *, priority: int = 0) -> None:
        """Queue a request after the delay."""
        self._queue.add(key, after=self._seconds, priority=priority)


class _Member:
    """A source and its stage."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.stage = _Stage.NEW  # guarded by the group's _changed


class SourceGroup:
    """The sources of one controller.

    Promises: each source is started once (CT-06), all at the same time (CT-04); a source that
    started is stopped once.

    Threads: every method is safe from any thread. Each source has a separate thread until it
    has synced.

    Args:
        controller: For errors and thread names.
        queue: Where the requests go.
        debounce: Seconds by which requests are delayed; 0 for no delay.
        timeout: Seconds that sources may take to start and to deliver all existing objects.
        clock: Time and waiting.
    """

    def __init__(
        self,
        controller: str,
        queue: PriorityQueue[Request],
        *,
        debounce: float,
        timeout: float,
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._requests: RequestQueue = _Debounced(queue, debounce) if debounce else queue
        self._timeout = timeout
        self._clock = clock
        self._stop = StopToken(clock=clock)
        self._threads = ThreadGroup(f"source-{controller}", stop=self._stop, clock=clock)
        self._changed = threading.Condition(threading.Lock())
        self._members: list[_Member] = []  # guarded by _changed
        self._failure: Exception | None = None  # guarded by _changed
        self._started = False  # guarded by _changed
        self._ended = False  # guarded by _changed

    def add(self, source: Source) -> None:
        """Add a source; it starts with the others, or before this call returns.

        Raises:
            AlreadyStopped: The controller has ended.
        """
        member = _Member(source)
        with self._changed:
            self._raise_if_ended_locked()
            self._members.append(member)
            started = self._started
        if started:
            self._start_one(member)
            self._threads.start(source.name, lambda: self._follow(member))

    def start(self) -> None:
        """Start every source. Does nothing when called again."""
        with self._changed:
            self._raise_if_ended_locked()
            if self._started:
                return
            self._started = True
            for member in self._members:
                self._threads.start(member.source.name, partial(self._run, member))

    def wait(self, stop: StopToken) -> None:
        """Wait until every source has delivered all existing objects.

        Raises:
            SyncTimeout: Some sources have not in time; names them.
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
        """Stop the started sources and wait for them, but not for a start that hangs."""
        with self._changed:
            if self._ended:
                return
            self._ended = True
            running = [
                member.source
                for member in self._members
                if member.stage in {_Stage.SYNCING, _Stage.SYNCED}
            ]
            hanging = [
                member.source.name for member in self._members if member.stage is _Stage.STARTING
            ]
        self._stop.stop("the controller has ended")
        for source in running:
            source.stop()
        if hanging:
            _log.warning("sources_hang", controller=self._controller, sources=hanging)
        else:
            self._threads.join()

    def _run(self, member: _Member) -> None:
        try:
            self._start_one(member)
            self._follow(member)
        except AlreadyStopped:
            return
        except Exception as error:  # noqa: BLE001 - raised by `wait`
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()

    def _start_one(self, member: _Member) -> None:
        with self._changed:
            self._raise_if_ended_locked()
            member.stage = _Stage.STARTING
        member.source.start(self._requests)
        with self._changed:
            member.stage = _Stage.SYNCING
            if not self._ended:
                return
        member.source.stop()
        raise AlreadyStopped(f"controller {self._controller}")

    def _follow(self, member: _Member) -> None:
        if member.source.wait_for_sync(None, self._stop):
            with self._changed:
                member.stage = _Stage.SYNCED
                self._changed.notify_all()

    def _raise_if_ended_locked(self) -> None:
        if self._ended:
            raise AlreadyStopped(f"controller {self._controller}")

    def _late_locked(self) -> list[str]:
        if self._failure is not None:
            raise self._failure
        return [
            f"{member.source.name} of controller {self._controller}{member.stage.value}"
            for member in self._members
            if member.stage is not _Stage.SYNCED
        ]

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
