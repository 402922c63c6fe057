"""The chunked transfer coding, taken off much of a stream at once."""

from typing import Final

__all__ = ["ChunkDecoder"]

_LONGEST_LINE: Final = 1 << 16
_END: Final = b"\r\n"
_END_SIZE: Final = len(_END)


class ChunkDecoder:
    """Takes the chunked coding off an HTTP/1.1 body (RFC 9112, section 7.1).

    `http.client` asks its stream for each size, each chunk and each line end in turn,
    which costs more than all else that is done with an event of a watch. Here one call
    takes whatever has come, cut wherever the network cut it.

    Attributes:
        ended: The last chunk and the trailers behind it have come; what comes after is
            none of this body's.
    """

    def __init__(self) -> None:
        self.ended = False
        self._left = 0  # of the present chunk and the line end behind it
        self._line = b""  # as much as has come of a size or a trailer
        self._in_trailers = False

    @property
    def is_between(self) -> bool:
        """Whether every chunk that has begun is complete."""
        return self._left == 0 and not self._line

    def feed(self, data: bytearray, end: int) -> bytes:
        """Return the content of what has come: the first `end` bytes of `data`.

        Raises:
            ValueError: That is no chunked coding.
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
        if len(self._line) > _LONGEST_LINE:
            raise ValueError("a size or trailer without end")
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
    if not digits.isalnum():  # as it is when something stands behind the size
        digits = line.partition(b";")[0].strip()
    if not digits.isalnum():  # what `int` takes besides: signs and underscores
        raise ValueError(f"{bytes(digits)!r} is no size of a chunk")
    return int(digits, 16)
