"""The transport over urllib3's connection pool."""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from navarchos.client.config import ClientConfig
from navarchos.client.connections import Exchange, Exchanges, pool_classes
from navarchos.client.errors import ConnectFailed, RequestTimeout, TlsFailed, TransportError
from navarchos.client.rotation import CertificateFiles
from navarchos.client.transport import HttpRequest
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import ConfigError, Stopped
from navarchos.logs import get_logger
from navarchos.stopping import StopToken

__all__ = ["PooledResponse", "PooledTransport"]

_log = get_logger(__name__)

_POOL_SIZE: Final = 64
_PIECE: Final = 1 << 20
_MUCH: Final = 1 << 20
_CONNECT_TIMEOUT: Final = 10.0
"""A connection that takes longer is not going to come."""

_FAILURES: Final = (HTTPError, http.client.HTTPException, OSError, ValueError)
"""Of the network, from urllib3 and from below it."""

_KEEPALIVE: Final = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # As Go's dialer: probe after 15 s of silence, every 15 s.
    *(
        (socket.IPPROTO_TCP, getattr(socket, option), 15)
        for option in ("TCP_KEEPIDLE", "TCP_KEEPINTVL")
        if hasattr(socket, option)
    ),
]


class PooledTransport:
    """Sends requests over kept connections, HTTP/1.1.

    Promises: a connection goes back to the pool only when its answer was read to
    the end; a request on a kept connection that the server has closed meanwhile
    is repeated by this class only if no byte of it was sent.

    Once certificate files have changed, requests go over new connections, and answers
    over older ones are outdated.

    Does not promise: that `stop` interrupts the look-up of the host's name, which
    the system's resolver limits.

    Threads: safe from any thread.
    """

    def __init__(self, config: ClientConfig, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._exchanges = Exchanges()
        self._files = _files(config, clock)
        self._changes_lock = threading.Lock()
        self._changes = 0  # guarded by _changes_lock; those that kept connections know of
        self._host = config.host.rstrip("/")
        self._manager = _manager(config)
        self._manager.pool_classes_by_scheme = pool_classes(
            self._exchanges, insecure=not config.verify
        )
        if not config.verify and urlsplit(config.host).scheme == "https":
            _log.warning("server_not_verified", host=config.host)

    def send(self, request: HttpRequest) -> "PooledResponse":
        """Send a request and wait for the head of its answer."""
        changes = self._keep_current()
        exchange = Exchange(request.fence, request.resolved)
        release = _nothing if request.stop is None else request.stop.on_stop(exchange.abort)
        try:
            response = self._open(request, exchange)
        except BaseException:
            release()
            raise
        return PooledResponse(response, exchange, request, release, self._files, changes)

    def close(self) -> None:
        """Close idle connections."""
        self._manager.clear()

    def _keep_current(self) -> int:
        """Close kept connections that are older than the certificates."""
        changes = self._files.changes
        with self._changes_lock:
            last, self._changes = self._changes, max(changes, self._changes)
        if changes > last:
            self.close()
        return changes

    def _open(self, request: HttpRequest, exchange: Exchange) -> urllib3.BaseHTTPResponse:
        self._exchanges.current = exchange
        limit = request.timeout
        connect = _CONNECT_TIMEOUT if limit is None else min(limit, _CONNECT_TIMEOUT)
        try:
            return self._manager.urlopen(
                request.method,
                self._host + request.target,
                body=request.body,
                headers=_headers(request),
                timeout=urllib3.Timeout(connect=connect, read=limit),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except _FAILURES as error:
            _raise_ours(error, exchange, request.stop)
        finally:
            self._exchanges.current = None


class PooledResponse:
    """An answer that arrives over a connection of the pool."""

    def __init__(
        self,
        response: urllib3.BaseHTTPResponse,
        exchange: Exchange,
        request: HttpRequest,
        release: Callable[[], None],
        files: CertificateFiles,
        changes: int,
    ) -> None:
        self._response = response
        self._exchange = exchange
        self._stop = request.stop
        self._release = release
        self._files = files
        self._changes = changes  # of the files, as this connection knows them
        # A chunked body that is not compressed passes through urllib3 as it is, which
        # would be a quarter of what a change of a watch costs; so it is read below that.
        body, exchange.body = exchange.body, None
        is_plain = "Content-Encoding" not in response.headers
        self._below = body if body is not None and body.chunked and is_plain else None
        # Sockets know real time only, so this deadline is on no injected clock.
        self._deadline = None if request.timeout is None else time.monotonic() + request.timeout

    @property
    def status(self) -> int:
        """HTTP status."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields; look-ups ignore case."""
        return self._response.headers

    @property
    def is_outdated(self) -> bool:
        """Whether the connection was made with certificates that have been replaced."""
        return self._files.changes != self._changes

    def read(self) -> bytes:
        """Return the whole body within the request's timeout, and close."""
        parts = [*self.parts()]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def parts(self) -> Iterator[bytes]:
        """Yield the whole body as it comes, within the request's timeout, and close."""
        length = 0
        try:
            while part := self._read(self._left()):
                yield part
                length += len(part)
                # Some milliseconds more at its end are nothing beside what it took.
                self._exchange.gathers = length >= _MUCH
        finally:
            self.close()

    def read_some(self, timeout: float | None, *, gather: bool = False) -> bytes:
        """Return the next bytes, waiting until there are some."""
        self._exchange.gathers = gather
        return self._read(timeout, by_chunk=not gather)

    def _read(self, timeout: float | None, *, by_chunk: bool = False) -> bytes:
        self._exchange.set_timeout(timeout)
        below = self._below
        try:
            if below is None:
                data = self._response.read1(_PIECE)
            else:
                data = below.read_chunk() if by_chunk else below.read1(_PIECE)
                if not data:
                    self._response.read1(_PIECE)  # sees the end, and lets the connection go
        except _FAILURES as error:
            # A pool gives out what came back last: this connection, which is made anew. Those
            # that were kept are as dead as it was, perhaps, and would cost a timeout each.
            self._response.close()
            self._response.release_conn()
            _raise_ours(error, self._exchange, self._stop)
        if not data and self._exchange.aborted:
            raise Stopped(_reason(self._stop))
        return data

    def close(self) -> None:
        """Let go of the connection."""
        self._release()
        self._response.close()

    def _left(self) -> float | None:
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise RequestTimeout("the answer was not complete in time", sent=True)
        return left


def _headers(request: HttpRequest) -> urllib3.HTTPHeaderDict:
    headers = urllib3.HTTPHeaderDict(request.headers)
    for name, value in request.repeated:
        headers.add(name, value)
    return headers


def _files(config: ClientConfig, clock: Clock) -> CertificateFiles:
    if urlsplit(config.host).scheme != "https":
        return CertificateFiles(None, None, None, clock=clock)
    authority = config.ca_file if config.verify else None
    return CertificateFiles(authority, config.cert_file, config.key_file, clock=clock)


def _manager(config: ClientConfig) -> urllib3.PoolManager:
    options: dict[str, Any] = {
        "num_pools": 2,
        "maxsize": _POOL_SIZE,
        "block": False,
        "socket_options": _KEEPALIVE,
    }
    if urlsplit(config.host).scheme == "https":
        options |= {
            "cert_reqs": "CERT_REQUIRED" if config.verify else "CERT_NONE",
            "ca_certs": config.ca_file,
            "cert_file": config.cert_file,
            "key_file": config.key_file,
            "server_hostname": config.tls_server_name,
        }
    try:
        if config.proxy:
            return urllib3.ProxyManager(config.proxy, **options)
        return urllib3.PoolManager(**options)
    except (LocationParseError, urllib3.exceptions.ProxySchemeUnknown) as error:
        raise ConfigError("proxy", config.proxy, "it must be an http or https URL") from error


def _raise_ours(error: Exception, exchange: Exchange, stop: StopToken | None) -> NoReturn:
    """Turn a failure of the network into ours; after an abort it is its echo."""
    if exchange.aborted:
        raise Stopped(_reason(stop)) from error
    if isinstance(error, ValueError) and not isinstance(error, HTTPError | OSError):
        raise error
    raise _transport_error(error, exchange) from error


def _transport_error(error: Exception, exchange: Exchange) -> TransportError:
    # Most specific first: several of these derive from each other.
    match error:
        case SSLError() | ssl.SSLError():
            return TlsFailed(f"the TLS handshake failed: {error}", sent=exchange.sent)
        case NewConnectionError():
            refused = isinstance(error.__cause__, ConnectionRefusedError)
            return ConnectFailed(_first_cause(error), refused=refused)
        case ConnectTimeoutError():
            return ConnectFailed("the server did not accept a connection in time")
        case ReadTimeoutError() | TimeoutError():
            return RequestTimeout("the server did not answer in time", sent=exchange.sent)
        case _:
            return ConnectFailed(
                f"the connection broke: {_first_cause(error)}",
                sent=exchange.sent,
                kept=exchange.reused,
            )


def _first_cause(error: BaseException) -> str:
    cause = error.__cause__ or error.__context__ or error
    return f"{type(cause).__name__}: {cause}"


def _reason(stop: StopToken | None) -> str:
    return (None if stop is None else stop.reason) or "the request was aborted"


def _nothing() -> None:
    """Release nothing."""
