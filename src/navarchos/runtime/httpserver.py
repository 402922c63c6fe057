"""A small HTTP server for probes and metrics, which ends promptly and leaves no thread."""

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import ConfigError
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup
from navarchos.tls import close_dropped_sockets

__all__ = [
    "Guard",
    "HttpResponse",
    "HttpServer",
    "Query",
    "Route",
    "ServerCertificate",
    "parse_address",
]

_log = get_logger(__name__)

_CLIENT_TIMEOUT: Final = 10.0
_ACCEPT_PAUSE: Final = 0.2
_PLAIN: Final = "text/plain; charset=utf-8"

_Stamp = tuple[tuple[int, int, int], ...]

Query = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response of a route."""

    status: int
    body: bytes
    content_type: str = _PLAIN
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(
        cls, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> "HttpResponse":
        """Return a response of plain text."""
        return cls(status, text.encode(), headers=headers or {})


Route = Callable[[str, Query], HttpResponse]
"""Returns the response to a path and a query."""

Guard = Callable[[str, str], HttpResponse | None]
"""Called with the path and the header `Authorization`; returns a refusal, or `None`."""


def parse_address(name: str, address: str) -> tuple[str, int] | None:
    """Split `host:port`; an empty host means every interface, `0` or an empty text means off.

    Raises:
        ConfigError: The text is not an address.
    """
    if address in {"", "0"}:
        return None
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(name, address, "an address must be host:port, :port, or 0 for off")
    return host.strip("[]"), int(port)


class ServerCertificate:
    """A certificate chain and its key, in PEM files that another program renews.

    Promises: a client that connects after a change of the files gets the new certificate, also
    when a mounted Secret changes by replacing a link; while the files cannot be loaded, such as
    between the writes of the two files, the last valid pair is used, and the error is logged
    once for each state of the files.

    No self-signed certificate is generated: no client would verify it.

    Threads: safe from any thread. After controller-runtime's pkg/certwatcher, except that the
    files are checked when a client connects, not every ten seconds.

    Raises:
        ConfigError: The files cannot be loaded at the start.
    """

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        self._files: Final = (cert_file, key_file)
        self._context_lock = threading.Lock()
        try:
            self._stamp: _Stamp | None = self._read_stamp()  # guarded by _context_lock
            self._context = self._load()  # guarded by _context_lock
        except OSError as error:
            raise ConfigError("certificate", str(cert_file), _why(error)) from error

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for the next connection."""
        with self._context_lock:
            try:
                self._reload_if_changed()
            except OSError as error:
                _log.warning("certificate_unusable", file=str(self._files[0]), error=_why(error))
            return self._context

    def _reload_if_changed(self) -> None:
        try:
            stamp = self._read_stamp()
        except OSError:
            if self._stamp is None:
                return  # already logged
            self._stamp = None
            raise
        if stamp != self._stamp:
            self._stamp = stamp
            self._context = self._load()

    def _read_stamp(self) -> _Stamp:
        # stat() follows links: a mounted Secret keeps the names and replaces the link targets.
        found = [path.stat() for path in self._files]
        return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in found)

    def _load(self) -> ssl.SSLContext:
        # A new one each time: a context that has loaded one half of a pair is spoilt.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._files)
        return context


def _why(error: OSError) -> str:
    if error.filename:
        return f"{error.filename}: {error.strerror}"
    return f"certificate and key cannot be used together: {error.strerror or error}"


