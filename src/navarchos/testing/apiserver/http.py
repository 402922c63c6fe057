"""The server's HTTP side: a thread with an event loop, connections, TLS, streams."""

import asyncio
import contextlib
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, assert_never
from urllib.parse import unquote
from weakref import WeakSet

from aiohttp import web

from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import objects, request_pipeline, requests, store, watches
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.faults import ConnectionCut, StreamEnd, StreamFaults
from navarchos.threads import ThreadGroup

__all__ = ["ApiHttpServer", "Certificates", "HttpFrontend"]

_SHUTDOWN_TIMEOUT: Final = 0.2
_STOP_TIMEOUT: Final = 5.0

_log = get_logger(__name__)


class ApiHttpServer:
    """The thread and the event loop of a server that listens.

    The constructor returns when the server accepts connections.

    Threads: every method is safe from any thread.

    Args:
        frontend: Makes the HTTP frontend, on the thread of the event loop.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        tls: The TLS context; `None` for plain connections.

    Raises:
        OSError: The address is not available.
    """

    def __init__(
        self,
        frontend: Callable[[watches.WatchNotifier], "HttpFrontend"],
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._tls = tls
        self._stop = StopToken()
        self._threads = ThreadGroup("apiserver", stop=self._stop)
        self._loop = asyncio.new_event_loop()
        self._notifier = watches.WatchNotifier(self._loop)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._ended: asyncio.Event | None = None
        self.port = 0
        self._threads.start("", lambda: self._run(frontend, host, port))
        self._ready.wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._threads.join()
            raise self._failure

    def wake(self, bucket: store.BucketId) -> None:
        """Notify the watches of a kind."""
        self._notifier.wake(bucket)

    def call_soon(self, work: Callable[[], None]) -> None:
        """Run `work` on the event loop; do nothing when the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            _log.debug("server_already_stopped")

    def stop(self) -> None:
        """Stop the server and join its thread."""
        if self._ended is not None:
            self.call_soon(self._ended.set)
        self._stop.stop("server stopped")
        self._threads.join(_STOP_TIMEOUT)

    def _run(
        self, frontend: Callable[[watches.WatchNotifier], "HttpFrontend"], host: str, port: int
    ) -> None:
        try:
            self._loop.run_until_complete(self._serve(frontend(self._notifier), host, port))
        finally:
            self._loop.close()
            self._ready.set()

    async def _serve(self, http: "HttpFrontend", host: str, port: int) -> None:
        self._ended = asyncio.Event()
        try:
            self.port = await http.start(host, port, self._tls)
        except OSError as error:
            self._failure = error
            return
        finally:
            self._ready.set()
        await self._ended.wait()
        await http.stop()


class HttpFrontend:
    """Receives requests over HTTP, and sends the responses of a pipeline.

    Threads: only the event loop's thread.
    """

    def __init__(
        self,
        pipeline: request_pipeline.RequestPipeline,
        notifier: watches.WatchNotifier,
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
        self._listener: _Listener | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; return the port."""
        self._server = web.Server(
            self._handle, handler_cancellation=True, request_factory=self._request, access_log=None
        )
        self._listener = _Listener(self._server, host, port, tls)
        return self._listener.port

    async def stop(self) -> None:
        """End open watches properly, then close all connections."""
        self._stopping.set()
        self._notifier.close()
        if self._server is None or self._listener is None:
            return
        await self._listener.stop()
        self._server.pre_shutdown()
        await self._server.shutdown(_SHUTDOWN_TIMEOUT)
        # aiohttp ends cancelled handlers in separate tasks, which it does not wait for.
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        await self._listener.abort()

    @staticmethod
    def _request(
        message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(
            message,
            payload,
            protocol,
            writer,
            task,
            loop,
            client_max_size=request_pipeline.MAX_BODY_BYTES,
        )

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        try:
            request = await _read(raw)
        except web.HTTPRequestEntityTooLarge:
            return _to_aiohttp(request_pipeline.too_large_response())
        try:
            accepted = self._pipeline.admit(request, raw.headers.items())
        except statuses.StatusError as error:
            return _to_aiohttp(request_pipeline.error_response(error))
        try:
            response, code = await self._serve(raw, accepted)
        except ConnectionCut:
            _reset(raw)
            response, code = web.Response(), 0
        except ConnectionError:
            # A client may disconnect at any time, also in the middle of a watch.
            call = accepted.call
            _log.debug("client_disconnected", verb=call.verb, resource=call.resource)
            response, code = web.Response(), 0
        self._pipeline.record(accepted, code)
        return response

    async def _serve(
        self, raw: web.BaseRequest, accepted: request_pipeline.AcceptedRequest
    ) -> tuple[web.StreamResponse, int]:
        if accepted.delay:
            await asyncio.sleep(accepted.delay)
        if accepted.call.verb != "watch":
            served = self._pipeline.respond(accepted)
            return _to_aiohttp(served), served.status
        try:
            opened = self._pipeline.open_watch(accepted, streaming=self._streaming)
            return await self._stream(raw, accepted, opened), 200
        except (ConnectionCut, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - an error of this server becomes a 500
            served = request_pipeline.failure_response(error, accepted.request)
            return _to_aiohttp(served), served.status

    async def _stream(
        self,
        raw: web.BaseRequest,
        accepted: request_pipeline.AcceptedRequest,
        opened: request_pipeline.OpenedWatch,
    ) -> web.StreamResponse:
        watch = watches.Watch(
            opened.lines, self._notifier, bookmark_interval=self._bookmark_interval
        )
        response = web.StreamResponse(headers=_headers(opened.head))
        response.enable_chunked_encoding()
        await response.prepare(raw)
        faults = StreamFaults(accepted.fault)
        async with aclosing(watch.lines()) as batches:
            async for batch in batches:
                if not await self._send(raw, response, faults, batch):
                    break
                del batch  # otherwise the sent lines stay in memory until the next batch
        await response.write_eof()
        return response

    async def _send(
        self,
        raw: web.BaseRequest,
        response: web.StreamResponse,
        faults: StreamFaults,
        lines: Sequence[bytes],
    ) -> bool:
        """Write lines; return False when the stream must end."""
        for part in faults.apply(lines):
            if isinstance(part, bytes):
                await response.write(part)
                continue
            match part:
                case StreamEnd.END:
                    return False
                case StreamEnd.CUT:
                    raise ConnectionCut
                case StreamEnd.HALF_CLOSE:
                    if raw.transport and raw.transport.can_write_eof():
                        raw.transport.write_eof()
                    await self._stopping.wait()
                    raise ConnectionCut
                case StreamEnd.STALL:
                    await self._stopping.wait()
                    return False
                case StreamEnd.STALL_WITHIN:
                    await self._stopping.wait()
                    raise ConnectionCut
                case _:
                    assert_never(part)
        return True


async def _read(raw: web.BaseRequest) -> requests.Request:
    return requests.Request(
        method=raw.method,
        path=unquote(raw.rel_url.raw_path),
        query=raw.query,
        accept=raw.headers.get("Accept", ""),
        content_type=raw.headers.get("Content-Type", ""),
        body=await raw.read() if raw.can_read_body else b"",
        user_agent=raw.headers.get("User-Agent", ""),
    )


def _to_aiohttp(served: requests.ApiResponse) -> web.Response:
    return web.Response(status=served.status, body=served.body, headers=_headers(served))


def _headers(served: requests.ApiResponse) -> dict[str, str]:
    media = {"Content-Type": served.content_type} if served.content_type else {}
    return {**media, **served.headers}


def _reset(raw: web.BaseRequest) -> None:
    """Reset the connection rather than close it: the client must see an error, not an end."""
    if raw.transport is not None:
        raw.transport.abort()


class _Listener:
    """Accepts the connections of one address, and knows them until they are closed.

    An asyncio server loses a connection that it accepts while it is being closed: the
    connection's socket is then never closed. This class accepts connections itself.

    Threads: only the event loop's thread.

    Args:
        factory: Makes the protocol of a connection.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        tls: The TLS context; `None` for plain connections.

    Raises:
        OSError: The address is not available.
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
        """Stop accepting; return when every accepted connection has its protocol."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if self._connecting:
            await asyncio.wait(self._connecting)

    async def abort(self) -> None:
        """Close every connection, even if the client has not read everything."""
        for transport in self._transports:
            transport.abort()
        await asyncio.sleep(0)  # sockets are closed in the loop's next iteration

    def _accept(self) -> None:
        # A client that has disconnected already is not an error. The event loop reports
        # other errors.
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
            return  # the client does not speak TLS, or disconnected during the handshake
        self._transports.add(transport)


class Certificates:
    """A certificate authority of this server, and the server's certificate, as files.

    Clients send no token over a plain connection, so a server that knows users needs TLS. The
    files exist from `open` to `close`. Both may be repeated; `open` restores the same files.
    Needs the package `cryptography`.

    Threads: starts none; one caller at a time.
    """

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._files: dict[str, bytes] = {}

    @property
    def authority(self) -> Path:
        """The certificate that clients must trust."""
        assert self._directory is not None, "open() comes first"
        return self._directory / "ca.crt"

    def open(self, host: str) -> ssl.SSLContext:
        """Write the files; return the TLS context for a server at that address.

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

        assert self._directory is not None, "open() makes the directory"
        Authority(self._directory).issue_server("server", [host, "localhost"])
        found = (path for path in self._directory.iterdir() if path.name != "ca.key")
        self._files = {path.name: path.read_bytes() for path in found}

    def kubeconfig(self, url: str, token: str, namespace: str) -> objects.JsonObject:
        """Return a kubeconfig with a bearer token."""
        from navarchos.testing.controlplane.credentials import make_kubeconfig, token_user

        return make_kubeconfig(url, self.authority, token_user(token), namespace=namespace)
