"""The proxy: one thread that moves bytes, and the methods that tell it to do worse."""

import contextlib
import selectors
import socket
import struct
import threading
import time
from typing import Final, Self
from urllib.parse import urlsplit

from navarchos.errors import AlreadyStarted, ConfigError, NotStarted
from navarchos.stopping import StopToken
from navarchos.testing.faultproxy.faults import Direction, Fuse, Kind, WireFault
from navarchos.testing.faultproxy.flows import Flow, Link
from navarchos.threads import ThreadGroup

__all__ = ["FaultProxy"]

_READ_AT_ONCE: Final = 1 << 16
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class FaultProxy:
    """Passes connections on to a server, until told to do worse.

    Promises: bytes of one direction keep their order; without a fault, every byte
    and every end of a direction is passed on. When a method that arms a fault with
    no counts returns, nothing passes unharmed any more. `stop()` leaves no thread
    and no socket. What happens depends on the faults alone, which a test may draw
    from a seeded generator (`WireFault.draw`).

    Does not promise: to keep packets apart or together; only counts say where a
    fault strikes.

    Time is the machine's, as sockets know no other. Give what is under test short
    deadlines.

    Threads: one of its own; every method is safe from any thread.
    """

    def __init__(self, upstream: str) -> None:
        """Make a proxy; it listens on 127.0.0.1 from its start on.

        Args:
            upstream: The server's base URL, with its port.

        Raises:
            ConfigError: The URL names no host and port.
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
        self._next: list[WireFault] = []  # guarded by _changed; for new connections, one each
        self._always: list[WireFault] = []  # guarded by _changed; for every new connection
        self._strikes = 0  # guarded by _changed
        self._accepted = 0  # guarded by _changed

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Life cycle

    def start(self) -> Self:
        """Begin to listen; returns the proxy itself.

        Raises:
            AlreadyStarted: A second time, or after a stop.
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
        """Cut every connection and end. Later calls do nothing."""
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

    # What it is, and what has happened

    @property
    def url(self) -> str:
        """The base URL to give to clients.

        Raises:
            NotStarted: It listens only after its start.
        """
        with self._changed:
            if not self._port:
                raise NotStarted("the fault proxy")
            return f"{self._scheme}://127.0.0.1:{self._port}"

    @property
    def accepted(self) -> int:
        """How many connections have been accepted."""
        with self._changed:
            return self._accepted

    @property
    def open_connections(self) -> int:
        """How many connections are open, in whatever state."""
        with self._changed:
            return len(self._links)

    @property
    def strikes(self) -> int:
        """How many faults have struck."""
        with self._changed:
            return self._strikes

    def wait_for_strikes(self, count: int, timeout: float) -> bool:
        """Wait until so many faults have struck; False if the time passes first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._strikes >= count, timeout)

    # Faults

    def strike(self, fault: WireFault) -> int:
        """Arm a fault on each open connection; return how many there are."""
        with self._changed:
            links = list(self._links)
            for link in links:
                self._arm_locked(link, fault)
            self._wake_locked()
            return len(links)

    def strike_next(self, fault: WireFault) -> None:
        """Arm a fault on the next new connection; each of several calls hits one more."""
        with self._changed:
            self._next.append(fault)

    def strike_new(self, fault: WireFault) -> None:
        """Arm a fault on every new connection until `heal()`."""
        with self._changed:
            self._always.append(fault)

    def refuse(self) -> None:
        """Refuse new connections, as if nobody listened, until `heal()`."""
        with self._changed:
            if self._listener is None or self._selector is None:
                raise NotStarted("the fault proxy")
            if self._listener in self._selector.get_map():
                self._selector.unregister(self._listener)
                self._listener.close()
                # A socket that is bound and does not listen keeps the port and refuses.
                self._bind_locked(self._port)

    def heal(self) -> None:
        """Be a good network again: forget faults, accept, release what is held back.

        What was lost stays lost: connections with a `DROP` stay as they are.
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
        assert self._listener is not None  # the callers have looked
        assert self._selector is not None
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _wake_locked(self) -> None:
        if self._wake is not None:
            with contextlib.suppress(BlockingIOError):  # full: it is awake already
                self._wake[1].send(b".")

    def _timeout_locked(self) -> float | None:
        dues = [flow.due() for link in self._links for flow in link.flows.values()]
        later = [due for due in dues if due is not None and due > time.monotonic()]
        return max(0.0, min(later) - time.monotonic()) if later else None

    def _accept_locked(self) -> None:
        assert self._listener is not None  # it has just become ready
        assert self._selector is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # it was gone again
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
            fuse = Fuse(fault, fault.after_lines, fault.after_bytes)
            link.flows[fault.direction].fuses.append(fuse)
        else:
            self._strike_locked(link, fault)

    def _strike_locked(self, link: Link, fault: WireFault) -> None:
        self._strikes += 1
        self._changed.notify_all()
        flow = link.flows[fault.direction]
        match fault.kind:
            case Kind.CUT | Kind.RESET | Kind.HALF_CLOSE:
                # What came before the point has to arrive first.
                flow.ending = fault.kind
            case Kind.STALL:
                flow.is_stalled = True
            case Kind.DROP:
                flow.is_dropping = True
            case Kind.DUPLICATE:
                flow.is_duplicating = True
            case Kind.DELAY:
                flow.delay = fault.seconds

    def _serve_locked(self, link: Link, sock: object, events: int) -> None:
        if link not in self._links:
            return  # ended by what came before in the same turn
        assert isinstance(sock, socket.socket)  # nothing else is registered with a link
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
                (point, fuse) for fuse in flow.fuses if (point := fuse.point(data)) is not None
            ]
            point, first = min(points, key=lambda pair: pair[0], default=(len(data), None))
            before, data = data[:point], data[point:]
            for fuse in flow.fuses:
                fuse.advance(before)
            flow.enqueue(before)
            if first is not None:
                flow.fuses.remove(first)
                self._strike_locked(link, first.fault)

    def _broken_locked(self, link: Link, sock: socket.socket) -> None:
        """Pass a reset on, unless this network lets nobody know."""
        says, hears = link.out_of(sock), link.into(sock)
        if not says.is_dropping and not says.is_stalled:
            self._end_locked(link, reset=True)
            return
        hears.close()
        says.end()

    def _move_on_locked(self, link: Link) -> None:
        if not link.connecting:
            for flow in link.flows.values():
                try:
                    flow.flush()
                except OSError:
                    self._broken_locked(link, flow.sink)
                if link not in self._links:
                    return
                if flow.ending in {Kind.CUT, Kind.RESET} and not flow.waiting:
                    self._end_locked(link, reset=flow.ending is Kind.RESET)
                    return
                if flow.ending is not None and not flow.waiting and not flow.is_closed:
                    flow.close()
        if link.is_over():
            self._end_locked(link)
            return
        self._watch_locked(link)

    def _watch_locked(self, link: Link) -> None:
        """Ask the selector for what this link can make use of."""
        assert self._selector is not None  # the loop runs
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
