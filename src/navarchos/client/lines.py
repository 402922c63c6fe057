"""Lines out of a stream of chunks."""

__all__ = ["LineSplitter"]


class LineSplitter:
    """Cuts a stream into lines, each byte copied at most twice.

    A line that comes in many chunks is joined once, when it is complete; adding
    each chunk to a buffer and searching that again would be quadratic.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # the line that has begun; no newline in it

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without newlines or blank lines."""
        if not self._parts and 0 < chunk.find(b"\n") == len(chunk) - 1:
            # One line, as a server sends it: each change when it happens.
            line = chunk.strip()
            return [line] if line else []
        first, *rest = chunk.split(b"\n")
        self._parts.append(first)
        if not rest:
            return []
        *whole, begun = [self.rest(), *rest]
        if begun:
            self._parts.append(begun)
        return [line for line in map(bytes.strip, whole) if line]

    @property
    def is_between(self) -> bool:
        """Whether no line has begun."""
        return not self._parts or not any(self._parts)

    def rest(self) -> bytes:
        """Take what has come of a line that is not complete."""
        line = b"".join(self._parts).strip()
        self._parts.clear()
        return line
