"""The HTTP side: connections and streams.

Accepts connections, and knows them all until they are closed.

asyncio's own servers lose a connection that they accept in the moment in which they are
closed: nobody ever closes its socket. So this accepts by itself.


TLS for a server that knows users: clients send no token over plain connections.
"""

import asyncio
import contextlib
import shutil
import socket
import ssl
import tempfile
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from weakref import WeakSet

from aiohttp import web

from navarchos.logs import get_logger
from navarchos.testing.apiserver.faults import ConnectionCut, StreamEnd, StreamFaults
from navarchos.testing.apiserver.handler import Request
from navarchos.testing.apiserver.objects import JsonObject
from navarchos.testing.apiserver.request_pipeline import (
    MAX_BODY_BYTES,
    AcceptedRequest,
    RequestPipeline,
    error_response,
    failure_response,
    too_large_response,
)
from navarchos.testing.apiserver.requests import Response
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.watches import Watch, WatchNotifier

__all__ = ["Certificates", "HttpFrontend", "Listener"]

_SHUTDOWN: Final = 0.2

_log = get_logger(__name__)


class HttpFrontend:
    """Serves what a reception lets in, on the running event loop.

    Threads: the event loop's only.
    """

    def __init__(
        self,
        pipeline: RequestPipeline,
        notifier: WatchNotifier,
        *,
        bookmark_interval: float,
        streaming: bool,
    ) -> None:
        self._pipeline = pipeline
        self._notifier = notifier
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
        self._notifier.close()
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
            message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
        )

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        try:
            request = await _read(raw)
        except web.HTTPRequestEntityTooLarge:
            return _respond(too_large_response())
        try:
            accepted = self._pipeline.admit(request, raw.headers.items())
        except StatusError as error:
            return _respond(error_response(error))
        try:
            response, code = await self._serve(raw, accepted)
        except ConnectionCut:
            _cut(raw)
            response, code = web.Response(), 0
        except ConnectionError:
            # Clients may leave at any time: in the head, in a watch, at its end.
            _log.debug("client_left", verb=accepted.call.verb, resource=accepted.call.resource)
            response, code = web.Response(), 0
        self._pipeline.close(accepted, code)
        return response

    async def _serve(
        self, raw: web.BaseRequest, accepted: AcceptedRequest
    ) -> tuple[web.StreamResponse, int]:
        if accepted.delay:
            await asyncio.sleep(accepted.delay)
        try:
            if accepted.call.verb == "watch":
                return await self._watch(raw, accepted), 200
            answer = self._pipeline.answer(accepted)
        except (ConnectionCut, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours is an answer, too
            answer = failure_response(error, accepted.request)
        if accepted.fault is not None and accepted.fault.lose_answer:
            raise ConnectionCut
        return _respond(answer), answer.status

    async def _watch(self, raw: web.BaseRequest, accepted: AcceptedRequest) -> web.StreamResponse:
        head, lines = self._pipeline.watch(accepted, streaming=self._streaming)
        watch = Watch(lines, self._notifier, bookmark_interval=self._bookmark_interval)
        response = web.StreamResponse(headers=_headers(head))
        response.enable_chunked_encoding()
        await response.prepare(raw)
        faults = StreamFaults(accepted.fault)
        async with aclosing(watch.lines()) as batches:
            async for batch in batches:
                if not await self._send(raw, response, faults, batch):
                    break
                del batch  # what has been sent is not held until there is more
        await response.write_eof()
        return response

    async def _send(
        self,
        raw: web.BaseRequest,
        response: web.StreamResponse,
        faults: StreamFaults,
        lines: Sequence[bytes],
    ) -> bool:
        """Write lines; returns False when the stream is to end."""
        for part in faults.apply(lines):
            if isinstance(part, bytes):
                await response.write(part)
                continue
            if part is StreamEnd.HALF_CLOSE and raw.transport and raw.transport.can_write_eof():
                raw.transport.write_eof()
            if part not in {StreamEnd.END, StreamEnd.CUT}:
                await self._stopping.wait()
            if part not in {StreamEnd.END, StreamEnd.STALL}:
                raise ConnectionCut
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


def _respond(answer: Response) -> web.Response:
    return web.Response(status=answer.status, body=answer.body, headers=_headers(answer))


def _headers(answer: Response) -> dict[str, str]:
    media = {"Content-Type": answer.content_type} if answer.content_type else {}
    return {**media, **answer.headers}


def _cut(raw: web.BaseRequest) -> None:
    """Reset the connection rather than close it: the client sees an error, not an end."""
    if raw.transport is not None:
        raw.transport.abort()


class Listener:
    """Listens on one address.

    Threads: the event loop's only.

    Args:
        factory: Makes the protocol of a connection.
        host: Where to listen.
        port: The port; 0 takes a free one.
        tls: What to speak TLS with; `None` for plain connections.

    Raises:
        OSError: The address cannot be had.
    """

    def __init__(
        self,
        factory: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._factory = factory
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        self._transports: WeakSet[asyncio.Transport] = WeakSet()
        self._socket = socket.create_server((host, port), backlog=1024)
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self._loop.add_reader(self._socket, self._accept)

    async def stop(self) -> None:
        """Accept no more; returns once what was accepted is with its protocol."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if self._connecting:
            await asyncio.wait(self._connecting)

    async def abort(self) -> None:
        """Close every connection, also where somebody does not read what is left."""
        for transport in self._transports:
            transport.abort()
        await asyncio.sleep(0)  # sockets are closed in the loop's next round

    def _accept(self) -> None:
        # Whoever left meanwhile is no error; what else fails, the loop reports.
        with contextlib.suppress(BlockingIOError, InterruptedError, ConnectionAbortedError):
            while True:
                accepted, _ = self._socket.accept()
                task = self._loop.create_task(self._connect(accepted))
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                self._factory, accepted, ssl=self._tls
            )
        except OSError:
            # Who speaks no TLS, or leaves before it is spoken, was never here.
            return
        self._transports.add(transport)


class Certificates:
    """An authority of the server's own, and a certificate by it, as files.

    The files are there from `open` to `close`; both may be repeated, and bring the
    same files back. Needs the package `cryptography`.

    Threads: none of its own; one caller at a time.
    """

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._files: dict[str, bytes] = {}

    @property
    def authority(self) -> Path:
        """The certificate that clients are to trust."""
        assert self._directory is not None, "opened first"
        return self._directory / "ca.crt"

    def open(self, host: str) -> ssl.SSLContext:
        """Write the files; returns what a server at that address listens with.

        Raises:
            ControlPlaneError: `cryptography` is not installed.
        """
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="navarchos-apiserver-"))
            try:
                self._make(host)
            except BaseException:
                self.close()
                self._directory = None
                raise
        elif not self._directory.exists():
            self._directory.mkdir(mode=0o700)
            for name, content in self._files.items():
                (self._directory / name).write_bytes(content)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._directory / "server.crt", self._directory / "server.key")
        return context

    def close(self) -> None:
        """Remove the files."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _make(self, host: str) -> None:
        from navarchos.testing.controlplane.credentials import Authority

        assert self._directory is not None, "made before"
        Authority(self._directory).issue_server("server", [host, "localhost"])
        found = (path for path in self._directory.iterdir() if path.name != "ca.key")
        self._files = {path.name: path.read_bytes() for path in found}

    def kubeconfig(self, url: str, token: str, namespace: str) -> JsonObject:
        """Return a kubeconfig for the bearer of a token."""
        from navarchos.testing.controlplane.credentials import make_kubeconfig, token_user

        return make_kubeconfig(url, self.authority, token_user(token), namespace=namespace)
