"""The transport over urllib3's connection pool."""

import hashlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import urllib3
from urllib3 import exceptions
from urllib3.connection import HTTPConnection

from navarchos.client.config import ClientConfig
from navarchos.client.errors import ConnectFailed, RequestTimeout, TlsFailed, TransportError
from navarchos.client.http.connections import CurrentRequest, RequestContext, pool_classes
from navarchos.client.transport import HttpRequest
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import ConfigError, Stopped
from navarchos.logs import get_logger
from navarchos.stopping import StopToken

__all__ = ["CertificateFiles", "PooledResponse", "PooledTransport"]

_log = get_logger(__name__)

_POOL_SIZE: Final = 64
_PIECE: Final = 1 << 20
_BATCH_AFTER: Final = 1 << 20
_CONNECT_TIMEOUT: Final = 10.0
"""Seconds."""

_CHECK_PERIOD: Final = 60.0
"""Seconds between two looks at the certificate files, as for token files."""

_FAILURES: Final = (exceptions.HTTPError, http.client.HTTPException, OSError, ValueError)
"""Failures of the network, from urllib3 and from `http.client`."""

_KEEPALIVE: Final = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # As Go's dialer: probe after 15 s of silence, then every 15 s.
    *(
        (socket.IPPROTO_TCP, getattr(socket, option), 15)
        for option in ("TCP_KEEPIDLE", "TCP_KEEPINTVL")
        if hasattr(socket, option)
    ),
]


class CertificateFiles:
    """The certificate files of connections; counts their changes.

    The files are read once a minute. Promises: a change counts when all files can be used
    together, not while a new certificate still has the old key. The content counts, not
    the modification time.

    Threads: safe from any thread. The thread that reads `changes` checks the files.

    Args:
        ca_file: Certificates to trust, if any.
        cert_file: Client certificate, if any.
        key_file: Its private key; `None` when it is in `cert_file`.
        clock: Time.
    """

    def __init__(
        self,
        ca_file: str | None,
        cert_file: str | None,
        key_file: str | None,
        *,
        clock: Clock,
    ) -> None:
        self._ca_file = ca_file
        self._cert_file = cert_file
        self._key_file = key_file
        self._paths = [path for path in (ca_file, cert_file, key_file) if path]
        self._clock = clock
        self._changes_lock = threading.Lock()
        self._changes = 0  # guarded by _changes_lock
        self._known = self._read()  # guarded by _changes_lock
        self._next_check = clock.monotonic() + _CHECK_PERIOD  # guarded by _changes_lock

    @property
    def changes(self) -> int:
        """The number of changes seen so far."""
        if not self._paths:
            return 0
        with self._changes_lock:
            if self._clock.monotonic() >= self._next_check:
                self._check()
                self._next_check = self._clock.monotonic() + _CHECK_PERIOD
            return self._changes

    def _check(self) -> None:
        found = self._read()
        if found is None or found == self._known:
            return
        if self._known is not None:
            self._changes += 1
            _log.info("certificates_changed", paths=self._paths)
        self._known = found

    def _read(self) -> bytes | None:
        """Return a digest of the files; `None` while they cannot be used."""
        try:
            content = [Path(path).read_bytes() for path in self._paths]
            self._load()
        except (OSError, ValueError) as error:
            _log.warning("certificates_unusable", paths=self._paths, error=str(error))
            return None
        return hashlib.sha256(b"\0".join(content)).digest()

    def _load(self) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._ca_file:
            tls.load_verify_locations(self._ca_file)
        if self._cert_file:
            # Without this argument OpenSSL would ask for a password at the terminal.
            tls.load_cert_chain(self._cert_file, self._key_file, password="")


