"""Requests without a network: served on the thread that asks.

Whatever waits here waits in the server's clock and not in a socket, so a `FakeClock`
knows when everything has come to rest, and can move time.
"""

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final
from urllib.parse import parse_qsl, unquote

from navarchos.client import ConnectFailed, HttpRequest, RequestTimeout
from navarchos.client.transport import BufferedResponse, Response
from navarchos.clock import Clock
from navarchos.errors import Stopped
from navarchos.stopping import StopToken
from navarchos.testing.apiserver.faults import ConnectionCut, StreamEnd, StreamFaults
from navarchos.testing.apiserver.handler import Request
from navarchos.testing.apiserver.request_pipeline import (
    MAX_BODY_BYTES,
    AcceptedRequest,
    RequestPipeline,
    error_response,
    failure_response,
    too_large_response,
)
from navarchos.testing.apiserver.requests import Response as Served
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.store import BucketId, Change
from navarchos.testing.apiserver.watches import WatchLines

__all__ = ["InMemoryTransport", "ThreadWatchNotifier", "buffered", "read_request"]

_DEFAULT_DURATION: Final = 1800.0
"""How long a watch without `timeoutSeconds` lasts: the shortest time that upstream draws."""


class ThreadWatchNotifier:
    """Tells watches that their kind has changed.

    Threads: safe from any thread. Nobody who holds its lock asks the server anything.
    """

    def __init__(self) -> None:
        self._watches_lock = threading.Lock()
        self._watches: dict[BucketId, set[InMemoryWatch]] = {}  # guarded by _watches_lock

    def on_change(self, change: Change) -> None:
        """Wake the watches of the kind that has changed."""
        with self._watches_lock:
            watches = tuple(self._watches.get(change.resource, ()))
        for watch in watches:
            watch.wake()

    def add(self, bucket: BucketId, watch: "InMemoryWatch") -> None:
        """Wake a watch from now on."""
        with self._watches_lock:
            self._watches.setdefault(bucket, set()).add(watch)

    def remove(self, bucket: BucketId, watch: "InMemoryWatch") -> None:
        """Undo `add`; harmless when repeated."""
        with self._watches_lock:
            self._watches.get(bucket, set()).discard(watch)


