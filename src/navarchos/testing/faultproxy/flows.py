"""The bytes in transit: one direction of a connection, and a connection of both."""

import contextlib
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from navarchos.testing.faultproxy.faults import Direction, TriggerPoint, WireFaultKind

__all__ = ["Flow", "Link"]

_READ_AHEAD: Final = 1 << 20
"""Bytes per direction after which the proxy stops reading, so that the sender blocks."""


@dataclass(slots=True, eq=False)
class Flow:
    """One direction of one connection. Guarded by the proxy's lock."""

    source: socket.socket
    sink: socket.socket
    triggers: list[TriggerPoint] = field(default_factory=list)
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)  # (due time, bytes)
    held: list[bytes] = field(default_factory=list)  # bytes that arrived after a stall
    size: int = 0  # of all waiting bytes
    delay: float = 0.0
    is_duplicating: bool = False  # send the next bytes twice
    is_stalled: bool = False
    is_dropping: bool = False
    has_ended: bool = False  # the source has closed its side
    ending: WireFaultKind | None = None  # how to end after the waiting bytes are sent
    is_closed: bool = False  # nothing more is sent to the sink

    def wants_to_read(self) -> bool:
        """Return whether the proxy should read from the source."""
        return not self.has_ended and not self.is_stalled and self.size < _READ_AHEAD

    def due(self) -> float | None:
        """Return the due time of the next bytes, or `None` without waiting bytes."""
        return self.waiting[0][0] if self.waiting else None

    def enqueue(self, data: bytes) -> None:
        """Add bytes from the source."""
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
        """Record that the source has closed its side; the close is passed on like bytes."""
        self.has_ended = True
        if not self.is_dropping and not self.is_stalled and self.ending is None:
            self.ending = WireFaultKind.HALF_CLOSE

    def flush(self) -> None:
        """Send the bytes that are due.

        Raises:
            OSError: The sink does not accept data.
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
        """Close the direction towards the sink."""
        self.is_closed = True
        self.waiting.clear()
        self.size = 0
        with contextlib.suppress(OSError):  # the sink has closed the connection
            self.sink.shutdown(socket.SHUT_WR)

    def heal(self) -> None:
        """Pass bytes on again, beginning with the held ones."""
        self.triggers.clear()
        self.delay, self.is_duplicating, self.is_stalled = 0.0, False, False
        self.waiting = deque((0.0, data) for _, data in self.waiting)
        held, self.held = self.held, []
        for data in held:
            self.enqueue(data)
        if self.has_ended:
            self.end()


@dataclass(slots=True, eq=False)
class Link:
    """The connection of a client and the proxy's connection to the server for it."""

    client: socket.socket
    server: socket.socket
    flows: dict[Direction, Flow]
    connecting: bool = True

    def into(self, sink: socket.socket) -> Flow:
        """Return the flow towards a socket."""
        return self.flows[Direction.TO_CLIENT if sink is self.client else Direction.TO_SERVER]

    def out_of(self, source: socket.socket) -> Flow:
        """Return the flow from a socket."""
        return self.flows[Direction.TO_SERVER if source is self.client else Direction.TO_CLIENT]

    def is_over(self) -> bool:
        """Return whether both directions have ended.

        With `DROP`, one side may have closed without the other side noticing.
        """
        flows = self.flows.values()
        return all(flow.is_closed for flow in flows) or all(
            flow.has_ended and (flow.is_closed or flow.is_dropping) for flow in flows
        )
