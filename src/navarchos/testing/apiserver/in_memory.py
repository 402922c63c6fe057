"""Requests without a network: the thread of the client serves them itself.

A client that waits for a watch waits on the server's clock and not on a socket. A `FakeClock`
can therefore see that all threads are waiting, and advance the time.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Final, assert_never
from urllib.parse import parse_qsl, unquote

from navarchos.client import ConnectFailed, HttpRequest, RequestTimeout
from navarchos.client.transport import BufferedResponse, Response
from navarchos.clock import Clock
from navarchos.errors import Stopped
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import faults, request_pipeline, requests, store
from navarchos.testing.apiserver import status as statuses

__all__ = ["InMemoryTransport", "InMemoryWatch", "ThreadWatchNotifier", "buffered", "read_request"]

_DEFAULT_DURATION: Final = 1800.0
"""Seconds that a watch without `timeoutSeconds` lasts: the shortest time that upstream draws."""


class ThreadWatchNotifier:
    """Wakes the in-memory watches of a kind when an object of the kind changes.

    Threads: safe from any thread. A thread that holds the lock takes no other lock of the
    server.
    """

    def __init__(self) -> None:
        self._watches_lock = threading.Lock()
        self._watches: dict[store.BucketId, set[InMemoryWatch]] = {}  # guarded by _watches_lock

    def on_change(self, change: store.Change) -> None:
        """Wake the watches of the kind that has changed."""
        with self._watches_lock:
            watches = tuple(self._watches.get(change.resource, ()))
        for watch in watches:
            watch.wake()

    def add(self, bucket: store.BucketId, watch: "InMemoryWatch") -> None:
        """Wake a watch from now on."""
        with self._watches_lock:
            self._watches.setdefault(bucket, set()).add(watch)

    def remove(self, bucket: store.BucketId, watch: "InMemoryWatch") -> None:
        """Undo `add`; may be repeated."""
        with self._watches_lock:
            self._watches.get(bucket, set()).discard(watch)


class InMemoryTransport:
    """Carries the requests of clients to a pipeline in this process.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        pipeline: request_pipeline.RequestPipeline,
        notifier: ThreadWatchNotifier,
        *,
        bookmark_interval: float,
        streaming: bool,
    ) -> None:
        self._pipeline = pipeline
        self._notifier = notifier
        self._bookmark_interval = bookmark_interval
        self._streaming = streaming

    def send(self, request: HttpRequest) -> Response:
        """Serve a request. The delay of a fault passes on the server's clock."""
        stop = StopToken() if request.stop is None else request.stop
        stop.raise_if_set()
        received = read_request(request)
        if request.fence is not None:
            request.fence()
        if len(received.body) > request_pipeline.MAX_BODY_BYTES:
            return buffered(request_pipeline.too_large_response())
        headers = [*request.headers.items(), *request.repeated]
        try:
            with self._one_at_a_time():
                accepted = self._pipeline.admit(received, headers)
        except statuses.StatusError as error:
            return buffered(request_pipeline.error_response(error))
        if accepted.delay and stop.wait(accepted.delay):
            self._pipeline.record(accepted, 0)
            raise Stopped(stop.reason or "stopped")
        try:
            with self._one_at_a_time():
                return self._serve(accepted, stop)
        except faults.ConnectionCut:
            self._pipeline.record(accepted, 0)
            raise ConnectFailed("a fault has cut the connection", sent=True) from None

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _one_at_a_time(self) -> AbstractContextManager[None]:
        """Serve one request at a time, as the event loop of the HTTP server does."""
        return self._pipeline.api.store.transaction()

    def _serve(self, accepted: request_pipeline.AcceptedRequest, stop: StopToken) -> Response:
        if accepted.call.verb != "watch":
            served = self._pipeline.respond(accepted)
            self._pipeline.record(accepted, served.status)
            return buffered(served)
        try:
            opened = self._pipeline.open_watch(accepted, streaming=self._streaming)
            interval = self._bookmark_interval
            return InMemoryWatch(
                self._pipeline,
                accepted,
                self._notifier,
                opened,
                bookmark_interval=interval if opened.lines.options.bookmarks else math.inf,
                stop=stop,
            )
        except faults.ConnectionCut:
            raise
        except Exception as error:  # noqa: BLE001 - an error of this server becomes a 500
            served = request_pipeline.failure_response(error, accepted.request)
            self._pipeline.record(accepted, served.status)
            return buffered(served)


