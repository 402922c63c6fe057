"""urllib3 connections that another thread can interrupt.

A thread that is blocked in `recv` cannot check a flag; shutting down its socket wakes it.
This must also work after a request was sent and before its response has arrived, when
urllib3 has not yet returned an object to close (RT-24). Therefore each connection
registers with the `RequestContext` of its request before it blocks, also before a TLS
handshake.
"""

import contextlib
import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util import wait_for_write

from navarchos.client.http.body_reader import ChunkedResponse
from navarchos.client.transport import WriteFence
from navarchos.tls import close_dropped_sockets

__all__ = ["CurrentRequest", "RequestContext", "pool_classes"]

_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK})
_UNKNOWN: Final = -1.0  # not a valid timeout
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)  # struct linger: on, no seconds


class RequestContext:
    """The state of one request, for the connection that carries it.

    Threads: `abort()` is safe from any thread; all other members belong to the thread
    that sends the request.

    Attributes:
        fence: Asked immediately before bytes of the request are sent.
        resolved: Called with the seconds that the look-up of the host's name took.
        sent: Whether a byte may have been sent.
        answered: Whether the head of a response has arrived.
        reused: Whether the connection is older than this request.
        batches_reads: Whether the body may be read late and in large pieces.
        body: The body below urllib3's response.
    """

    def __init__(
        self, fence: WriteFence | None = None, resolved: Callable[[float], None] | None = None
    ) -> None:
        self.fence = fence
        self.resolved = resolved
        self.sent = False
        self.answered = False
        self.reused = True
        self.batches_reads = False
        self.body: ChunkedResponse | None = None
        self._aborted_lock = threading.Lock()
        self._aborted = False  # guarded by _aborted_lock
        self._connection: _InterruptibleConnection | None = None  # guarded by _aborted_lock
        # The last value that this request set; belongs to its thread.
        self._timeout: float | None = _UNKNOWN

    @property
    def aborted(self) -> bool:
        """Whether `abort()` was called; then it is the cause of a failure."""
        with self._aborted_lock:
            return self._aborted

    def abort(self) -> None:
        """Unblock the thread of this request, now or at its next blocking call."""
        with self._aborted_lock:
            self._aborted = True
            connection = self._connection
        if connection is not None:
            connection.shut_down_for(self)

    def set_timeout(self, timeout: float | None) -> None:
        """Set how many seconds the next read may wait for bytes."""
        if timeout == self._timeout:
            return  # the usual case: each read sets it
        self._timeout = timeout
        with self._aborted_lock:
            connection = self._connection
        if connection is not None:
            connection.set_timeout_for(self, timeout)

    def attach(self, connection: "_InterruptibleConnection") -> None:
        """Remember the connection; raise if the request was already aborted."""
        with self._aborted_lock:
            self._connection, self._timeout = connection, _UNKNOWN
            if self._aborted:
                raise ConnectionAbortedError("stopped before the request was sent")


class CurrentRequest(threading.local):
    """The request that the current thread sends, if any."""

    context: RequestContext | None = None


if TYPE_CHECKING:
    _Connection = HTTPConnection
else:
    _Connection = object


