"""A gateway between a manager and its server, which kills the manager after a number of writes."""

import base64
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from navarchos.testing.controlplane.credentials import write_private
from navarchos.testing.controlplane.layout import HOST

__all__ = ["Gateway", "Write", "gateway"]

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_UNCOUNTED: Final = frozenset({"events", "leases"})
"""Writes whose number depends on how long a case takes."""

_OF_ONE_CONNECTION: Final = frozenset({"connection", "transfer-encoding", "keep-alive"})


@dataclass(frozen=True)
class Write:
    """A write that the server has answered.

    Attributes:
        life: The number of the process that sent it, from 1.
        text: Its method and path.
        status: The status of the answer.
        answer: The name of the object in the answer; empty if it has none.
    """

    life: int
    text: str
    status: int
    answer: str

    @property
    def created(self) -> bool:
        """Whether it has created an object."""
        return self.status == http.HTTPStatus.CREATED


class Gateway:
    """Forwards the requests of a manager to its server, and can kill the manager.

    Writes are forwarded one at a time. When the server has carried out the last write of a life,
    the manager is killed before it receives the answer, and nothing more of it is forwarded. So
    the manager dies between two writes, wherever its threads are. A refused write does not count.

    Threads: safe from any thread.

    Attributes:
        kubeconfig: The configuration of the manager: as before, with the address of the gateway.
    """

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        config: Any = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        (context,) = (c for c in config["contexts"] if c["name"] == config["current-context"])
        (cluster,) = (c for c in config["clusters"] if c["name"] == context["context"]["cluster"])
        self._upstream = urlsplit(cluster["cluster"]["server"])
        self._tls = _tls_of(cluster["cluster"]) if self._upstream.scheme == "https" else None
        gateway = self

        class Handler(_Handler):
            owner = gateway

        self._server = _Server((HOST, 0), Handler)
        cluster["cluster"] = {"server": f"http://{HOST}:{self._server.server_port}"}
        self.kubeconfig = directory / "gateway-kubeconfig"
        write_private(self.kubeconfig, json.loads(json.dumps(config)))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._write_lock = threading.RLock()  # held while a write is forwarded
        self._changed = threading.Condition()
        self._open: set[http.client.HTTPConnection] = set()  # guarded by _changed
        self._writes: list[Write] = []  # guarded by _changed
        self._life = 0  # guarded by _changed
        self._left: int | None = None  # guarded by _changed
        self._is_dead = True  # guarded by _changed
        self._kill: Callable[[], None] = lambda: None

    def begin(self, kill: Callable[[], None], *, after: int | None = None) -> None:
        """Forward the requests of a new process.

        Args:
            kill: Kills it and waits for its end.
            after: The number of writes after which it dies; it survives if this is absent.
        """
        with self._changed:
            self._life += 1
            self._kill, self._left, self._is_dead = kill, after, False

    def spare(self) -> bool:
        """Let the present process live; return `False` if it was killed already."""
        with self._write_lock, self._changed:
            self._left = None
            return not self._is_dead

    @property
    def is_dead(self) -> bool:
        """Whether the process was killed."""
        with self._changed:
            return self._is_dead

    @property
    def writes(self) -> list[Write]:
        """The writes so far, of all processes."""
        with self._changed:
            return list(self._writes)

    def start(self) -> None:
        """Begin to accept connections."""
        self._thread.start()

    def stop(self) -> None:
        """End all connections."""
        self._end_connections()
        self._server.shutdown()
        self._thread.join()
        self._end_connections()
        self._server.server_close()

    @property
    def life(self) -> int:
        """The number of the present process."""
        with self._changed:
            return self._life

    def connect(self, life: int) -> http.client.HTTPConnection:
        """Return a connection to the server; `release` ends it.

        Raises:
            ConnectionError: The process was killed.
        """
        host, port = self._upstream.hostname or "", self._upstream.port
        made = (
            http.client.HTTPConnection(host, port)
            if self._tls is None
            else http.client.HTTPSConnection(host, port, context=self._tls)
        )
        with self._changed:
            self._require_locked(life)
            self._open.add(made)
        made.connect()
        return made

    def release(self, connection: http.client.HTTPConnection) -> None:
        """Close a connection to the server."""
        with self._changed:
            self._open.discard(connection)
        connection.close()

    @contextmanager
    def turn(self, life: int, method: str, path: str) -> Iterator[bool]:
        """Wait until a request of a process may be forwarded.

        Yields:
            Whether it is a counted write, whose answer `answered` must be given.

        Raises:
            ConnectionError: The process was killed.
        """
        is_counted = method in _WRITES and _UNCOUNTED.isdisjoint(urlsplit(path).path.split("/"))
        if not is_counted:
            yield False
            return
        with self._write_lock:
            with self._changed:
                self._require_locked(life)
            yield True

    def answered(self, text: str, status: int, body: bytes) -> None:
        """Record the answer of a counted write; kill the process if it was the last one.

        Raises:
            ConnectionError: The process was killed, so there is no one to answer.
        """
        with self._changed:
            self._writes.append(Write(self._life, text, status, _name_in(body)))
            if status >= http.HTTPStatus.BAD_REQUEST or self._left is None:
                return  # a refused write changes nothing
            self._left -= 1
            if self._left:
                return
        self._kill()
        self._end_connections()
        with self._changed:
            self._is_dead = True
        raise ConnectionResetError("the process was killed")

    def _require_locked(self, life: int) -> None:
        if self._is_dead or self._life != life:
            raise ConnectionResetError("the process was killed")

    def _end_connections(self) -> None:
        """Wake the threads that wait for the server; each of them then ends."""
        with self._changed:
            sockets = [connection.sock for connection in self._open]
        for each in sockets:
            if each is not None:
                with suppress(OSError):  # it has ended already
                    each.shutdown(socket.SHUT_RDWR)
        self._server.end_connections()


