"""Accepts connections, and knows them all until they are closed.

asyncio's own servers lose a connection that they accept in the moment in which they are
closed: nobody ever closes its socket. So this accepts by itself.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from weakref import WeakSet

__all__ = ["Listener"]


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
