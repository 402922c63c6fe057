"""A server that sends and receives exactly the bytes of a test, and types of the fixtures."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from navarchos.client import BufferedResponse, Client

__all__ = ["TLS", "Connect", "JsonResponse", "Peer", "Received", "Serve", "WireServer"]

TLS = Path(__file__).parent / "tls"  # a self-signed certificate for 127.0.0.1 and its key


@dataclass
class Received:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Peer:
    """The end of a connection at the server."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._file = connection.makefile("rb")

    def receive(self) -> Received | None:
        line = self._file.readline()
        if not line:
            return None
        method, target, _ = line.decode().split(" ", 2)
        headers = {}
        while (header := self._file.readline().strip()) != b"":
            name, _, value = header.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = self._file.read(int(headers.get("content-length", "0")))
        return Received(method, target, headers, body)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, body: bytes, status: int = 200, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Any", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def begin_stream(self) -> None:
        self.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    def stream(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self.send(b"0\r\n\r\n")

    def wait_until_closed(self) -> None:
        """Return when the client has closed its end."""
        with contextlib.suppress(OSError):
            while self._file.read1(4096):
                pass

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._file.close()
        self.socket.close()


@dataclass
class WireServer:
    """Runs a script for each connection, on a separate thread."""

    script: Callable[[Peer], object]
    tls: bool | ssl.SSLContext = False
    connections: int = 0
    port: int = 0
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._peers: list[Peer] = []
        self._threads = [threading.Thread(target=self._accept, name="wire-accept")]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(10)
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(10)
        assert not self.failures, self.failures

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection,), name="wire-serve")
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self.tls:
                connection = _context(self.tls).wrap_socket(connection, server_side=True)
        except OSError:
            connection.close()
            return
        peer = Peer(connection)
        self._peers.append(peer)
        try:
            self.script(peer)
        except OSError:
            pass  # the client has left, as in some tests
        except BaseException as error:  # noqa: BLE001 - reported by stop()
            self.failures.append(error)
        finally:
            peer.close()


def _context(tls: bool | ssl.SSLContext) -> ssl.SSLContext:
    if isinstance(tls, ssl.SSLContext):
        return tls
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    return context


Serve = Callable[..., WireServer]
"""The fixture `serve`: starts a server that runs a script for each connection."""

Connect = Callable[..., Client]
"""The fixture `connect`: creates a client of a URL or a function."""

JsonResponse = Callable[..., BufferedResponse]
"""The fixture `json_answer`: creates a response from a Python value."""
