"""The API server of a model run: the real handlers, called directly instead of over HTTP.

Requests of the operator's client arrive here as they would at a socket, and the same code
answers them as over HTTP. Only waiting differs: a request takes virtual time, a watch
without news lets other threads run, and a `Trouble` decides on faults.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol
from urllib.parse import parse_qsl

from tests.model.scheduling import Process, Scheduler

from navarchos.client import ConnectFailed, HttpRequest, RequestTimeout
from navarchos.client.transport import BufferedResponse
from navarchos.errors import Stopped
from navarchos.stopping import StopToken
from navarchos.testing.apiserver.access import AccessControl
from navarchos.testing.apiserver.builtin import builtin_kinds
from navarchos.testing.apiserver.custom import CustomKinds
from navarchos.testing.apiserver.garbage_collector import GarbageCollector
from navarchos.testing.apiserver.handler import ApiCall, route, serve
from navarchos.testing.apiserver.in_memory import buffered, read_request
from navarchos.testing.apiserver.kinds import Kinds
from navarchos.testing.apiserver.objects import encode
from navarchos.testing.apiserver.request_pipeline import error_response
from navarchos.testing.apiserver.requests import ApiResponse, Request, negotiate, read_list_options
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.store import BucketId, Change, ObjectStore
from navarchos.testing.apiserver.watches import WatchLines
from navarchos.testing.apiserver.writes import Api, WriteOptions, create

__all__ = ["Connection", "Cut", "Lost", "Server", "TooSlow", "Trouble"]

JsonObject = dict[str, Any]

_BOOKMARKS: Final = 60.0


class Cut(Exception):
    """The connection breaks before the request is served."""


class Lost(Exception):
    """The connection breaks after the request was served."""


class TooSlow(Exception):
    """The answer does not arrive in time."""


class Trouble(Protocol):
    """Decides which faults the requests of a process meet."""

    def leaving(self, process: Process, call: ApiCall) -> None:
        """See a request that leaves its process. It may still fail to arrive."""
        ...

    def before(self, process: Process, call: ApiCall, asked: Request) -> None:
        """See a request that is about to be served.

        Raises:
            StatusError: It is refused.
            Cut: It does not arrive.
            TooSlow: It does not arrive, without any sign of it.
            Killed: Its process dies.
        """
        ...

    def after(self, process: Process, call: ApiCall) -> None:
        """See a request that has been served, before its answer arrives.

        Raises:
            Lost: The answer does not arrive.
            TooSlow: It comes too late.
            Killed: The process dies before it sees the answer.
        """
        ...

    def latency(self) -> float:
        """Return the seconds that half a request takes."""
        ...

    def held_until(self, process: Process, resource: str) -> float:
        """Return the time until which a watch delivers nothing, in the scheduler's seconds."""
        ...


class Server:
    """Objects, kinds and the garbage collector, in virtual time.

    Threads: only the thread that currently runs.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        definitions: Sequence[JsonObject],
        make_uid: Callable[[], str],
    ) -> None:
        self.scheduler = scheduler
        self.store = ObjectStore(clock=_StoreClock(scheduler))
        self.kinds = Kinds(builtin_kinds())
        self.api = Api(self.store, self.kinds, AccessControl(self.store, rbac=False), make_uid)
        self.collector = GarbageCollector(self.api)
        self.has_garbage = False
        self._watches: dict[BucketId, dict[_WatchAnswer, None]] = {}
        self.store.subscribe(CustomKinds(self.store, self.kinds).on_change)
        self.store.subscribe(self._on_change)
        for name in ("default", "kube-system"):
            self.install({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.install(*definitions)

    def install(self, *manifests: Mapping[str, Any]) -> None:
        """Create objects with the given identity and status, as the cluster itself does."""
        for manifest in manifests:
            kind = self.kinds.by_kind(manifest["apiVersion"], manifest["kind"])
            assert kind is not None
            namespace = manifest["metadata"].get("namespace", "default") if kind.namespaced else ""
            options = WriteOptions(field_validation="Strict", keep_status=True)
            create(self.api, kind, namespace, dict(manifest), options)

    def request(
        self, method: str, path: str, body: Any = None, *, agent: str = "user"
    ) -> ApiResponse:
        """Serve a request at once. A refusal is returned as a response too."""
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        raw = b"" if body is None else encode(body)
        bare, _, query = path.partition("?")
        request = Request(method, bare, dict(parse_qsl(query)), "", content, raw, agent)
        try:
            return serve(self.api, route(self.api, request), request)
        except StatusError as error:
            return ApiResponse(error.code, encode(error.to_json()))

    def collect(self) -> None:
        """Run the garbage collector."""
        self.has_garbage = False
        self.collector.collect()

    def list(self, plural: str, group: str = "") -> list[JsonObject]:
        """Return the stored objects of a kind. Read-only."""
        return [entry.obj for entry in self.store.entries(BucketId(plural, group), "")]

    def find(self, plural: str, name: str, group: str = "") -> JsonObject | None:
        """Return a stored cluster-scoped object. Read-only."""
        entry = self.store.get(BucketId(plural, group), name)
        return None if entry is None else entry.obj

    def break_watches(self, process: Process, chosen: Callable[[], bool]) -> None:
        """Cut some watches of a process."""
        for watches in self._watches.values():
            for watch in list(watches):
                if watch.process is process and chosen():
                    watch.cut()

    def wake_watches(self) -> None:
        """Let watches deliver their delayed events at once."""
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()

    def opened(self, bucket: BucketId, watch: "_WatchAnswer") -> None:
        """Deliver the changes of a kind to a watch from now on."""
        self._watches.setdefault(bucket, {})[watch] = None

    def closed(self, bucket: BucketId, watch: "_WatchAnswer") -> None:
        """Undo `opened`."""
        self._watches.get(bucket, {}).pop(watch, None)

    def _on_change(self, change: Change) -> None:
        self.has_garbage = self.collector.on_change(change) or self.has_garbage
        for watch in self._watches.get(change.resource, {}):
            watch.wake()


class _StoreClock:
    """The clock of the server."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.now = scheduler.now
        self.wait = scheduler.wait
        self._scheduler = scheduler

    def monotonic(self) -> float:
        return self._scheduler.seconds


class Connection:
    """The transport of one process.

    Attributes:
        writes_under_way: The number of writes that have not ended.
        unanswered_until: The end of the longest wait for an answer that never comes.
    """

    def __init__(self, server: Server, process: Process, trouble: Trouble) -> None:
        self._server = server
        self._process = process
        self._trouble = trouble
        self.unanswered_until = 0.0
        self.writes_under_way = 0

    def send(self, request: HttpRequest) -> "BufferedResponse | _WatchAnswer":
        """Serve a request after some time."""
        asked = read_request(request)
        if request.fence is not None:
            request.fence()
        is_write = asked.method != "GET"
        self.writes_under_way += is_write
        try:
            return self._serve(request, asked)
        finally:
            self.writes_under_way -= is_write

    def close(self) -> None:
        """Do nothing, because there are no connections."""

    def _serve(self, request: HttpRequest, asked: Request) -> "BufferedResponse | _WatchAnswer":
        call = _routed(self._server.api, asked)
        if isinstance(call, StatusError):
            return buffered(error_response(call))
        self._trouble.leaving(self._process, call)
        self._pause(request.stop)
        try:
            self._trouble.before(self._process, call, asked)
            if call.verb == "watch":
                return self._watch(call, asked, request)
            answer = serve(self._server.api, call, asked)
        except Cut:
            raise ConnectFailed("cut by the model", sent=False) from None
        except TooSlow:
            self._wait_in_vain(request)
        except StatusError as error:
            return buffered(error_response(error))
        try:
            self._trouble.after(self._process, call)
        except Lost:
            raise ConnectFailed("lost by the model", sent=True) from None
        except TooSlow:
            self._wait_in_vain(request)
        self._pause(request.stop)
        return buffered(answer)

    def _wait_in_vain(self, request: HttpRequest) -> NoReturn:
        seconds = request.timeout or 30.0
        scheduler = self._server.scheduler
        self.unanswered_until = max(self.unanswered_until, scheduler.seconds + seconds)
        scheduler.sleep(seconds)
        raise RequestTimeout("too slow in the model", sent=True) from None

    def _pause(self, stop: StopToken | None) -> None:
        self._server.scheduler.sleep(self._trouble.latency())
        if stop is not None and stop.is_set():
            raise Stopped(stop.reason or "stopped")

    def _watch(self, call: ApiCall, asked: Request, request: HttpRequest) -> "_WatchAnswer":
        assert call.target is not None
        options = read_list_options(asked.query, call.target.kind)
        lines = WatchLines(
            self._server.api,
            call.target,
            options,
            negotiate(asked.accept, kind=call.target.kind, forms=(), of_list=True),
            streaming=True,
        )
        return _WatchAnswer(
            self._server,
            self._process,
            self._trouble,
            lines,
            bucket=call.target.kind.bucket,
            stop=request.stop,
        )


