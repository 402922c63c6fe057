"""The chunked transfer coding, taken off much of a stream at once."""

from typing import Final

__all__ = ["ChunkDecoder"]

_LONGEST_LINE: Final = 1 << 16
_END: Final = b"\r\n"


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
        at = 0
        with memoryview(data) as view:
            while at < end and not self.ended:
                if self.is_between and (chunk := self._whole_chunk(data, at, end)):
                    parts.append(view[chunk])
                    at = chunk.stop + len(_END)
                elif self._left > len(_END):
                    part = view[at : min(at + self._left - len(_END), end)]
                    parts.append(part)
                    at, self._left = at + len(part), self._left - len(part)
                elif self._left:
                    at += self._take_end(data[at : min(at + self._left, end)])
                else:
                    at = self._take_line(data, at, end)
            content = b"".join(parts)
            for part in parts:
                part.release()
        return content

    def _whole_chunk(self, data: bytearray, at: int, end: int) -> slice | None:
        """Return where the content of a chunk is that has come whole, as most have."""
        begin = data.find(b"\n", at, end) + 1
        if not begin or self._in_trailers:
            return None
        stop = begin + _size(data[at:begin])
        is_whole = begin < stop <= end - len(_END) and data.startswith(_END, stop)
        return slice(begin, stop) if is_whole else None

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
            self._begin(line)
        return newline + 1

    def _begin(self, line: bytes) -> None:
        size = _size(line)
        self._in_trailers = size == 0
        self._left = size + len(_END) if size else 0


def _size(line: bytes | bytearray) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits.isalnum():  # what `int` takes besides: signs and underscores
        raise ValueError(f"{bytes(digits)!r} is no size of a chunk")
    return int(digits, 16)
