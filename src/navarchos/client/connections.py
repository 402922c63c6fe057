"""urllib3 connections that know which request uses them, and can be freed.

A thread inside `recv` does not see a flag. What wakes it is the shutdown of its
socket, and that must also work between "request sent" and "answer received",
when urllib3 has not yet handed out anything to close (RT-24). So each connection
tells the `Exchange` in progress about itself before it blocks, handshakes included.
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

from navarchos.client.receiving import ChunkedResponse
from navarchos.client.transport import WriteFence
from navarchos.tls import close_dropped_sockets

__all__ = ["Exchange", "Exchanges", "pool_classes"]

_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK})
_UNKNOWN: Final = -1.0  # no timeout that anybody sets
_RESET_AT_CLOSE: Final = struct.pack("ii", 1, 0)  # struct linger: on, no seconds


class Exchange:
    """One request and its answer, as the connection below sees them.

    Threads: `abort()` is safe from any thread; all else belongs to the thread
    that sends the request.
    """

    def __init__(
        self, fence: WriteFence | None = None, resolved: Callable[[float], None] | None = None
    ) -> None:
        self.fence = fence
        self.resolved = resolved
        self.sent = False  # whether a byte may have left
        self.answered = False  # whether the head of an answer has come
        self.reused = True  # whether the connection is older than this exchange
        self.gathers = False  # whether its answer may come late and in large pieces
        self.body: ChunkedResponse | None = None  # of the answer, below what urllib3 makes of it
        self._aborted_lock = threading.Lock()
        self._aborted = False  # guarded by _aborted_lock
        self._connection: _Freeable | None = None  # guarded by _aborted_lock
        # As this exchange set it last; belongs to its thread.
        self._timeout: float | None = _UNKNOWN

    @property
    def aborted(self) -> bool:
        """Whether `abort()` has been called: failures are its doing then."""
        with self._aborted_lock:
            return self._aborted

    def abort(self) -> None:
        """Free the thread that is blocked in this exchange, now or soon."""
        with self._aborted_lock:
            self._aborted = True
            connection = self._connection
        if connection is not None:
            connection.shut_down_for(self)

    def set_timeout(self, timeout: float | None) -> None:
        """Limit the silence that the next read tolerates, in seconds."""
        if timeout == self._timeout:
            return  # as nearly always, and each read asks
        self._timeout = timeout
        with self._aborted_lock:
            connection = self._connection
        if connection is not None:
            connection.set_timeout_for(self, timeout)

    def joined(self, connection: "_Freeable") -> None:
        """Note the connection; refuse it when the exchange is already aborted."""
        with self._aborted_lock:
            self._connection, self._timeout = connection, _UNKNOWN
            if self._aborted:
                raise ConnectionAbortedError("stopped before the request was sent")


class Exchanges(threading.local):
    """The exchange that the present thread has under way, if any."""

    current: Exchange | None = None


if TYPE_CHECKING:
    _Connection = HTTPConnection
else:
    _Connection = object


class _Freeable(_Connection):
    """A mix-in for urllib3 connections; their thread is the exchange's thread."""

    exchanges: Exchanges
    insecure: bool
    response_class: Any  # what `http.client` makes answers with

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owner_lock = threading.Lock()
        self._owner: Exchange | None = None  # guarded by _owner_lock
        self._blocking: socket.socket | None = None  # guarded by _owner_lock
        self._connecting: socket.socket | None = None  # guarded by _owner_lock
        self._shut = False  # guarded by _owner_lock; the socket is of no more use

    def connect(self) -> None:
        exchange = self._join()
        exchange.reused = False
        try:
            super().connect()
        except BaseException as error:
            close_dropped_sockets(error)
            raise
        finally:
            self._hold(None)
        if self.insecure:
            # Whoever chose not to verify has been told once, by the transport.
            self.is_verified = True
        exchange.joined(self)

    def _new_conn(self) -> socket.socket:
        """Return a connected socket, as urllib3 does, that a stop can free on the way.

        This is the method that urllib3's own SOCKS connections replace, too.
        """
        host = self.host.strip("[]")
        begun = time.monotonic()
        try:
            found = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise NameResolutionError(host, self, socket.gaierror(str(error))) from error
        exchange = self._join()
        if exchange.resolved is not None:
            exchange.resolved(time.monotonic() - begun)
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
        """Begin to connect, with a second handle for whoever wants to end that.

        TLS takes the descriptor out of the socket that it wraps; the handle stays.
        """
        self._hold(sock.dup())
        with self._owner_lock:
            if self._shut:
                raise ConnectionAbortedError("stopped before connecting")
            # Under the lock: a socket that is not yet connecting cannot be shut down.
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
        exchange = self._join()
        if self.sock is None:
            self.connect()
        with self._owner_lock:
            is_tunnelling = self._connecting is not None
        if not is_tunnelling:  # what goes to a proxy first says nothing of the request
            if exchange.fence is not None:
                # Last of all: to connect may have taken long, and so may the thread's turn.
                exchange.fence()
            exchange.sent = True
        super().send(data)

    def getresponse(self) -> Any:
        with self._owner_lock:
            # After "Connection: close" the answer alone still holds the socket.
            self._blocking, owner = self.sock, self._owner
        self.response_class = partial(ChunkedResponse, owner or Exchange())
        answer = super().getresponse()
        if owner is not None:
            owner.answered = True  # nothing may fail here: the answer would stay open
        return answer

    def close(self) -> None:
        with self._owner_lock:
            owner = self._owner
        if owner is not None and owner.fence is not None and owner.sent and not owner.answered:
            # The kernel goes on to send what a closed socket still holds, perhaps when
            # the network is mended, long after the fence was shut. A reset drops it.
            with contextlib.suppress(OSError, AttributeError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        super().close()

    def shut_down_for(self, exchange: Exchange) -> None:
        """Shut the socket down if this exchange still owns the connection."""
        with self._owner_lock:
            blocking = self._connecting or self.sock or self._blocking
            if self._owner is not exchange:
                return
            self._shut = True
            if blocking is None:
                return
            # Not SSLSocket.shutdown: that takes the TLS layer from under the
            # thread that reads, which then would see ciphertext. A socket that is
            # closed or not connected any more has nothing to free.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(blocking, socket.SHUT_RDWR)

    def set_timeout_for(self, exchange: Exchange, timeout: float | None) -> None:
        """Set the socket's timeout if this exchange still owns the connection."""
        with self._owner_lock:
            blocking = self.sock or self._blocking
            if self._owner is exchange and blocking is not None:
                with contextlib.suppress(OSError):
                    blocking.settimeout(timeout)

    def _join(self) -> Exchange:
        exchange = self.exchanges.current or Exchange()
        with self._owner_lock:
            taken_over = self._owner is not exchange
            unusable = self._shut
            if taken_over:
                self._owner, self._blocking, self._shut = exchange, None, False
        if taken_over and unusable:
            # A stop that came late hit the idle connection.
            self.close()
        exchange.joined(self)
        return exchange


def _outcome(sock: socket.socket, timeout: float | None) -> int:
    """Wait for a connection that was begun; return the error it ended in, or 0."""
    if not wait_for_write(sock, timeout):
        return errno.ETIMEDOUT
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _raise_for(code: int) -> None:
    if code:
        raise OSError(code, os.strerror(code))


def pool_classes(exchanges: Exchanges, *, insecure: bool) -> dict[str, type[HTTPConnectionPool]]:
    """Return urllib3's pool classes by scheme, with connections that can be freed."""
    options = {"exchanges": exchanges, "insecure": insecure}
    plain: Any = type("PlainConnection", (_Freeable, HTTPConnection), dict(options))
    secure: Any = type("SecureConnection", (_Freeable, HTTPSConnection), dict(options))
    return {
        "http": type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }
