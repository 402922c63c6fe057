"""The HTTP side: connections, streams, faults, and the record of requests."""

import asyncio
import ssl
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from aiohttp import web

from navarchos.logs import get_logger
from navarchos.testing.apiserver.access.users import User
from navarchos.testing.apiserver.faults import Fault, Faults
from navarchos.testing.apiserver.handler import Call, Request, route, serve
from navarchos.testing.apiserver.listening import Listener
from navarchos.testing.apiserver.objects import encode
from navarchos.testing.apiserver.requests import Answer, negotiate, read_list_options, with_warnings
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.striking import Cut, FaultyStream, asked_by, strike
from navarchos.testing.apiserver.watching import WakeHub, Watch
from navarchos.testing.apiserver.writing import Api

__all__ = ["AuditRecord", "HttpFrontend", "Record"]

_LARGEST_BODY: Final = 3 * 1024 * 1024
_AUDIT_LENGTH: Final = 10_000
_SHUTDOWN: Final = 0.2
_VERBS: Final = (
    "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "evict",
)  # fmt: skip
_WATCH_FORMS: Final = ("Table", "PartialObjectMetadata")

_log = get_logger(__name__)


class AuditRecord(NamedTuple):
    """One request and its outcome; `code` is 0 when the connection was cut."""

    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user_agent: str
    code: int


