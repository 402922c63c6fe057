"""Bodies of answers, read in few large pieces."""

import contextlib
import http.client
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

from urllib3.util import wait_for_read

from navarchos.client.chunks import ChunkDecoder

if TYPE_CHECKING:
    from navarchos.client.connections import Exchange

__all__ = ["ChunkedResponse"]

_RECORD: Final = 1 << 14  # as much as TLS hands out at once
_MOST: Final = 1 << 20
_ENOUGH: Final = _MOST // 8 * 3
_GATHERING: Final = 0.01
"""Seconds. A server sends some hundred kilobytes of a list meanwhile."""

_NOTHING_YET: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ChunkedResponse(http.client.HTTPResponse):
    """An answer of `http.client` whose chunked body costs little to read.

    A streamed list comes as two TLS records for each object, and a server sends them
    while it makes them. To be woken for each costs four times what it takes to decrypt
    them, so an exchange that gathers lets more of them come before it reads on, and
    then takes all that is there. One that does not gather gets each chunk at once.

    A change of a watch comes as a chunk in three records: what fills the server's buffer,
    the rest, and the line end. `read_chunk` waits for all of them, since they are on
    their way, and to look whether they are costs more than to wait for them.
    """

    def __init__(self, exchange: "Exchange", sock: socket.socket, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        exchange.body = self
        self._exchange = exchange
        self._socket = sock
        self._coding = ChunkDecoder()
        self._buffer = bytearray(_RECORD)
        self._is_more_there = True  # or may be: nobody has looked
        self._is_head_empty = False

    def close(self) -> None:
        """End the answer, and give the buffer back: whoever has read it may keep this object."""
        super().close()
        self._buffer = bytearray()

    def read1(self, n: int = -1) -> bytes:
        """Return what comes next, waiting until there is something; `b""` at the end."""
        if self.isclosed() or not self.chunked:
            return super().read1(n)
        most = n if 0 <= n < _MOST else _MOST
        while most and not self._coding.ended:
            if content := self._content(most):
                return content
        if most:
            self.close()
        return b""

    def read_chunk(self) -> bytes:
        """Return the next chunk, waiting until all of it is there; `b""` at the end.

        What the socket's timeout limits is the silence between two pieces of it.
        """
        if self.isclosed() or not self.chunked:
            return super().read1(_MOST)
        self._fit(_RECORD)
        content = b""
        while not self._coding.ended:
            content += self._received()
            if content and self._coding.is_between:
                return content
        if not content:
            self.close()
        return content

    def read(self, amt: int | None = None) -> bytes:
        """Return all that is left, or the next `amt` bytes if there are so many."""
        if self.isclosed() or not self.chunked:
            return super().read(amt)
        parts: list[bytes] = []
        left = -1 if amt is None else amt
        while part := self.read1(left):
            parts.append(part)
            left = left if amt is None else left - len(part)
        return b"".join(parts)

    def _received(self) -> bytes:
        """Wait for bytes; return the content in them, if there is any."""
        received = self._receive()
        if not received:
            raise http.client.IncompleteRead(b"")
        return self._decoded(received)

    def _content(self, most: int) -> bytes:
        gathers = self._exchange.gathers
        self._fit(min(most, len(self._buffer) * 2) if gathers else min(most, _RECORD))
        if gathers and not self._is_more_there:
            self._let_come()
        received = self._receive()
        if not received:
            raise http.client.IncompleteRead(b"")
        if gathers:
            return self._decoded(received + self._drain(received))
        content = self._decoded(received)
        # The rest of a chunk is there as a rule; to wait for it could outlast a deadline.
        return content if self._coding.is_between else content + self._decoded(self._drain(0))

    def _decoded(self, received: int) -> bytes:
        try:
            return self._coding.feed(self._buffer, received)
        except ValueError as error:
            raise http.client.IncompleteRead(b"") from error

    def _fit(self, size: int) -> None:
        """Have a buffer as large as what comes at a time; a quiet watch needs a small one."""
        present = len(self._buffer)
        if size < present or (size > present and self._is_more_there):
            self._buffer = bytearray(size)

    def _let_come(self) -> None:
        """Wait until much is there, or for a moment."""
        # TLS within TLS has no options, and not every system has this one: nothing is
        # gathered there. A socket that is shut says so when it is read.
        with contextlib.suppress(AttributeError, OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _ENOUGH)
            try:
                wait_for_read(self._socket, _GATHERING)
            finally:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    def _receive(self) -> int:
        """Wait for bytes; return how many came, 0 when there will be none."""
        if self._is_head_empty:
            return self._socket.recv_into(self._buffer)
        # What came with the head.
        first = self.fp.read1(len(self._buffer))
        self._is_head_empty = len(first) < len(self._buffer)
        self._buffer[: len(first)] = first
        return len(first)

    def _drain(self, at: int) -> int:
        """Take what is there already, and put it behind the first `at` bytes."""
        begin, limit = at, self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            with memoryview(self._buffer) as view:
                while at < len(view) and (got := self._socket.recv_into(view[at:])):
                    at += got
        except _NOTHING_YET:
            pass
        finally:
            self._socket.settimeout(limit)
        self._is_more_there = at == len(self._buffer)
        return at - begin