class HttpServer:
    """Answers GET requests by a function of path and query.

    Promises: the constructor binds the port, so a port in use is an error there (MG-15); a
    route or guard that raises is answered with 500 and does not affect other requests; after
    `stop` no thread is left and the port is free.

    Args:
        name: Prefix of the thread names; also used in errors.
        address: Host and port.
        route: Called on a separate thread for each connection.
        certificate: Serve TLS with this certificate.
        guard: Called before `route`, on the same thread.
        clock: Time and waiting.

    Raises:
        ConfigError: The address cannot be bound.
    """

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        route: Route,
        *,
        certificate: ServerCertificate | None = None,
        guard: Guard | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._name = name
        self._handler = _handler(name, route, guard)
        self._certificate = certificate
        self._stop = StopToken(clock=clock)
        self._threads = ThreadGroup(name, stop=self._stop, clock=clock)
        self._open_lock = threading.Lock()
        self._open: set[socket.socket] = set()  # guarded by _open_lock; connections
        try:
            self._socket = _listen(address)
        except OSError as error:
            text = f"{address[0]}:{address[1]}"
            raise ConfigError(
                name, text, f"the address cannot be bound: {error.strerror}"
            ) from error

    @property
    def port(self) -> int:
        """The bound port."""
        port: int = self._socket.getsockname()[1]
        return port

    def start(self) -> None:
        """Start to accept connections."""
        self._threads.start("accept", self._accept)

    def stop(self, timeout: float | None = None) -> bool:
        """Stop to accept connections and wait for the requests in flight.

        Returns:
            Whether every thread has ended.
        """
        self._stop.stop("the HTTP server stops")
        # Closing a socket does not wake a thread that is blocked in accept() (RT-24).
        self._shut(self._socket, socket.SHUT_RDWR)
        with self._open_lock:
            connections = list(self._open)
        for connection in connections:
            # Connections without a request end at once; responses are still sent.
            self._shut(connection, socket.SHUT_RD)
        ended = self._threads.join(timeout)
        self._socket.close()
        return ended

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, address = self._socket.accept()
            except OSError as error:
                if self._stop.is_set():
                    return
                # The client has left, or no file descriptor is free: the next may succeed.
                _log.warning("accept_failed", server=self._name, error=str(error))
                self._stop.wait(_ACCEPT_PAUSE)
                continue
            with self._open_lock:
                self._open.add(connection)
            self._threads.start("request", partial(self._answer, connection, address))

    def _answer(self, connection: socket.socket, address: object) -> None:
        try:
            if self._certificate is not None:
                connection = self._secured(connection, self._certificate)
            self._handler(connection, address, None)  # type: ignore[arg-type]  # the server is never used
        except OSError as error:
            close_dropped_sockets(error)
            _log.debug("http_client_left", server=self._name, error=str(error))
        finally:
            with self._open_lock:
                self._open.discard(connection)
            connection.close()

    def _secured(self, connection: socket.socket, certificate: ServerCertificate) -> socket.socket:
        """Return the connection under TLS. From now on `stop` shuts that one down."""
        connection.settimeout(_CLIENT_TIMEOUT)
        # Without the handshake, which waits for the client: `stop` must know the new socket
        # first, because the file descriptor has moved to it.
        secured = certificate.context().wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )
        with self._open_lock:
            self._open.discard(connection)
            self._open.add(secured)
        if self._stop.is_set():
            self._shut(secured, socket.SHUT_RD)
        try:
            secured.do_handshake()
        except OSError:
            with self._open_lock:
                self._open.discard(secured)
            secured.close()
            raise
        return secured

    def _shut(self, connection: socket.socket, how: int) -> None:
        try:
            # The method of TLS sockets would send the rest of the response unencrypted.
            socket.socket.shutdown(connection, how)
        except OSError as error:
            _log.debug("socket_already_down", server=self._name, error=str(error))


def _handler(server: str, route: Route, guard: Guard | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_TIMEOUT
        server_version = "navarchos"
        sys_version = ""

        def do_GET(self) -> None:
            answer = self._ask()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
            _log.debug("http_request", server=server, line=format % args)

        def _ask(self) -> HttpResponse:
            url = urlsplit(self.path)
            try:
                if guard is not None:
                    refusal = guard(url.path, self.headers.get("Authorization", ""))
                    if refusal is not None:
                        return refusal
                return route(url.path, parse_qs(url.query, keep_blank_values=True))
            except Exception as error:  # noqa: BLE001 - a failing route must not end the server
                _log.error(
                    "http_route_failed",
                    server=server,
                    path=url.path,
                    error=str(error),
                    exc_info=error,
                )
                return HttpResponse.text(500, "internal error: see the log\n")

    return Handler


def _listen(address: tuple[str, int]) -> socket.socket:
    host, port = address
    if host:
        return socket.create_server((host, port), backlog=32)
    if socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=32
        )
    return socket.create_server(("", port), backlog=32)