class PooledTransport:
    """Sends requests over a pool of HTTP/1.1 connections.

    Promises: a connection returns to the pool only after its response was read to the end;
    a request on a pooled connection that the server has closed is repeated here only if no
    byte of it was sent.

    After a change of the certificate files, requests use new connections, and responses
    over older connections are outdated.

    Does not promise: that `stop` interrupts the look-up of the host's name; the system's
    resolver limits its time.

    Threads: safe from any thread.
    """

    def __init__(self, config: ClientConfig, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._current_request = CurrentRequest()
        self._files = _files(config, clock)
        self._changes_lock = threading.Lock()
        self._changes = 0  # guarded by _changes_lock; seen by the pooled connections
        self._host = config.host.rstrip("/")
        self._manager = _manager(config)
        self._manager.pool_classes_by_scheme = pool_classes(
            self._current_request, insecure=not config.verify
        )
        if not config.verify and urlsplit(config.host).scheme == "https":
            _log.warning("server_not_verified", host=config.host)

    def send(self, request: HttpRequest) -> "PooledResponse":
        """Send a request and wait for the head of its response."""
        changes = self._keep_current()
        context = RequestContext(request.fence, request.resolved)
        release = _nothing if request.stop is None else request.stop.on_stop(context.abort)
        try:
            response = self._open(request, context)
        except BaseException:
            release()
            raise
        return PooledResponse(response, context, request, release, self._files, changes)

    def close(self) -> None:
        """Close idle connections."""
        self._manager.clear()

    def _keep_current(self) -> int:
        """Close pooled connections that are older than the certificates; return the count."""
        changes = self._files.changes
        with self._changes_lock:
            last, self._changes = self._changes, max(changes, self._changes)
        if changes > last:
            self.close()
        return changes

    def _open(self, request: HttpRequest, context: RequestContext) -> urllib3.BaseHTTPResponse:
        self._current_request.context = context
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
            _raise_ours(error, context, request.stop)
        finally:
            self._current_request.context = None


class PooledResponse:
    """A response that arrives over a connection of the pool."""

    def __init__(
        self,
        response: urllib3.BaseHTTPResponse,
        context: RequestContext,
        request: HttpRequest,
        release: Callable[[], None],
        files: CertificateFiles,
        changes: int,
    ) -> None:
        self._response = response
        self._context = context
        self._stop = request.stop
        self._release = release
        self._files = files
        self._changes = changes  # of the files, when the connection was made
        # urllib3 passes a chunked body without compression through unchanged, which would
        # take a quarter of the time of a watch event. Therefore it is read below urllib3.
        body, context.body = context.body, None
        is_plain = "Content-Encoding" not in response.headers
        # mutant: read-above
        self._below = body if body is not None and body.chunked and is_plain else None
        # Real time instead of an injected clock, because sockets use real time.
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
        """Return the whole body within the timeout of the request, and close."""
        parts = [*self.parts()]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def parts(self) -> Iterator[bytes]:
        """Yield the whole body as it arrives, within the timeout of the request, and close."""
        length = 0
        try:
            while part := self._read(self._left()):
                yield part
                length += len(part)
                # For a large body the extra milliseconds of a batch do not matter.
                self._context.batches_reads = length >= _BATCH_AFTER
        finally:
            self.close()

    def read_some(self, timeout: float | None, *, batch: bool = False) -> bytes:
        """Return the next bytes, waiting until there are some."""
        self._context.batches_reads = batch
        return self._read(timeout, by_chunk=not batch)

    def _read(self, timeout: float | None, *, by_chunk: bool = False) -> bytes:
        self._context.set_timeout(timeout)
        below = self._below
        try:
            if below is None:
                data = self._response.read1(_PIECE)
            else:
                data = below.read_chunk() if by_chunk else below.read1(_PIECE)
                if not data:
                    self._response.read1(
                        _PIECE
                    )  # sees the end, and returns the connection to the pool
        except _FAILURES as error:
            # The pool hands out the connection that was returned last. This one is closed,
            # so the next request opens a new one. The other pooled connections may be broken
            # as well, and each would cost a timeout.
            self._response.close()
            self._response.release_conn()
            _raise_ours(error, self._context, self._stop)
        if not data and self._context.aborted:
            raise Stopped(_reason(self._stop))
        return data

    def close(self) -> None:
        """Release the connection."""
        self._release()
        self._response.close()

    def _left(self) -> float | None:
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise RequestTimeout("the response was not complete in time", sent=True)
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
    except (exceptions.LocationParseError, urllib3.exceptions.ProxySchemeUnknown) as error:
        raise ConfigError("proxy", config.proxy, "it must be an http or https URL") from error


def _raise_ours(error: Exception, context: RequestContext, stop: StopToken | None) -> NoReturn:
    """Raise the error of this library for a failure; `Stopped` after an abort."""
    if context.aborted:
        raise Stopped(_reason(stop)) from error
    if isinstance(error, ValueError) and not isinstance(error, exceptions.HTTPError | OSError):
        raise error
    raise _transport_error(error, context) from error


def _transport_error(error: Exception, context: RequestContext) -> TransportError:
    # The most specific class first: several of them derive from each other.
    match error:
        case exceptions.SSLError() | ssl.SSLError():
            return TlsFailed(f"the TLS handshake failed: {error}", sent=context.sent)
        case exceptions.NewConnectionError():
            refused = isinstance(error.__cause__, ConnectionRefusedError)
            return ConnectFailed(_first_cause(error), refused=refused)
        case exceptions.ConnectTimeoutError():
            return ConnectFailed("the server did not accept a connection in time")
        case exceptions.ReadTimeoutError() | TimeoutError():
            return RequestTimeout("the server did not answer in time", sent=context.sent)
        case _:
            return ConnectFailed(
                f"the connection broke: {_first_cause(error)}",
                sent=context.sent,
                kept=context.reused,
            )


def _first_cause(error: BaseException) -> str:
    cause = error.__cause__ or error.__context__ or error
    return f"{type(cause).__name__}: {cause}"


def _reason(stop: StopToken | None) -> str:
    return (None if stop is None else stop.reason) or "the request was aborted"


def _nothing() -> None:
    """Release nothing."""