class _Server(ThreadingHTTPServer):
    """A server whose threads end with it."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._connections_lock = threading.Lock()
        self._connections: set[socket.socket] = set()  # guarded by _connections_lock

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._connections_lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._connections_lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        with self._connections_lock:
            connections = list(self._connections)
        for each in connections:
            with suppress(OSError):  # its thread has ended it
                each.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """One connection of the manager."""

    owner: Gateway
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    upstream: http.client.HTTPConnection | None = None

    def setup(self) -> None:
        super().setup()
        self.life = self.owner.life

    def do_GET(self) -> None:
        try:
            self._forward()
        except (OSError, http.client.HTTPException):
            # One of both ends has gone, and the other must notice it.
            self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the names of http.server

    def finish(self) -> None:
        if self.upstream is not None:
            self.owner.release(self.upstream)
        with suppress(OSError):  # it flushes what a dead process does not read
            super().finish()

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Log nothing."""

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.upstream = self.upstream or self.owner.connect(self.life)
        whole = b""
        with self.owner.turn(self.life, self.command, self.path) as is_counted:
            self.upstream.request(self.command, self.path, body, dict(self.headers.items()))
            answer = self.upstream.getresponse()
            if is_counted:
                whole = answer.read()
                self.owner.answered(f"{self.command} {self.path}", answer.status, whole)
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_ONE_CONNECTION | {"content-length"}:
                self.send_header(name, value)
        if is_counted:
            self._send_whole(whole)
        else:
            self._send_parts(answer)

    def _send_whole(self, body: bytes) -> None:
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_parts(self, answer: http.client.HTTPResponse) -> None:
        """Pass a list or a watch on as it comes."""
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while part := answer.read1(1 << 16):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")
        answer.close()  # the connection is used again


@contextmanager
def gateway(kubeconfig: Path, directory: Path) -> Iterator[Gateway]:
    """Run a gateway to the server of a kubeconfig."""
    running = Gateway(kubeconfig, directory)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def _tls_of(cluster: dict[str, Any]) -> ssl.SSLContext:
    data = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"),
        cadata=base64.b64decode(data).decode() if data else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _name_in(body: bytes) -> str:
    try:
        return str(json.loads(body)["metadata"]["name"])
    except (ValueError, KeyError, TypeError):
        return ""
