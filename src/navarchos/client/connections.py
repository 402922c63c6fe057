"""urllib3 connections that know which request uses them, and can be freed.

A thread inside `recv` does not see a flag. What wakes it is the shutdown of its
socket, and that must also work between "request sent" and "answer received",
when urllib3 has not yet handed out anything to close (RT-24). So each connection
tells the `Exchange` in progress about itself before it blocks.
"""

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

__all__ = ["Exchange", "Exchanges", "pool_classes"]


class Exchange:
    """One request and its answer, as the connection below sees them.

    Threads: `abort()` is safe from any thread; all else belongs to the thread
    that sends the request.
    """

    def __init__(self) -> None:
        self.sent = False  # whether a byte may have left
        self.reused = True  # whether the connection is older than this exchange
        self._aborted_lock = threading.Lock()
        self._aborted = False  # guarded by _aborted_lock
        self._connection: _Freeable | None = None  # guarded by _aborted_lock

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
        with self._aborted_lock:
            connection = self._connection
        if connection is not None:
            connection.set_timeout_for(self, timeout)

    def joined(self, connection: "_Freeable") -> None:
        """Note the connection; refuse it when the exchange is already aborted."""
        with self._aborted_lock:
            self._connection = connection
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

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owner_lock = threading.Lock()
        self._owner: Exchange | None = None  # guarded by _owner_lock
        self._blocking: socket.socket | None = None  # guarded by _owner_lock
        self._shut = False  # guarded by _owner_lock; the socket is of no more use

    def connect(self) -> None:
        exchange = self._join()
        exchange.reused = False
        super().connect()
        if self.insecure:
            # Whoever chose not to verify has been told once, by the transport.
            self.is_verified = True
        exchange.joined(self)

    def request(self, *args: Any, **kwargs: Any) -> None:
        self._join()
        super().request(*args, **kwargs)

    def send(self, data: Any) -> None:
        exchange = self._join()
        if self.sock is None:
            self.connect()
        exchange.sent = True
        super().send(data)

    def getresponse(self) -> Any:
        with self._owner_lock:
            # After "Connection: close" the answer alone still holds the socket.
            self._blocking = self.sock
        return super().getresponse()

    def shut_down_for(self, exchange: Exchange) -> None:
        """Shut the socket down if this exchange still owns the connection."""
        with self._owner_lock:
            blocking = self.sock or self._blocking
            if self._owner is not exchange or blocking is None:
                return
            self._shut = True
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


def pool_classes(exchanges: Exchanges, *, insecure: bool) -> dict[str, type[HTTPConnectionPool]]:
    """Return urllib3's pool classes by scheme, with connections that can be freed."""
    options = {"exchanges": exchanges, "insecure": insecure}
    plain: Any = type("PlainConnection", (_Freeable, HTTPConnection), dict(options))
    secure: Any = type("SecureConnection", (_Freeable, HTTPSConnection), dict(options))
    return {
        "http": type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }
