"""The fault proxy: one thread that passes bytes on, and methods that inject faults."""

import contextlib
import selectors
import socket
import struct
import threading
import time
from typing import Final, Self, assert_never
from urllib.parse import urlsplit

from navarchos.errors import AlreadyStarted, ConfigError, NotStarted
from navarchos.stopping import StopToken
from navarchos.testing.faultproxy.faults import Direction, TriggerPoint, WireFault, WireFaultKind
from navarchos.testing.faultproxy.flows import Flow, Link
from navarchos.threads import ThreadGroup

__all__ = ["FaultProxy"]

_READ_AT_ONCE: Final = 1 << 16
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class FaultProxy:
    """Forwards connections to a server and injects faults on request.

    Promises: the bytes of one direction keep their order. Without a fault, every byte
    and every close of a direction is passed on. A fault without counts is in effect when
    the method that arms it returns. `stop()` leaves no thread and no socket. The behaviour
    depends on the faults only, which a test can draw from a seeded generator
    (`WireFault.draw`).

    Does not promise: packet boundaries; only line and byte counts determine where a fault
    strikes.

    The proxy uses real time, because sockets do. Give the code under test short deadlines.

    Threads: the proxy has one thread; every method is safe from any thread.
    """

    def __init__(self, upstream: str) -> None:
        """Create a proxy, which listens on 127.0.0.1 after `start`.

        Args:
            upstream: The server's base URL with its port.

        Raises:
            ConfigError: The URL has no host or no port.
        """
        found = urlsplit(upstream)
        if not found.hostname or not found.port:
            raise ConfigError("upstream", upstream, "it must be a URL with a host and a port")
        self._scheme = found.scheme
        self._upstream = (found.hostname, found.port)
        self._stop = StopToken()
        self._threads = ThreadGroup("faultproxy", stop=self._stop)
        self._changed = threading.Condition(threading.Lock())
        self._selector: selectors.BaseSelector | None = None  # guarded by _changed
        self._listener: socket.socket | None = None  # guarded by _changed
        self._port = 0  # guarded by _changed
        self._wake: tuple[socket.socket, socket.socket] | None = None  # guarded by _changed
        self._links: list[Link] = []  # guarded by _changed
        self._next: list[WireFault] = []  # guarded by _changed; one for each new connection
        self._always: list[WireFault] = []  # guarded by _changed; on every new connection
        self._strikes = 0  # guarded by _changed
        self._accepted = 0  # guarded by _changed

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Life cycle

    def start(self) -> Self:
        """Start listening and return the proxy itself.

        Raises:
            AlreadyStarted: The proxy has been started or stopped before.
        """
        with self._changed:
            if self._selector is not None or self._stop.is_set():
                raise AlreadyStarted("the fault proxy")
            self._selector = selectors.DefaultSelector()
            self._wake = socket.socketpair()
            for end in self._wake:
                end.setblocking(False)
            self._selector.register(self._wake[0], selectors.EVENT_READ)
            self._bind_locked(0)
            self._listen_locked()
        self._threads.start("", self._run)
        return self

    def stop(self) -> None:
        """Close all connections and stop. Further calls do nothing."""
        with self._changed:
            self._stop.stop("the proxy is stopped")
            self._wake_locked()
        self._threads.join()
        with self._changed:
            for link in list(self._links):
                self._end_locked(link)
            for sock in (self._listener, *(self._wake or ())):
                if sock is not None:
                    sock.close()
            if self._selector is not None:
                self._selector.close()
            self._listener, self._wake, self._selector = None, None, None
        self._threads.raise_failure()

    # State

    @property
    def url(self) -> str:
        """The base URL to give to clients.

        Raises:
            NotStarted: The proxy has not been started.
        """
        with self._changed:
            if not self._port:
                raise NotStarted("the fault proxy")
            return f"{self._scheme}://127.0.0.1:{self._port}"

    @property
    def accepted(self) -> int:
        """The number of accepted connections."""
        with self._changed:
            return self._accepted

    @property
    def open_connections(self) -> int:
        """The number of open connections in any state."""
        with self._changed:
            return len(self._links)

    @property
    def strikes(self) -> int:
        """The number of faults that have struck."""
        with self._changed:
            return self._strikes

    def wait_for_strikes(self, count: int, timeout: float) -> bool:
        """Wait until this many faults have struck; return `False` after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._strikes >= count, timeout)

    # Faults

    def strike(self, fault: WireFault) -> int:
        """Arm a fault on each open connection and return their number."""
        with self._changed:
            links = list(self._links)
            for link in links:
                self._arm_locked(link, fault)
            self._wake_locked()
            return len(links)

    def strike_next(self, fault: WireFault) -> None:
        """Arm a fault on the next new connection; n calls affect the next n connections."""
        with self._changed:
            self._next.append(fault)

    def strike_new(self, fault: WireFault) -> None:
        """Arm a fault on every new connection until `heal()`."""
        with self._changed:
            self._always.append(fault)

    def refuse(self) -> None:
        """Refuse new connections until `heal()`, as if no process listened."""
        with self._changed:
            if self._listener is None or self._selector is None:
                raise NotStarted("the fault proxy")
            if self._listener in self._selector.get_map():
                self._selector.unregister(self._listener)
                self._listener.close()
                # A socket that is bound but does not listen keeps the port, and the kernel
                # refuses connections to it.
                self._bind_locked(self._port)

    def heal(self) -> None:
        """Remove all faults, accept connections, and send the held bytes.

        Dropped bytes stay lost: connections with a `DROP` do not recover.
        """
        with self._changed:
            if self._listener is None or self._selector is None:
                raise NotStarted("the fault proxy")
            self._next.clear()
            self._always.clear()
            if self._listener not in self._selector.get_map():
                self._listen_locked()
            for link in self._links:
                for flow in link.flows.values():
                    flow.heal()
            self._wake_locked()

    # The loop

    def _run(self) -> None:
        with self._changed:
            selector, wake = self._selector, self._wake
        assert selector is not None  # set before this thread is started
        assert wake is not None
        while not self._stop.is_set():
            with self._changed:
                timeout = self._timeout_locked()
            ready = selector.select(timeout)
            with self._changed:
                for key, events in ready:
                    if key.fileobj is wake[0]:
                        wake[0].recv(_READ_AT_ONCE)
                    elif key.fileobj is self._listener:
                        self._accept_locked()
                    elif isinstance(key.data, Link):
                        self._serve_locked(key.data, key.fileobj, events)
                for link in list(self._links):
                    self._move_on_locked(link)

    # All below need _changed held

    def _bind_locked(self, port: int) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.setblocking(False)
        self._listener.bind(("127.0.0.1", port))
        self._port = self._listener.getsockname()[1]

    def _listen_locked(self) -> None:
        assert self._listener is not None  # checked by the callers
        assert self._selector is not None
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _wake_locked(self) -> None:
        if self._wake is not None:
            with contextlib.suppress(BlockingIOError):  # a full buffer wakes the thread as well
                self._wake[1].send(b".")

    def _timeout_locked(self) -> float | None:
        dues = [flow.due() for link in self._links for flow in link.flows.values()]
        later = [due for due in dues if due is not None and due > time.monotonic()]
        return max(0.0, min(later) - time.monotonic()) if later else None

    def _accept_locked(self) -> None:
        assert self._listener is not None  # the selector has reported it
        assert self._selector is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # the client has closed the connection again
        server = socket.socket()
        for sock in (client, server):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect_ex(self._upstream)
        flows = {
            Direction.TO_SERVER: Flow(client, server),
            Direction.TO_CLIENT: Flow(server, client),
        }
        link = Link(client, server, flows)
        self._selector.register(server, selectors.EVENT_WRITE, link)
        self._links.append(link)
        self._accepted += 1
        for fault in [*self._next[:1], *self._always]:
            self._arm_locked(link, fault)
        del self._next[:1]
        self._changed.notify_all()

    def _arm_locked(self, link: Link, fault: WireFault) -> None:
        if fault.after_lines or fault.after_bytes:
            trigger = TriggerPoint(fault, fault.after_lines, fault.after_bytes)
            link.flows[fault.direction].triggers.append(trigger)
        else:
            self._strike_locked(link, fault)

    def _strike_locked(self, link: Link, fault: WireFault) -> None:
        self._strikes += 1
        self._changed.notify_all()
        flow = link.flows[fault.direction]
        match fault.kind:
            case WireFaultKind.CUT | WireFaultKind.RESET | WireFaultKind.HALF_CLOSE:
                # Earlier bytes must be sent first.
                flow.ending = fault.kind
            case WireFaultKind.STALL:
                flow.is_stalled = True
            case WireFaultKind.DROP:
                flow.is_dropping = True
            case WireFaultKind.DUPLICATE:
                flow.is_duplicating = True
            case WireFaultKind.DELAY:
                flow.delay = fault.seconds
            case _:
                assert_never(fault.kind)

    def _serve_locked(self, link: Link, sock: object, events: int) -> None:
        if link not in self._links:
            return  # ended by an earlier event of the same select
        assert isinstance(sock, socket.socket)  # only sockets are registered with a link
        if link.connecting and sock is link.server:
            if link.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._end_locked(link, reset=True)
                return
            link.connecting = False
        if events & selectors.EVENT_READ:
            self._read_locked(link, link.out_of(sock))

    def _read_locked(self, link: Link, flow: Flow) -> None:
        try:
            data = flow.source.recv(_READ_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            self._broken_locked(link, flow.source)
            return
        self._take(link, flow, data)
        if not data:
            flow.end()

    def _take(self, link: Link, flow: Flow, data: bytes) -> None:
        while data:
            points = [
                (point, trigger)
                for trigger in flow.triggers
                if (point := trigger.point(data)) is not None
            ]
            point, first = min(points, key=lambda pair: pair[0], default=(len(data), None))
            before, data = data[:point], data[point:]
            for trigger in flow.triggers:
                trigger.advance(before)
            flow.enqueue(before)
            if first is not None:
                flow.triggers.remove(first)
                self._strike_locked(link, first.fault)

    def _broken_locked(self, link: Link, sock: socket.socket) -> None:
        """Pass a reset on, unless a fault hides it from the other side."""
        outgoing, incoming = link.out_of(sock), link.into(sock)
        if not outgoing.is_dropping and not outgoing.is_stalled:
            self._end_locked(link, reset=True)
            return
        incoming.close()
        outgoing.end()

    def _move_on_locked(self, link: Link) -> None:
        if not link.connecting:
            for flow in link.flows.values():
                try:
                    flow.flush()
                except OSError:
                    self._broken_locked(link, flow.sink)
                if link not in self._links:
                    return
                if flow.ending in {WireFaultKind.CUT, WireFaultKind.RESET} and not flow.waiting:
                    self._end_locked(link, reset=flow.ending is WireFaultKind.RESET)
                    return
                if flow.ending is not None and not flow.waiting and not flow.is_closed:
                    flow.close()
        if link.is_over():
            self._end_locked(link)
            return
        self._watch_locked(link)

    def _watch_locked(self, link: Link) -> None:
        """Register this link's sockets for the events that it can handle now."""
        assert self._selector is not None  # set while the thread runs
        for sock in (link.client, link.server):
            events = selectors.EVENT_READ if link.out_of(sock).wants_to_read() else 0
            due = link.into(sock).due()
            if due is not None and due <= time.monotonic():
                events |= selectors.EVENT_WRITE
            if link.connecting:
                events = selectors.EVENT_WRITE if sock is link.server else 0
            known = sock in self._selector.get_map()
            if events and known:
                self._selector.modify(sock, events, link)
            elif events:
                self._selector.register(sock, events, link)
            elif known:
                self._selector.unregister(sock)

    def _end_locked(self, link: Link, *, reset: bool = False) -> None:
        if link not in self._links:
            return
        self._links.remove(link)
        for sock in (link.client, link.server):
            if self._selector is not None and sock in self._selector.get_map():
                self._selector.unregister(sock)
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            sock.close()
        self._changed.notify_all()