class Record:
    """Counts and the latest requests.

    Threads: safe from any thread.
    """

    def __init__(self) -> None:
        self._record_lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()  # verb, agent; guarded by _record_lock
        self._audit: deque[AuditRecord] = deque(maxlen=_AUDIT_LENGTH)  # guarded by _record_lock

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests on resources by verb; every verb is there."""
        return self.requests_by("")

    def requests_by(self, agent: str) -> Mapping[str, int]:
        """Those of clients whose user agent begins like this; every verb is there."""
        found = dict.fromkeys(_VERBS, 0)
        with self._record_lock:
            for (verb, user_agent), count in self._counts.items():
                if user_agent.startswith(agent):
                    found[verb] += count
        return found

    @property
    def audit(self) -> Sequence[AuditRecord]:
        """The latest requests on resources, oldest first."""
        with self._record_lock:
            return tuple(self._audit)

    def count(self, call: Call, user_agent: str) -> None:
        """Count a request as it begins."""
        if call.target is not None:
            with self._record_lock:
                self._counts[call.verb, user_agent] += 1

    def add(self, call: Call, user_agent: str, code: int) -> None:
        """Keep a request that has been answered."""
        target = call.target
        if target is None:
            return
        record = AuditRecord(
            call.verb, call.resource, target.subresource, target.namespace,
            target.name or call.selected, user_agent, code,
        )  # fmt: skip
        with self._record_lock:
            self._audit.append(record)


class HttpFrontend:
    """Serves one API on the running event loop.

    Threads: the event loop's only.
    """

    def __init__(
        self,
        api: Api,
        hub: WakeHub,
        *,
        record: Record,
        faults: Faults,
        bookmark_interval: float,
        streaming: bool,
    ) -> None:
        self._api = api
        self._hub = hub
        self._record = record
        self._faults = faults
        self._bookmark_interval = bookmark_interval
        self._streaming = streaming
        self._stopping = asyncio.Event()
        self._server: web.Server | None = None
        self._listener: Listener | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port."""
        self._server = web.Server(
            self._handle, handler_cancellation=True, request_factory=self._request, access_log=None
        )
        self._listener = Listener(self._server, host, port, tls)
        return self._listener.port

    async def stop(self) -> None:
        """End open watches properly, then close all connections."""
        self._stopping.set()
        self._hub.close()
        if self._server is None or self._listener is None:
            return
        await self._listener.stop()
        self._server.pre_shutdown()
        await self._server.shutdown(_SHUTDOWN)
        # Handlers that were cancelled end in tasks of their own.
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        await self._listener.abort()

    @staticmethod
    def _request(
        message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY
        )

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        try:
            request = await _read(raw)
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {_LARGEST_BODY}"
            return _respond(_refusal(StatusError(413, "RequestEntityTooLarge", message)))
        try:
            admitted = self._admit(raw, request)
            call = route(self._api, request)
        except StatusError as error:
            return _respond(_refusal(error))
        self._record.count(call, request.user_agent)
        if isinstance(admitted, StatusError):
            self._record.add(call, request.user_agent, admitted.code)
            return _respond(_refusal(admitted))
        request = replace(request, user=admitted)
        try:
            response, code = await self._serve(raw, request, call)
        except Cut:
            _cut(raw)
            response, code = web.Response(), 0
        except ConnectionError:
            # Clients may leave at any time: in the head, in a watch, at its end.
            _log.debug("client_left", verb=call.verb, resource=call.resource)
            response, code = web.Response(), 0
        self._record.add(call, request.user_agent, code)
        return response

    def _admit(self, raw: web.BaseRequest, request: Request) -> User | StatusError:
        """Return who asks, or why that may not be; known requests are recorded either way.

        Raises:
            StatusError: 401 or 403, for a path that nobody could ask for.
        """
        access, headers = self._api.access, raw.headers.items()
        try:
            return access.admit(request.method, request.path, request.query, headers)
        except StatusError as refusal:
            try:
                route(self._api, request)
            except StatusError:
                raise refusal from None  # nobody learns here what is served
            return refusal

    async def _serve(
        self, raw: web.BaseRequest, request: Request, call: Call
    ) -> tuple[web.StreamResponse, int]:
        api, fault = self._api, None
        if self._faults.is_armed:
            fault = self._faults.take(asked_by(call, request))
        try:
            if fault is not None:
                api = await strike(fault, api, call, request)
            if call.verb == "watch":
                return await self._watch(raw, request, call, fault), 200
            answer = serve(api, call, request)
        except StatusError as error:
            answer = _refusal(error)
        except (Cut, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours is an answer, too
            _log.exception("request_failed", method=request.method, path=request.path)
            message = f"Internal error occurred: {error!r}"
            answer = _refusal(StatusError(500, "InternalError", message))
        if fault is not None and fault.lose_answer:
            raise Cut
        return _respond(answer), answer.status

    async def _watch(
        self, raw: web.BaseRequest, request: Request, call: Call, fault: Fault | None
    ) -> web.StreamResponse:
        assert call.target is not None
        watch = Watch(
            self._api,
            self._hub,
            call.target,
            read_list_options(request.query, call.target.kind),
            negotiate(request.accept, kind=call.target.kind, forms=_WATCH_FORMS, of_list=True),
            bookmark_interval=self._bookmark_interval,
            streaming=self._streaming,
        )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(raw)
        stream = FaultyStream(raw, response, fault, self._stopping)
        async with aclosing(watch.lines()) as batches:
            async for batch in batches:
                if not await stream.send(batch):
                    break
        await response.write_eof()
        return response


async def _read(raw: web.BaseRequest) -> Request:
    return Request(
        method=raw.method,
        path=unquote(raw.rel_url.raw_path),
        query=raw.query,
        accept=raw.headers.get("Accept", ""),
        content_type=raw.headers.get("Content-Type", ""),
        body=await raw.read() if raw.can_read_body else b"",
        user_agent=raw.headers.get("User-Agent", ""),
    )


def _refusal(error: StatusError) -> Answer:
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
    answer = Answer(error.code, encode(error.to_json()), headers=headers)
    return with_warnings(answer, error.warnings)


def _respond(answer: Answer) -> web.Response:
    headers = {"Content-Type": answer.content_type, **answer.headers}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


def _cut(raw: web.BaseRequest) -> None:
    """Reset the connection rather than close it: the client sees an error, not an end."""
    if raw.transport is not None:
        raw.transport.abort()
