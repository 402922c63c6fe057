"""Requests and failures of the network."""

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.wire import Connect, Peer, Serve

from navarchos.client import (
    Client,
    ClientError,
    ConnectFailed,
    RequestTimeout,
    TlsFailed,
)
from navarchos.errors import ConfigError, Stopped
from navarchos.stopping import StopToken

CERTIFICATE = str(Path(__file__).parent / "tls" / "cert.pem")


def echo(peer: Peer) -> None:
    """Respond to every request of a connection with its first line."""
    while (request := peer.receive()) is not None:
        peer.answer(f"{request.method} {request.target}".encode())


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def reset(peer: Peer) -> None:
    """Reset the connection."""
    linger = struct.pack("ii", 1, 0)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def failure_of(client: Client, method: str = "GET", **options: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        client.raw(method, "/x", **options)
    assert caught.value.__cause__ is not None
    return caught.value


def test_requests_share_a_kept_connection(serve: Serve, connect: Connect) -> None:
    server = serve(echo)
    client = connect(server.url)
    assert [client.raw("GET", f"/{n}").body for n in range(3)] == [b"GET /0", b"GET /1", b"GET /2"]
    assert server.connections == 1


def test_a_path_in_the_host_is_a_prefix_of_every_path(serve: Serve, connect: Connect) -> None:
    client = connect(serve(echo).url + "/k8s/clusters/c-1/")
    assert client.raw("GET", "/api", query={"a": "b c"}).body == b"GET /k8s/clusters/c-1/api?a=b+c"


def test_a_refused_connection_reports_that_nothing_was_sent(connect: Connect) -> None:
    error = failure_of(connect(f"http://127.0.0.1:{unused_port()}"))
    assert isinstance(error, ConnectFailed)
    assert error.refused
    assert not error.sent


def test_a_server_that_does_not_answer_is_a_timeout(serve: Serve, connect: Connect) -> None:
    def never(peer: Peer) -> None:
        peer.receive()
        peer.wait_until_closed()

    error = failure_of(connect(serve(never).url), timeout=0.05)
    assert isinstance(error, RequestTimeout)
    assert error.sent


def test_a_body_that_trickles_cannot_outlast_the_deadline(serve: Serve, connect: Connect) -> None:
    done = threading.Event()

    def trickle(peer: Peer) -> None:
        peer.receive()
        peer.begin_stream()
        while not done.wait(0.01):
            peer.stream(b"x")

    client = connect(serve(trickle).url)
    with pytest.raises(RequestTimeout):
        client.raw("GET", "/x", timeout=0.2)
    done.set()


def test_a_write_on_a_fresh_connection_that_breaks_is_reported_and_not_repeated(
    serve: Serve, connect: Connect
) -> None:
    def hang_up(peer: Peer) -> None:
        peer.receive()
        reset(peer)

    server = serve(hang_up)
    error = failure_of(connect(server.url), "POST")
    assert isinstance(error, ConnectFailed)
    assert error.sent
    assert not error.kept
    assert not error.refused
    assert server.connections == 1


def test_a_body_that_ends_early_breaks_the_connection(serve: Serve, connect: Connect) -> None:
    def cut(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")

    error = failure_of(connect(serve(cut).url), timeout=0.5)
    assert isinstance(error, ConnectFailed)


class OneAnswerThenReset:
    """Responds once per connection, then resets it at the next request."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def __call__(self, peer: Peer) -> None:
        if (request := peer.receive()) is None:
            return
        self.requests.append(request.method)
        peer.answer(b"first of this connection")
        if (request := peer.receive()) is not None:
            self.requests.append(request.method)
            reset(peer)


def test_a_read_on_a_stale_kept_connection_is_repeated(serve: Serve, connect: Connect) -> None:
    script = OneAnswerThenReset()
    server = serve(script)
    client = connect(server.url)
    client.raw("GET", "/")
    assert client.raw("GET", "/").body == b"first of this connection"
    assert server.connections == 2
    assert script.requests == ["GET", "GET", "GET"]


def test_a_write_on_a_stale_kept_connection_is_not_repeated(serve: Serve, connect: Connect) -> None:
    script = OneAnswerThenReset()
    client = connect(serve(script).url)
    client.raw("GET", "/")
    error = failure_of(client, "POST", body={})
    assert isinstance(error, ConnectFailed)
    assert (error.sent, error.kept) == (True, True)
    assert script.requests == ["GET", "POST"]


def test_speaking_tls_to_a_plain_server_fails_as_tls(serve: Serve, connect: Connect) -> None:
    def plain(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        peer.wait_until_closed()

    error = failure_of(connect(serve(plain).url.replace("http", "https")))
    assert isinstance(error, TlsFailed)
    assert not error.sent


def test_a_server_with_an_unknown_certificate_is_not_trusted(
    serve: Serve, connect: Connect
) -> None:
    error = failure_of(connect(serve(echo, tls=True).url))
    assert isinstance(error, TlsFailed)
    assert not error.sent


def test_a_certificate_for_another_name_is_not_trusted(serve: Serve, connect: Connect) -> None:
    url = serve(echo, tls=True).url
    error = failure_of(connect(url, ca_file=CERTIFICATE, tls_server_name="other.test"))
    assert isinstance(error, TlsFailed)


@pytest.mark.parametrize(
    "settings",
    [
        {"ca_file": CERTIFICATE},
        {"ca_file": CERTIFICATE, "tls_server_name": "api.test"},
        {"verify": False},
    ],
)
def test_trust_can_use_a_file_or_another_name_or_be_disabled(
    serve: Serve, connect: Connect, settings: dict[str, Any]
) -> None:
    client = connect(serve(echo, tls=True).url, **settings)
    assert client.raw("GET", "/a").body == b"GET /a"


def test_a_missing_certificate_file_fails_as_tls(serve: Serve, connect: Connect) -> None:
    error = failure_of(connect(serve(echo, tls=True).url, ca_file="/nonexistent/ca.crt"))
    assert isinstance(error, TlsFailed | ConnectFailed)


@pytest.mark.rule("RT-24")
@pytest.mark.parametrize("tls", [False, True])
def test_stop_unblocks_a_request_before_its_response(
    serve: Serve, connect: Connect, tls: bool
) -> None:
    """The server sets the token when the request has arrived, and never responds."""
    stop = StopToken()

    def stop_then_wait(peer: Peer) -> None:
        peer.receive()
        stop.stop("enough")
        peer.wait_until_closed()

    server = serve(stop_then_wait, tls=tls)
    client = connect(server.url, stop=stop, ca_file=CERTIFICATE if tls else None)
    with pytest.raises(Stopped) as caught:
        client.raw("GET", "/x", timeout=60.0)
    assert caught.value.reason == "enough"


@pytest.mark.rule("RT-24")
@pytest.mark.parametrize("tls", [False, True])
def test_stop_unblocks_a_request_with_an_incomplete_body(
    serve: Serve, connect: Connect, tls: bool
) -> None:
    stop = StopToken()

    def half(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        stop.stop("enough")
        peer.wait_until_closed()

    server = serve(half, tls=tls)
    client = connect(server.url, stop=stop, ca_file=CERTIFICATE if tls else None)
    with pytest.raises(Stopped):
        client.raw("GET", "/x", timeout=60.0)


def test_stop_unblocks_a_read_until_the_end_of_the_connection(
    serve: Serve, connect: Connect
) -> None:
    """After `Connection: close` only the response still refers to the socket."""
    stop = StopToken()

    def unending(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nsome")
        stop.stop("enough")
        peer.wait_until_closed()

    client = connect(serve(unending).url, stop=stop)
    with pytest.raises(Stopped):
        client.raw("GET", "/x", timeout=60.0)


@pytest.mark.rule("RT-24")
def test_stop_unblocks_a_request_while_it_connects(
    connect: Connect,
) -> None:
    """The backlog of the server is full, so it does not accept another connection."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    moments = random.Random(seed)
    with full_queue() as port:
        for _ in range(100):
            stop = StopToken()
            client = connect(f"http://127.0.0.1:{port}", stop=stop)
            results: list[BaseException] = []
            thread = threading.Thread(target=ask, args=(client, results))
            thread.start()
            thread.join(moments.choice([0.0, 0.0001, 0.001, 0.01]))
            stop.stop("enough")
            thread.join(5.0)  # the handshake alone would take ten seconds
            assert [type(result) for result in results] == [Stopped]


def ask(client: Client, results: list[BaseException]) -> None:
    try:
        client.raw("GET", "/x", timeout=60.0)
    except BaseException as error:  # noqa: BLE001 - checked by the test
        results.append(error)


@contextlib.contextmanager
def full_queue() -> Iterator[int]:
    """Listen on a port whose backlog is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.mark.rule("RT-24")
def test_stop_unblocks_a_request_in_the_tls_handshake(serve: Serve, connect: Connect) -> None:
    stop = StopToken()
    ends: list[bytes] = []

    def silent(peer: Peer) -> None:
        peer.socket.settimeout(5.0)  # without the stop the client gives up after ten
        peer.socket.recv(1 << 16)
        stop.stop("enough")
        ends.append(peer.socket.recv(1))

    server = serve(silent)
    client = connect(server.url.replace("http", "https"), stop=stop)
    with pytest.raises(Stopped):
        client.raw("GET", "/x", timeout=60.0)
    server.stop()
    assert ends == [b""]


def test_the_next_address_of_a_name_is_tried_when_the_first_refuses(
    serve: Serve, connect: Connect
) -> None:
    """`localhost` is ::1 and 127.0.0.1 on most machines; the server has the latter only."""
    server = serve(echo)
    assert connect(f"http://localhost:{server.port}").raw("GET", "/a").body == b"GET /a"


def test_an_unknown_host_name_reports_that_nothing_was_sent(connect: Connect) -> None:
    error = failure_of(connect("http://no-such-host.invalid"))
    assert isinstance(error, ConnectFailed)
    assert (error.sent, error.refused) == (False, False)


def test_a_stopped_client_sends_nothing(serve: Serve, connect: Connect) -> None:
    server = serve(echo)
    stop = StopToken()
    client = connect(server.url, stop=stop)
    stop.stop("over")
    with pytest.raises(Stopped) as caught:
        client.raw("GET", "/x")
    assert caught.value.reason == "over"
    assert server.connections == 0


def test_closing_a_client_unblocks_its_requests(serve: Serve, connect: Connect) -> None:
    clients: list[Client] = []

    def close(peer: Peer) -> None:
        peer.receive()
        clients[0].close()
        peer.wait_until_closed()

    clients.append(connect(serve(close).url))
    with pytest.raises(Stopped):
        clients[0].raw("GET", "/x", timeout=60.0)


def test_a_late_stop_does_not_harm_the_next_user_of_the_connection(
    serve: Serve, connect: Connect
) -> None:
    """A finished request cannot abort the next request of its connection."""
    from navarchos.client import ClientConfig, HttpRequest
    from navarchos.client.http.connections import RequestContext
    from navarchos.client.http.pool import PooledTransport

    server = serve(echo)
    transport = PooledTransport(ClientConfig(server.url))
    first = transport.send(HttpRequest("GET", "/1", timeout=10.0))
    context: RequestContext = first._context
    assert first.read() == b"GET /1"
    second = transport.send(HttpRequest("GET", "/2", timeout=10.0))
    context.abort()
    assert second.read() == b"GET /2"
    third = transport.send(HttpRequest("GET", "/3", timeout=10.0))
    assert third.read() == b"GET /3"
    third._context.abort()  # idle now: the connection is replaced, not used
    assert transport.send(HttpRequest("POST", "/4", timeout=10.0)).read() == b"POST /4"
    transport.close()
    assert server.connections == 2


def test_lists_are_compressed_only_on_request(serve: Serve, connect: Connect) -> None:
    import gzip

    from navarchos.client import Resource

    encodings: list[str] = []

    def compress(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            encodings.append(request.headers["accept-encoding"])
            zipped = encodings[-1] == "gzip"
            body = b'{"items":[{"metadata":{"name":"a"}}]}'
            if zipped:
                peer.answer(gzip.compress(body), Content_Encoding="gzip")
            else:
                peer.answer(body)

    pods = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)
    url = serve(compress).url
    plain = connect(url).resource(pods).list().items
    assert connect(url, compression=True).resource(pods).list().items == plain
    assert encodings == ["identity", "gzip"]


def test_a_proxy_that_is_not_a_url_is_refused(connect: Connect) -> None:
    with pytest.raises(ConfigError) as caught:
        connect("http://127.0.0.1:1", proxy="socks9://nowhere")
    assert caught.value.name == "proxy"


def test_requests_go_through_the_proxy(serve: Serve, connect: Connect) -> None:
    proxy = serve(echo)
    client = connect("http://api.test", proxy=proxy.url)
    assert client.raw("GET", "/version").body == b"GET http://api.test/version"


def test_https_uses_a_tunnel_and_the_proxy_sees_no_credentials(
    serve: Serve, connect: Connect
) -> None:
    heard: list[Any] = []

    def refuse(peer: Peer) -> None:
        heard.append(peer.receive())
        peer.answer(b"", status=407)

    proxy = serve(refuse)
    client = connect("https://api.test", proxy=proxy.url, authorization=lambda: "Bearer secret")
    error = failure_of(client, "POST", body={})
    assert isinstance(error, ConnectFailed)
    assert not error.sent
    assert [(request.method, request.target) for request in heard] == [("CONNECT", "api.test:443")]
    assert "secret" not in str(heard)
