"""Reading chunked bodies in few large pieces."""

import contextlib
import http.client
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

from urllib3.util import wait_for_read

__all__ = ["ChunkDecoder", "ChunkedResponse"]

if TYPE_CHECKING:
    from navarchos.client.http.connections import RequestContext


_RECORD: Final = 1 << 14  # the maximum size of a TLS record
_MAX_READ: Final = 1 << 20
_ENOUGH: Final = _MAX_READ // 8 * 3
_BATCH_WAIT: Final = 0.01
"""Seconds. A server sends some hundred kilobytes of a list in this time."""

_NO_DATA_YET: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ChunkedResponse(http.client.HTTPResponse):
    """A response of `http.client` whose chunked body is cheap to read.

    A server sends a streamed list as two TLS records for each object, as soon as it has
    encoded the object. Waking up for each record costs four times as much CPU as decrypting
    it. Therefore a request that batches its reads waits until more records have arrived,
    and then reads all of them. Other requests get each chunk at once.

    A server sends an event of a watch as one chunk in three records: the content of the
    server's buffer, the rest, and the line end. `read_chunk` waits for all three: they have
    been sent already, and polling for them costs more than waiting.
    """

    def __init__(
        self, context: "RequestContext", sock: socket.socket, *args: Any, **more: Any
    ) -> None:
        super().__init__(sock, *args, **more)
        context.body = self
        self._context = context
        self._socket = sock
        self._coding = ChunkDecoder()
        self._buffer = bytearray(_RECORD)
        self._may_have_more = True  # until a read finds less than the buffer holds
        self._is_head_empty = False

    def close(self) -> None:
        """Close the response and free the buffer; the reader may keep the object."""
        super().close()
        self._buffer = bytearray()

    def read1(self, n: int = -1) -> bytes:
        """Return the next bytes, waiting until there are some; `b""` at the end."""
        if self.isclosed() or not self.chunked:
            return super().read1(n)
        most = n if 0 <= n < _MAX_READ else _MAX_READ
        while most and not self._coding.ended:
            if content := self._content(most):
                return content
        if most:
            self.close()
        return b""

    def read_chunk(self) -> bytes:
        """Return the next chunk, waiting until all of it is there; `b""` at the end.

        The socket's timeout limits the silence between two pieces of the chunk.
        """
        if self.isclosed() or not self.chunked:
            return super().read1(_MAX_READ)
        self._resize(_RECORD)
        content = b""
        while not self._coding.ended:
            content += self._received()
            if content and self._coding.is_between:
                return content
        if not content:
            self.close()
        return content

    def read(self, amt: int | None = None) -> bytes:
        """Return the rest of the body, or at most the next `amt` bytes."""
        if self.isclosed() or not self.chunked:
            return super().read(amt)
        parts: list[bytes] = []
        left = -1 if amt is None else amt
        while part := self.read1(left):
            parts.append(part)
            left = left if amt is None else left - len(part)
        return b"".join(parts)

    def _received(self) -> bytes:
        """Wait for bytes; return their content, which may be empty."""
        received = self._receive()
        if not received:
            raise http.client.IncompleteRead(b"")
        return self._decoded(received)

    def _content(self, most: int) -> bytes:
        batches_reads = self._context.batches_reads
        self._resize(min(most, len(self._buffer) * 2) if batches_reads else min(most, _RECORD))
        if batches_reads and not self._may_have_more:
            self._wait_for_more()
        received = self._receive()
        if not received:
            raise http.client.IncompleteRead(b"")
        if batches_reads:
            return self._decoded(received + self._drain(received))
        content = self._decoded(received)
        # The rest of a chunk has usually arrived; waiting for it could outlast a deadline.
        return content if self._coding.is_between else content + self._decoded(self._drain(0))

    def _decoded(self, received: int) -> bytes:
        try:
            return self._coding.feed(self._buffer, received)
        except ValueError as error:
            raise http.client.IncompleteRead(b"") from error

    def _resize(self, size: int) -> None:
        """Adapt the buffer to the size of the reads; a quiet watch needs a small one."""
        present = len(self._buffer)
        if size < present or (size > present and self._may_have_more):
            self._buffer = bytearray(size)

    def _wait_for_more(self) -> None:
        """Wait until many bytes have arrived, at most some milliseconds."""
        # A socket of TLS within TLS has no options, and not every system has this one:
        # reads are not batched there. A socket that was shut down fails at the next read.
        with contextlib.suppress(AttributeError, OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _ENOUGH)
            try:
                wait_for_read(self._socket, _BATCH_WAIT)
            finally:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    def _receive(self) -> int:
        """Wait for bytes; return their number, 0 at the end of the stream."""
        if self._is_head_empty:
            return self._socket.recv_into(self._buffer)
        # `http.client` may have read the first bytes together with the head.
        first = self.fp.read1(len(self._buffer))
        self._is_head_empty = len(first) < len(self._buffer)
        self._buffer[: len(first)] = first
        return len(first)

    def _drain(self, at: int) -> int:
        """Read the bytes that have arrived into the buffer, after its first `at` bytes."""
        begin, limit = at, self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            with memoryview(self._buffer) as view:
                while at < len(view) and (got := self._socket.recv_into(view[at:])):
                    at += got
        except _NO_DATA_YET:
            pass
        finally:
            self._socket.settimeout(limit)
        self._may_have_more = at == len(self._buffer)
        return at - begin


_MAX_LINE: Final = 1 << 16
_END: Final = b"\r\n"
_END_SIZE: Final = len(_END)


class ChunkDecoder:
    """Decodes the chunked coding of an HTTP/1.1 body (RFC 9112, section 7.1).

    `http.client` reads each size, each chunk and each line end in separate calls, which
    costs more than the rest of the work for an event of a watch. Here one call decodes
    all bytes that have arrived, wherever the network split them.

    Attributes:
        ended: The last chunk and its trailers have arrived; further bytes do not belong
            to this body.
    """

    def __init__(self) -> None:
        self.ended = False
        self._left = 0  # bytes of the current chunk and its line end
        self._line = b""  # the begun part of a size or a trailer
        self._in_trailers = False

    @property
    def is_between(self) -> bool:
        """Whether every chunk that has begun is complete."""
        return self._left == 0 and not self._line

    def feed(self, data: bytearray, end: int) -> bytes:
        """Return the content of the first `end` bytes of `data`.

        Raises:
            ValueError: The bytes are not a valid chunked coding.
        """
        parts: list[memoryview] = []
        view, at = memoryview(data), 0
        while at < end and not self.ended:
            if self._left > _END_SIZE:
                stop = min(at + self._left - _END_SIZE, end)
                parts.append(view[at:stop])
                self._left -= stop - at
                at = stop
            elif self._left == _END_SIZE and data.startswith(_END, at, end):
                self._left = 0
                at += _END_SIZE
            elif self._left:
                at += self._take_end(data[at : min(at + self._left, end)])
            else:
                at = self._take_line(data, at, end)
        return b"".join(parts)

    def _take_end(self, found: bytearray) -> int:
        if not _END[-self._left :].startswith(found):
            raise ValueError(f"a chunk ends with {bytes(found)!r}")
        self._left -= len(found)
        return len(found)

    def _take_line(self, data: bytearray, at: int, end: int) -> int:
        newline = data.find(b"\n", at, end)
        self._line += data[at : end if newline < 0 else newline]
        if len(self._line) > _MAX_LINE:
            raise ValueError("a size or a trailer is too long")
        if newline < 0:
            return end
        line, self._line = self._line, b""
        if self._in_trailers:
            self.ended = not line.strip()
        else:
            size = _size(line)
            self._in_trailers = size == 0
            self._left = size + _END_SIZE if size else 0
        return newline + 1


def _size(line: bytes | bytearray) -> int:
    digits = line.strip()
    if not digits.isalnum():  # a chunk extension may follow the size
        digits = line.partition(b";")[0].strip()
    if not digits.isalnum():  # `int` would also accept signs and underscores
        raise ValueError(f"{bytes(digits)!r} is not the size of a chunk")
    return int(digits, 16)
