"""The HTTP side: connections, streams, faults, and the record of requests."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from aiohttp import web

from navarchos.logs import get_logger
from navarchos.testing.apiserver.faults import Fault, Faults
from navarchos.testing.apiserver.handler import Call, Request, route, serve
from navarchos.testing.apiserver.objects import encode
from navarchos.testing.apiserver.requests import Answer, negotiate, read_list_options, with_warnings
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.watching import WakeHub, Watch
from navarchos.testing.apiserver.writing import Api

__all__ = ["AuditRecord", "HttpFrontend", "Record"]

_LARGEST_BODY: Final = 3 * 1024 * 1024
_AUDIT_LENGTH: Final = 10_000
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
            call.verb, call.resource, target.subresource, target.namespace, target.name,
            user_agent, code,
        )  # fmt: skip
        with self._record_lock:
            self._audit.append(record)


class _Cut(Exception):
    """The connection is to be cut without an answer."""


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
        self._runner: web.ServerRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        server = web.Server(
            self._handle, handler_cancellation=True, request_factory=self._request, access_log=None
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=1024)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """End open watches properly, then close all connections."""
        self._stopping.set()
        self._hub.close()
        if self._runner is not None:
            await self._runner.cleanup()

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
            call = route(self._api, request)
        except StatusError as error:
            return _respond(_refusal(error))
        self._record.count(call, request.user_agent)
        try:
            response, code = await self._serve(raw, request, call)
        except _Cut:
            _cut(raw)
            response, code = web.Response(), 0
        except ConnectionError:
            # Clients may leave at any time: in the head, in a watch, at its end.
            _log.debug("client_left", verb=call.verb, resource=call.resource)
            response, code = web.Response(), 0
        self._record.add(call, request.user_agent, code)
        return response

    async def _serve(
        self, raw: web.BaseRequest, request: Request, call: Call
    ) -> tuple[web.StreamResponse, int]:
        try:
            fault = self._faults.take(call.verb, call.resource, call.name, request.user_agent)
            if fault is not None:
                await self._suffer(fault)
            if call.verb == "watch":
                return await self._watch(raw, request, call, fault), 200
            answer = serve(self._api, call, request)
        except StatusError as error:
            answer = _refusal(error)
        except (_Cut, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours is an answer, too
            _log.exception("request_failed", method=request.method, path=request.path)
            message = f"Internal error occurred: {error!r}"
            answer = _refusal(StatusError(500, "InternalError", message))
        return _respond(answer), answer.status

    async def _suffer(self, fault: Fault) -> None:
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.reset:
            raise _Cut
        error = fault.error()
        if error is not None:
            raise error

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
        stream = _FaultyStream(raw, response, fault, self._stopping)
        async with aclosing(watch.lines()) as batches:
            async for batch in batches:
                if not await stream.send(batch):
                    break
        await response.write_eof()
        return response


class _FaultyStream:
    """Writes watch lines, wrongly where a fault says so."""

    def __init__(
        self,
        raw: web.BaseRequest,
        response: web.StreamResponse,
        fault: Fault | None,
        stopping: asyncio.Event,
    ) -> None:
        self._raw = raw
        self._response = response
        self._fault = fault if fault is not None and fault.is_for_watches else None
        self._stopping = stopping
        self._sent = 0

    async def send(self, lines: Sequence[bytes]) -> bool:
        """Write lines; returns False when the stream is to end."""
        if self._fault is None:
            if lines:
                await self._response.write(b"".join(lines))
            return True
        if not lines:
            return await self._obey(self._fault, b"")
        for line in lines:
            if not await self._send_one(self._fault, line):
                return False
        return True

    async def _send_one(self, fault: Fault, line: bytes) -> bool:
        if not await self._obey(fault, line):
            return False
        self._sent += 1
        if self._sent == fault.lose:
            return True
        await self._response.write(line * 2 if self._sent == fault.duplicate else line)
        return await self._obey(fault, b"")

    async def _obey(self, fault: Fault, upcoming: bytes) -> bool:
        if self._sent == fault.truncate_after and upcoming:
            await self._response.write(upcoming[: len(upcoming) // 2])
            raise _Cut
        if self._sent == fault.drop_after:
            return False
        if self._sent == fault.half_close_after:
            transport = self._raw.transport
            if transport is not None and transport.can_write_eof():
                transport.write_eof()
            await self._stopping.wait()
            raise _Cut
        if self._sent == fault.stall_after:
            await self._stopping.wait()
            return False
        return True


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
