"""A peer that resets the connection around the TLS handshake leaves no socket open.

CPython drops a TLS socket unclosed when the peer resets the connection between `connect`
and the handshake. `navarchos.tls` says why, and closes it.
"""

import contextlib
import gc
import select
import socket
import ssl
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from navarchos.client import Client, ClientConfig, ConnectFailed, TlsFailed
from navarchos.runtime.httpserver import HttpResponse, HttpServer, ServerCertificate

TLS = Path(__file__).parent.parent / "client" / "tls"
RESET = struct.pack("ii", 1, 0)
LIMIT = 10.0

Script = Callable[[socket.socket], None]


def reset(connection: socket.socket) -> None:
    """Close a connection so that the peer gets a reset instead of an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


wraps = threading.Semaphore(0)
"""Released when a client or a server is about to wrap a connected socket."""


def before(connection: socket.socket) -> None:
    """Reset when the client has connected, but before its handshake."""
    assert wraps.acquire(timeout=LIMIT)
    reset(connection)


def during(connection: socket.socket) -> None:
    """Reset when a part of the client's hello has arrived."""
    connection.recv(16)
    reset(connection)


def after(connection: socket.socket) -> None:
    """Reset when the handshake is complete."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    with context.wrap_socket(connection, server_side=True) as secured:
        secured.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@pytest.fixture
def leaks() -> Iterator[Callable[[], list[str]]]:
    """Return a function that collects garbage and returns the warnings of unclosed sockets."""
    gc.collect()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ResourceWarning)

        def unclosed() -> list[str]:
            gc.collect()
            return [str(each.message) for each in seen if each.category is ResourceWarning]

        yield unclosed


@contextlib.contextmanager
def handshakes_after_a_reset() -> Iterator[None]:
    """Begin each handshake only when the peer's reset has arrived.

    This forces the race: otherwise the reset arrives before or after the TLS socket asks
    for its peer, as the kernel likes.
    """
    wrap = ssl.SSLContext.wrap_socket
    while wraps.acquire(blocking=False):
        pass

    def wrap_late(
        self: ssl.SSLContext, sock: socket.socket, *args: Any, **options: Any
    ) -> ssl.SSLSocket:
        wraps.release()
        arrivals = select.poll()
        arrivals.register(sock, select.POLLERR)
        assert arrivals.poll(LIMIT * 1000)
        return wrap(self, sock, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "wrap_socket", wrap_late)
        yield


def serve(listener: socket.socket, script: Script) -> None:
    """Run the script for each connection until the listener is shut down."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                script(connection)


def test_a_client_closes_its_socket_when_the_peer_resets_around_the_handshake(
    leaks: Callable[[], list[str]],
) -> None:
    def requests(script: Script, times: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=serve, args=(listener, script))
            thread.start()
            url = f"https://127.0.0.1:{listener.getsockname()[1]}"
            with Client(ClientConfig(url, ca_file=str(TLS / "cert.pem"))) as client:
                for _ in range(times):
                    with pytest.raises((ConnectFailed, TlsFailed)):
                        client.raw("POST", "/a", body=b"x")
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(LIMIT)
            assert not thread.is_alive()

    with handshakes_after_a_reset():
        requests(before, 100)
    requests(during, 50)
    requests(after, 50)
    assert leaks() == []


def test_a_server_closes_its_socket_when_a_client_resets_before_the_handshake(
    leaks: Callable[[], list[str]],
) -> None:
    certificate = ServerCertificate(TLS / "cert.pem", TLS / "key.pem")
    server = HttpServer(
        "metrics",
        ("127.0.0.1", 0),
        lambda path, query: HttpResponse.text(200, ""),
        certificate=certificate,
    )
    server.start()
    with handshakes_after_a_reset():
        for _ in range(50):
            reset(socket.create_connection(("127.0.0.1", server.port)))
        assert server.stop(LIMIT)
    assert leaks() == []
