"""Lines out of a stream of chunks."""

from collections.abc import Iterator

__all__ = ["LineSplitter"]


class LineSplitter:
    """Cuts a stream into lines, each byte copied at most twice.

    A line that comes in many chunks is joined once, when it is complete; adding
    each chunk to a buffer and searching that again would be quadratic.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # the line that has begun; no newline in it

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that this chunk completes, without newlines or blank lines.

        Exhaust it before feeding on.
        """
        first, *rest = chunk.split(b"\n")
        self._parts.append(first)
        for following in rest:
            if line := self.rest():
                yield line
            self._parts.append(following)

    @property
    def is_between(self) -> bool:
        """Whether no line has begun."""
        return not any(self._parts)

    def rest(self) -> bytes:
        """Take what has come of a line that is not complete."""
        line = b"".join(self._parts).strip()
        self._parts.clear()
        return line