class InMemoryTransport:
    """Carries requests to a reception in this process.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        pipeline: RequestPipeline,
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
        """Have a request served; a fault's delay passes in the server's clock."""
        stop = StopToken() if request.stop is None else request.stop
        stop.raise_if_set()
        received = read_request(request)
        if request.fence is not None:
            request.fence()
        if len(received.body) > MAX_BODY_BYTES:
            return buffered(too_large_response())
        headers = [*request.headers.items(), *request.repeated]
        try:
            with self._one_at_a_time():
                accepted = self._pipeline.admit(received, headers)
        except StatusError as error:
            return buffered(error_response(error))
        if accepted.delay and stop.wait(accepted.delay):
            self._pipeline.close(accepted, 0)
            raise Stopped(stop.reason or "stopped")
        try:
            with self._one_at_a_time():
                return self._serve(accepted, stop)
        except ConnectionCut:
            self._pipeline.close(accepted, 0)
            raise ConnectFailed("a fault has cut the connection", sent=True) from None

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _one_at_a_time(self) -> AbstractContextManager[None]:
        """Let one request be served at a time, as the event loop does."""
        return self._pipeline.api.store.transaction()

    def _serve(self, accepted: AcceptedRequest, stop: StopToken) -> Response:
        try:
            if accepted.call.verb == "watch":
                return self._watch(accepted, stop)
            answer = self._pipeline.answer(accepted)
        except ConnectionCut:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours is an answer, too
            answer = failure_response(error, accepted.request)
        if accepted.fault is not None and accepted.fault.lose_answer:
            raise ConnectionCut
        self._pipeline.close(accepted, answer.status)
        return buffered(answer)

    def _watch(self, accepted: AcceptedRequest, stop: StopToken) -> "InMemoryWatch":
        head, lines = self._pipeline.watch(accepted, streaming=self._streaming)
        options = lines.options
        return InMemoryWatch(
            self._pipeline,
            accepted,
            self._notifier,
            _headers(head),
            lines,
            duration=options.timeout or _DEFAULT_DURATION,
            bookmark_interval=self._bookmark_interval if options.bookmarks else math.inf,
            stop=stop,
        )


class InMemoryWatch:
    """The answer to a watch, as its client reads it.

    Threads: as for `navarchos.client.transport.Response`; `wake` is for any.
    """

    status: Final = 200
    is_outdated: Final = False

    def __init__(
        self,
        pipeline: RequestPipeline,
        accepted: AcceptedRequest,
        notifier: ThreadWatchNotifier,
        headers: Mapping[str, str],
        lines: WatchLines,
        *,
        duration: float,
        bookmark_interval: float,
        stop: StopToken,
    ) -> None:
        self.headers = headers
        self._pipeline = pipeline
        self._case = accepted
        self._notifier = notifier
        self._lines = lines
        self._bucket = lines.bucket
        self._interval = bookmark_interval
        self._stop = stop
        self._clock: Clock = pipeline.api.store.clock
        self._faults = StreamFaults(accepted.fault)
        self._changed = threading.Condition(threading.Lock())
        self._is_woken = False  # guarded by _changed
        self._ending: StreamEnd | None = None
        self._is_closed = False
        now = self._clock.monotonic()
        self._end = now + duration
        self._bookmark_at = now + bookmark_interval
        first, self._cursor = lines.first_lines()
        self._parts: list[bytes | StreamEnd] = [*self._faults.apply(first)]
        if self._cursor < 0:
            self._parts.append(StreamEnd.END)
        notifier.add(self._bucket, self)
        self._remove_stop_listener = stop.on_stop(self.wake)

    def wake(self) -> None:
        """Look whether there is something to tell. Takes no lock but its own."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def read(self) -> bytes:
        """Refuse: a watch is read as it comes."""
        raise NotImplementedError

    def parts(self) -> Iterator[bytes]:
        """Refuse: a watch is read as it comes."""
        raise NotImplementedError

    def read_some(self, timeout: float | None, *, gather: bool = False) -> bytes:
        """Return the next lines, waiting until there are some."""
        deadline = math.inf if timeout is None else self._clock.monotonic() + timeout
        while True:
            with self._changed:
                self._is_woken = False  # what comes from here on wakes again
            if self._stop.is_set():
                raise Stopped(self._stop.reason or "stopped")
            if (part := self._next_part()) is not None:
                return part
            now = self._clock.monotonic()
            if now >= deadline:
                raise RequestTimeout("the watch was silent", sent=True)
            # A watch that a fault has silenced waits for its reader to give up.
            due = math.inf if self._ending else min(self._bookmark_at, self._end)
            self._sleep(min(deadline, due) - now)

    def close(self) -> None:
        """End the watch; harmless when repeated."""
        self._remove_stop_listener()
        self._notifier.remove(self._bucket, self)
        if not self._is_closed:
            self._is_closed = True
            self._pipeline.close(self._case, 0 if self._is_cut else self.status)

    @property
    def _is_cut(self) -> bool:
        return self._ending in {StreamEnd.CUT, StreamEnd.HALF_CLOSE}

    def _next_part(self) -> bytes | None:
        """Return the next bytes, `b""` at the end, `None` if there are none yet."""
        if self._ending is None and not self._parts:
            self._fetch()
        if self._ending is None and self._parts:
            part = self._parts.pop(0)
            if isinstance(part, bytes):
                return part
            self._ending = part
        if self._is_cut:
            raise ConnectFailed("a fault has cut the connection", sent=True)
        return b"" if self._ending is StreamEnd.END else None

    def _fetch(self) -> None:
        """Take what the log has, and a bookmark when one is due."""
        lines, self._cursor = self._lines.lines_after(self._cursor)
        now = self._clock.monotonic()
        has_ended = self._cursor < 0 or now >= self._end
        is_marked = self._interval < math.inf and self._cursor >= 0
        if is_marked and now >= min(self._bookmark_at, self._end):
            lines.append(self._lines.bookmark())
            self._bookmark_at = now + self._interval
        self._parts = [*self._faults.apply(lines)]
        if has_ended:
            self._parts.append(StreamEnd.END)

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            if not self._is_woken:
                self._clock.wait(self._changed, None if seconds == math.inf else seconds)


def read_request(request: HttpRequest) -> Request:
    """Return what a client sends as the server reads it off a connection."""
    path, _, query = request.target.partition("?")
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Request(
        request.method,
        unquote(path),
        dict(parse_qsl(query, keep_blank_values=True)),
        headers.get("accept", ""),
        headers.get("content-type", ""),
        request.body or b"",
        headers.get("user-agent", ""),
    )


def buffered(answer: Served) -> BufferedResponse:
    """Return what the server answers as a client has it."""
    return BufferedResponse(answer.status, _headers(answer), answer.body)


def _headers(answer: Served) -> dict[str, str]:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    if answer.content_type:
        headers["content-type"] = answer.content_type
    return headers
