"""Bytes on their way: one direction of a connection, and both together."""

import contextlib
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from navarchos.testing.faultproxy.faults import Direction, Fuse, Kind

__all__ = ["Flow", "Link"]

_READ_AHEAD: Final = 1 << 20
"""Bytes per direction beyond which the sender has to wait, as with a full network."""


@dataclass(slots=True, eq=False)
class Flow:
    """One direction of one connection. Owned by whoever holds the proxy's lock."""

    source: socket.socket
    sink: socket.socket
    fuses: list[Fuse] = field(default_factory=list)
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)  # when due, what
    held: list[bytes] = field(default_factory=list)  # what came after a stall
    size: int = 0  # of all that waits
    delay: float = 0.0
    is_duplicating: bool = False  # the bytes that come next
    is_stalled: bool = False
    is_dropping: bool = False
    has_ended: bool = False  # the source says no more
    ending: Kind | None = None  # what happens when all that waits has been sent
    is_closed: bool = False  # the sink hears no more

    def wants_to_read(self) -> bool:
        """Tell whether what the source says next is to be fetched."""
        return not self.has_ended and not self.is_stalled and self.size < _READ_AHEAD

    def due(self) -> float | None:
        """Return when there is something to send next, if there is."""
        return self.waiting[0][0] if self.waiting else None

    def enqueue(self, data: bytes) -> None:
        """Take what the source has said."""
        if self.is_dropping or self.is_closed or self.ending is not None or not data:
            return
        if self.is_stalled:
            self.held.append(data)
            return
        due = time.monotonic() + self.delay
        for _ in range(2 if self.is_duplicating else 1):
            self.waiting.append((due, data))
            self.size += len(data)
        self.is_duplicating = False

    def end(self) -> None:
        """Note that the source says no more; an end goes the way of bytes."""
        self.has_ended = True
        if not self.is_dropping and not self.is_stalled and self.ending is None:
            self.ending = Kind.HALF_CLOSE

    def flush(self) -> None:
        """Send what is due.

        Raises:
            OSError: The sink takes no more.
        """
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            due, data = self.waiting[0]
            try:
                sent = self.sink.send(data)
            except BlockingIOError:
                return
            self.waiting[0] = (due, data[sent:])
            self.size -= sent
            if sent == len(data):
                self.waiting.popleft()

    def close(self) -> None:
        """Tell the sink that nothing more will come."""
        self.is_closed = True
        self.waiting.clear()
        self.size = 0
        with contextlib.suppress(OSError):  # it has gone itself
            self.sink.shutdown(socket.SHUT_WR)

    def heal(self) -> None:
        """Go back to passing on, beginning with what was held back."""
        self.fuses.clear()
        self.delay, self.is_duplicating, self.is_stalled = 0.0, False, False
        self.waiting = deque((0.0, data) for _, data in self.waiting)
        held, self.held = self.held, []
        for data in held:
            self.enqueue(data)
        if self.has_ended:
            self.end()


@dataclass(slots=True, eq=False)
class Link:
    """A client's connection and the one to the server that belongs to it."""

    client: socket.socket
    server: socket.socket
    flows: dict[Direction, Flow]
    connecting: bool = True

    def into(self, sink: socket.socket) -> Flow:
        """Return the flow that a socket hears."""
        return self.flows[Direction.TO_CLIENT if sink is self.client else Direction.TO_SERVER]

    def out_of(self, source: socket.socket) -> Flow:
        """Return the flow that a socket feeds."""
        return self.flows[Direction.TO_SERVER if source is self.client else Direction.TO_CLIENT]

    def is_over(self) -> bool:
        """Tell whether nothing can happen to it any more.

        One end alone may go unnoticed by the other: that is what a drop is about.
        """
        flows = self.flows.values()
        return all(flow.is_closed for flow in flows) or all(
            flow.has_ended and (flow.is_closed or flow.is_dropping) for flow in flows
        )
