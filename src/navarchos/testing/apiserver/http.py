"""The HTTP side: connections and streams."""

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web

from navarchos.logs import get_logger
from navarchos.testing.apiserver.handler import Request
from navarchos.testing.apiserver.listening import Listener
from navarchos.testing.apiserver.reception import (
    LARGEST_BODY,
    Case,
    Reception,
    failure,
    refusal,
    too_large,
)
from navarchos.testing.apiserver.requests import Answer
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.striking import Cut, Ending, Spoiler
from navarchos.testing.apiserver.watching import WakeHub, Watch

__all__ = ["HttpFrontend"]

_SHUTDOWN: Final = 0.2

_log = get_logger(__name__)


class HttpFrontend:
    """Serves what a reception lets in, on the running event loop.

    Threads: the event loop's only.
    """

    def __init__(
        self,
        reception: Reception,
        hub: WakeHub,
        *,
        bookmark_interval: float,
        streaming: bool,
    ) -> None:
        self._reception = reception
        self._hub = hub
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
            message, payload, protocol, writer, task, loop, client_max_size=LARGEST_BODY
        )

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        try:
            request = await _read(raw)
        except web.HTTPRequestEntityTooLarge:
            return _respond(too_large())
        try:
            case = self._reception.admit(request, raw.headers.items())
        except StatusError as error:
            return _respond(refusal(error))
        try:
            response, code = await self._serve(raw, case)
        except Cut:
            _cut(raw)
            response, code = web.Response(), 0
        except ConnectionError:
            # Clients may leave at any time: in the head, in a watch, at its end.
            _log.debug("client_left", verb=case.call.verb, resource=case.call.resource)
            response, code = web.Response(), 0
        self._reception.close(case, code)
        return response

    async def _serve(self, raw: web.BaseRequest, case: Case) -> tuple[web.StreamResponse, int]:
        if case.delay:
            await asyncio.sleep(case.delay)
        try:
            if case.call.verb == "watch":
                return await self._watch(raw, case), 200
            answer = self._reception.answer(case)
        except (Cut, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours is an answer, too
            answer = failure(error, case.request)
        if case.fault is not None and case.fault.lose_answer:
            raise Cut
        return _respond(answer), answer.status

    async def _watch(self, raw: web.BaseRequest, case: Case) -> web.StreamResponse:
        head, lines = self._reception.watch(case, streaming=self._streaming)
        watch = Watch(lines, self._hub, bookmark_interval=self._bookmark_interval)
        response = web.StreamResponse(headers=_headers(head))
        response.enable_chunked_encoding()
        await response.prepare(raw)
        spoiler = Spoiler(case.fault)
        async with aclosing(watch.lines()) as batches:
            async for batch in batches:
                if not await self._send(raw, response, spoiler, batch):
                    break
                del batch  # what has been sent is not held until there is more
        await response.write_eof()
        return response

    async def _send(
        self,
        raw: web.BaseRequest,
        response: web.StreamResponse,
        spoiler: Spoiler,
        lines: Sequence[bytes],
    ) -> bool:
        """Write lines; returns False when the stream is to end."""
        for part in spoiler.spoil(lines):
            if isinstance(part, bytes):
                await response.write(part)
                continue
            if part is Ending.HALF_CLOSE and raw.transport and raw.transport.can_write_eof():
                raw.transport.write_eof()
            if part not in {Ending.END, Ending.CUT}:
                await self._stopping.wait()
            if part not in {Ending.END, Ending.STALL}:
                raise Cut
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


def _respond(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=_headers(answer))


def _headers(answer: Answer) -> dict[str, str]:
    media = {"Content-Type": answer.content_type} if answer.content_type else {}
    return {**media, **answer.headers}


def _cut(raw: web.BaseRequest) -> None:
    """Reset the connection rather than close it: the client sees an error, not an end."""
    if raw.transport is not None:
        raw.transport.abort()