class InMemoryWatch:
    """The response to a watch, as its client reads it.

    Threads: as for `navarchos.client.transport.Response`; `wake` is safe from any thread.
    """

    status: Final = 200
    is_outdated: Final = False

    def __init__(
        self,
        pipeline: request_pipeline.RequestPipeline,
        accepted: request_pipeline.AcceptedRequest,
        notifier: ThreadWatchNotifier,
        opened: request_pipeline.OpenedWatch,
        *,
        bookmark_interval: float,
        stop: StopToken,
    ) -> None:
        self.headers = _headers(opened.head)
        self._pipeline = pipeline
        self._accepted = accepted
        self._notifier = notifier
        self._lines = opened.lines
        self._bucket = opened.lines.bucket
        self._interval = bookmark_interval
        self._stop = stop
        self._clock: Clock = pipeline.api.store.clock
        self._faults = faults.StreamFaults(accepted.fault)
        self._changed = threading.Condition(threading.Lock())
        self._is_woken = False  # guarded by _changed
        self._ending: faults.StreamEnd | None = None
        self._is_closed = False
        now = self._clock.monotonic()
        self._end = now + (opened.lines.options.timeout or _DEFAULT_DURATION)
        self._bookmark_at = now + bookmark_interval
        first, self._cursor = self._lines.first_lines()
        self._parts: list[bytes | faults.StreamEnd] = [*self._faults.apply(first)]
        if self._cursor < 0:
            self._parts.append(faults.StreamEnd.END)
        notifier.add(self._bucket, self)
        self._remove_stop_listener = stop.on_stop(self.wake)

    def wake(self) -> None:
        """Make a waiting reader look for new lines. Takes only the lock of this watch."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def read(self) -> bytes:
        """Raise: the body of a watch has no end that a reader could wait for."""
        raise NotImplementedError

    def parts(self) -> Iterator[bytes]:
        """Raise: the body of a watch has no end that a reader could wait for."""
        raise NotImplementedError

    def read_some(self, timeout: float | None, *, batch: bool = False) -> bytes:
        """Return the next lines; wait until there are some."""
        deadline = math.inf if timeout is None else self._clock.monotonic() + timeout
        while True:
            with self._changed:
                self._is_woken = False  # a change from here on wakes the watch again
            if self._stop.is_set():
                raise Stopped(self._stop.reason or "stopped")
            if (part := self._next_part()) is not None:
                return part
            now = self._clock.monotonic()
            if now >= deadline:
                raise RequestTimeout("the watch was silent", sent=True)
            # A fault has stalled the watch: it waits until its reader gives up.
            due = math.inf if self._ending else min(self._bookmark_at, self._end)
            self._sleep(min(deadline, due) - now)

    def close(self) -> None:
        """End the watch; may be repeated."""
        self._remove_stop_listener()
        self._notifier.remove(self._bucket, self)
        if not self._is_closed:
            self._is_closed = True
            cut = self._ending in {faults.StreamEnd.CUT, faults.StreamEnd.HALF_CLOSE}
            self._pipeline.record(self._accepted, 0 if cut else self.status)

    def _next_part(self) -> bytes | None:
        """Return the next bytes, `b""` at the end, `None` if there are none yet."""
        if self._ending is None and not self._parts:
            self._fetch()
        if self._ending is None and self._parts:
            part = self._parts.pop(0)
            if isinstance(part, bytes):
                return part
            self._ending = part
        match self._ending:
            case None | faults.StreamEnd.STALL | faults.StreamEnd.STALL_WITHIN:
                return None
            case faults.StreamEnd.END:
                return b""
            case faults.StreamEnd.CUT | faults.StreamEnd.HALF_CLOSE:
                raise ConnectFailed("a fault has cut the connection", sent=True)
            case _:
                assert_never(self._ending)

    def _fetch(self) -> None:
        """Take the new lines of the log, and a bookmark when one is due."""
        lines, self._cursor = self._lines.lines_after(self._cursor)
        now = self._clock.monotonic()
        has_ended = self._cursor < 0 or now >= self._end
        has_bookmarks = self._interval < math.inf and self._cursor >= 0
        if has_bookmarks and now >= min(self._bookmark_at, self._end):
            lines.append(self._lines.bookmark())
            self._bookmark_at = now + self._interval
        self._parts = [*self._faults.apply(lines)]
        if has_ended:
            self._parts.append(faults.StreamEnd.END)

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            if not self._is_woken:
                self._clock.wait(self._changed, None if seconds == math.inf else seconds)


def read_request(request: HttpRequest) -> requests.Request:
    """Return a client's request as the server would read it from a connection."""
    path, _, query = request.target.partition("?")
    headers = {name.lower(): value for name, value in request.headers.items()}
    return requests.Request(
        request.method,
        unquote(path),
        dict(parse_qsl(query, keep_blank_values=True)),
        headers.get("accept", ""),
        headers.get("content-type", ""),
        request.body or b"",
        headers.get("user-agent", ""),
    )


def buffered(served: requests.ApiResponse) -> BufferedResponse:
    """Return a response of the server as a client gets it."""
    return BufferedResponse(served.status, _headers(served), served.body)


def _headers(served: requests.ApiResponse) -> dict[str, str]:
    headers = {name.lower(): value for name, value in served.headers.items()}
    if served.content_type:
        headers["content-type"] = served.content_type
    return headers