class _WatchAnswer:
    """The response to a watch: delivers changes when the trouble allows it."""

    status: Final = 200
    headers: Final[Mapping[str, str]] = {}
    is_outdated: Final = False

    def __init__(
        self,
        server: Server,
        process: Process,
        trouble: Trouble,
        lines: WatchLines,
        *,
        bucket: BucketId,
        stop: StopToken | None,
    ) -> None:
        self.process = process
        self._server = server
        self._trouble = trouble
        self._lines = lines
        self._bucket = bucket
        self._stop = stop
        self._changed = threading.Condition(threading.Lock())
        self._first, self._cursor = lines.first_lines()
        self._is_cut = False
        self._bookmark_at = server.scheduler.seconds + _BOOKMARKS
        self._withdraw = stop.on_stop(self.wake) if stop is not None else _nothing
        server.opened(bucket, self)

    def wake(self) -> None:
        """Check for new events."""
        with self._changed:
            self._changed.notify_all()

    def cut(self) -> None:
        """Break the connection."""
        self._is_cut = True
        self.wake()

    def read(self) -> bytes:
        """Fail, because a watch has no end."""
        raise NotImplementedError

    def parts(self) -> Iterator[bytes]:
        """Fail, because a watch has no end."""
        raise NotImplementedError

    def read_some(self, timeout: float | None, *, batch: bool = False) -> bytes:
        """Return the next lines."""
        scheduler = self._server.scheduler
        deadline = None if timeout is None else scheduler.seconds + timeout
        while True:
            if self._stop is not None and self._stop.is_set():
                raise Stopped(self._stop.reason or "stopped")
            if self._is_cut:
                raise ConnectFailed("the watch was cut by the model", kept=True, sent=True)
            if self._first:
                first, self._first = self._first, []
                return b"".join(first)
            if self._cursor < 0:
                return b""
            held = self._trouble.held_until(self.process, self._bucket.plural)
            if scheduler.seconds >= held and (lines := self._next()):
                return b"".join(lines)
            if deadline is not None and scheduler.seconds >= deadline:
                raise RequestTimeout("silence")
            wake_at = max(held, self._bookmark_at)
            if held > scheduler.seconds:
                wake_at = held
            if deadline is not None:
                wake_at = min(wake_at, deadline)
            with self._changed:
                scheduler.wait(self._changed, max(0.001, wake_at - scheduler.seconds))

    def close(self) -> None:
        """End the watch."""
        self._withdraw()
        self._server.closed(self._bucket, self)

    def _next(self) -> list[bytes]:
        lines, self._cursor = self._lines.lines_after(self._cursor)
        now = self._server.scheduler.seconds
        if self._cursor >= 0 and now >= self._bookmark_at:
            lines.append(self._lines.bookmark())
            self._bookmark_at = now + _BOOKMARKS
        return lines


def _routed(api: Api, asked: Request) -> ApiCall | StatusError:
    try:
        return route(api, asked)
    except StatusError as error:
        return error


def _nothing() -> None:
    pass
