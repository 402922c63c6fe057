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
        lines = []
        begin = 0
        # Not `split`, which looks at each byte by itself; `find` looks at many at once.
        while (end := chunk.find(b"\n", begin)) >= 0:
            line = chunk[begin:end]
            begin = end + 1
            if self._parts:
                self._parts.append(line)
                line = self.rest()
            if line := line.strip():
                lines.append(line)
        if begin < len(chunk):
            self._parts.append(chunk[begin:])
        return lines

    @property
    def is_between(self) -> bool:
        """Whether no line has begun."""
        return not self._parts

    def rest(self) -> bytes:
        """Take what has come of a line that is not complete."""
        line = b"".join(self._parts).strip()
        self._parts.clear()
        return line