class _InterruptibleConnection(_Connection):
    """A mix-in for urllib3 connections; the thread of the request uses them."""

    current_request: CurrentRequest
    insecure: bool
    response_class: Any  # `http.client` calls it to create the response

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owner_lock = threading.Lock()
        self._owner: RequestContext | None = None  # guarded by _owner_lock
        self._blocking: socket.socket | None = None  # guarded by _owner_lock
        self._connecting: socket.socket | None = None  # guarded by _owner_lock
        self._shut = False  # guarded by _owner_lock; the socket is unusable

    def connect(self) -> None:
        context = self._join()
        context.reused = False
        try:
            super().connect()
        except BaseException as error:
            close_dropped_sockets(error)
            raise
        finally:
            self._hold(None)
        if self.insecure:
            # Suppresses urllib3's warning for each request; the transport logged one line.
            self.is_verified = True
        context.attach(self)

    def _new_conn(self) -> socket.socket:
        """Return a connected socket, as urllib3 does; a stop can interrupt connecting.

        urllib3's own SOCKS connections override the same method.
        """
        host = self.host.strip("[]")
        begun = time.monotonic()
        try:
            found = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise NameResolutionError(host, self, socket.gaierror(str(error))) from error
        context = self._join()
        if context.resolved is not None:
            context.resolved(time.monotonic() - begun)
        failure: OSError | None = None
        for family, kind, protocol, _, address in found:
            try:
                return self._connected(socket.socket(family, kind, protocol), address)
            except OSError as error:
                failure = error
                if self._is_shut():
                    break
        if isinstance(failure, TimeoutError):
            raise ConnectTimeoutError(self, f"no connection to {host} in time") from failure
        raise NewConnectionError(self, f"no connection to {host}: {failure}") from failure

    def _connected(self, sock: socket.socket, address: Any) -> socket.socket:
        try:
            for option in self.socket_options or ():
                sock.setsockopt(*option)
            sock.setblocking(False)
            code = self._begin(sock, address)
            if code in _UNDER_WAY:
                code = _outcome(sock, self.timeout)
            _raise_for(code)
            sock.settimeout(self.timeout)
        except BaseException:
            sock.close()
            raise
        return sock

    def _begin(self, sock: socket.socket, address: Any) -> int:
        """Begin to connect, and keep a second handle with which a stop can interrupt it.

        A TLS socket takes the descriptor out of the plain socket; the second handle stays
        valid, so that a stop can interrupt the handshake, too.
        """
        self._hold(sock.dup())
        with self._owner_lock:
            if self._shut:
                raise ConnectionAbortedError("stopped before connecting")
            # Under the lock that a stop takes: `shutdown` fails on a socket that does not
            # connect yet, and the stop would be lost.
            return sock.connect_ex(address)

    def _hold(self, handle: socket.socket | None) -> None:
        with self._owner_lock:
            last, self._connecting = self._connecting, handle
        if last is not None:
            last.close()

    def _is_shut(self) -> bool:
        with self._owner_lock:
            return self._shut

    def request(self, *args: Any, **kwargs: Any) -> None:
        self._join()
        super().request(*args, **kwargs)

    def send(self, data: Any) -> None:
        context = self._join()
        if self.sock is None:
            self.connect()
        with self._owner_lock:
            is_tunnelling = self._connecting is not None
        if not is_tunnelling:  # the CONNECT to a proxy is not a part of the request
            if context.fence is not None:
                # As late as possible: connecting, or waiting for the interpreter, may have
                # taken long.
                context.fence()
            context.sent = True
        super().send(data)

    def getresponse(self) -> Any:
        with self._owner_lock:
            # After "Connection: close" only the response still refers to the socket.
            self._blocking, owner = self.sock, self._owner
        self.response_class = partial(ChunkedResponse, owner or RequestContext())
        response = super().getresponse()
        if owner is not None:
            owner.answered = True  # must not fail: the response would stay open
        return response

    def close(self) -> None:
        with self._owner_lock:
            owner = self._owner
        if owner is not None and owner.fence is not None and owner.sent and not owner.answered:
            # After `close` the kernel continues to send the buffered bytes, which may arrive
            # when the network recovers, long after the fence has closed. A reset drops them.
            with contextlib.suppress(OSError, AttributeError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        super().close()

    def shut_down_for(self, context: RequestContext) -> None:
        """Shut the socket down if this request still owns the connection."""
        with self._owner_lock:
            blocking = self._connecting or self.sock or self._blocking
            if self._owner is not context:
                return
            self._shut = True
            if blocking is None:
                return
            # Not `SSLSocket.shutdown`: it removes the TLS layer while another thread reads,
            # and that thread would see ciphertext. On a closed or unconnected socket no
            # thread is blocked.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(blocking, socket.SHUT_RDWR)

    def set_timeout_for(self, context: RequestContext, timeout: float | None) -> None:
        """Set the timeout of the socket if this request still owns the connection."""
        with self._owner_lock:
            blocking = self.sock or self._blocking
            if self._owner is context and blocking is not None:
                with contextlib.suppress(OSError):
                    blocking.settimeout(timeout)

    def _join(self) -> RequestContext:
        context = self.current_request.context or RequestContext()
        with self._owner_lock:
            taken_over = self._owner is not context
            unusable = self._shut
            if taken_over:
                self._owner, self._blocking, self._shut = context, None, False
        if taken_over and unusable:
            # A stop came late and shut down the idle connection.
            self.close()
        context.attach(self)
        return context


def _outcome(sock: socket.socket, timeout: float | None) -> int:
    """Wait until connecting ends; return its error number, or 0."""
    if not wait_for_write(sock, timeout):
        return errno.ETIMEDOUT
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _raise_for(code: int) -> None:
    if code:
        raise OSError(code, os.strerror(code))


def pool_classes(
    current_request: CurrentRequest, *, insecure: bool
) -> dict[str, type[HTTPConnectionPool]]:
    """Return urllib3's pool classes by scheme, with interruptible connections."""
    options = {"current_request": current_request, "insecure": insecure}
    plain: Any = type("PlainConnection", (_InterruptibleConnection, HTTPConnection), dict(options))
    secure: Any = type(
        "SecureConnection", (_InterruptibleConnection, HTTPSConnection), dict(options)
    )
    return {
        "http": type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }
