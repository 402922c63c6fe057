"""Fences: a write that is not allowed does not leave the process."""

import pytest
from tests.unit.client.wire import Connect, Peer, Serve

from navarchos.client import BufferedResponse, Client, HttpRequest, RequestTimeout
from navarchos.errors import Stopped


class Fence:
    """Open for a number of calls, then closed."""

    def __init__(self, opens: int, left: float = 30.0) -> None:
        self.opens = opens
        self.left = left
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        if self.asked > self.opens:
            raise Stopped("shut")
        return self.left


def echo(peer: Peer) -> None:
    while (request := peer.receive()) is not None:
        peer.answer(f"{request.method} {request.body.decode()}".encode())


def test_writes_pass_an_open_fence_and_reads_pass_any_fence(serve: Serve, connect: Connect) -> None:
    fence = Fence(opens=100)
    client: Client = connect(serve(echo).url).fenced(fence)
    assert client.raw("POST", "/a", body=b"x").body == b"POST x"
    asked = fence.asked
    assert asked
    shut = client.fenced(Fence(opens=0))
    assert shut.raw("GET", "/a").body == b"GET "
    with pytest.raises(Stopped, match="shut"):
        shut.raw("DELETE", "/a")


def test_the_original_client_has_no_fence(serve: Serve, connect: Connect) -> None:
    client: Client = connect(serve(echo).url)
    client.fenced(Fence(opens=0))
    assert client.raw("POST", "/a", body=b"x").body == b"POST x"


@pytest.mark.rule("RT-20")
@pytest.mark.parametrize("opens", [1, 2])
def test_a_fence_that_closes_late_still_prevents_the_write(
    serve: Serve, connect: Connect, opens: int
) -> None:
    """Closed while connecting, or between head and body: the server never gets a request."""
    seen: list[object] = []

    def read(peer: Peer) -> None:
        try:
            request = peer.receive()
        except (OSError, ValueError):
            return
        # A body that is shorter than its announced length is not a request.
        promised = int(request.headers["content-length"]) if request else 0
        if request and len(request.body) == promised:
            seen.append(request)
            peer.answer(b"")

    server = serve(read)
    client: Client = connect(server.url)
    with pytest.raises(Stopped, match="shut"):
        client.fenced(Fence(opens)).raw("POST", "/a", body=b"x")
    assert client.raw("POST", "/a", body=b"y").status == 200
    assert [request.body for request in seen] == [b"y"]  # type: ignore[attr-defined]  # as received


def test_a_write_waits_no_longer_than_the_fence_allows(connect: Connect) -> None:
    timeouts = []

    def answer(request: HttpRequest) -> BufferedResponse:
        timeouts.append(request.timeout)
        return BufferedResponse(200, {}, b"{}")

    client: Client = connect(answer, timeout=30.0).fenced(Fence(opens=100, left=7.0))
    client.raw("POST", "/a")
    client.raw("POST", "/a", timeout=3.0)
    client.raw("GET", "/a", timeout=30.0)
    assert timeouts[0] == 7.0
    assert timeouts[1] == pytest.approx(3.0, abs=0.5)
    assert timeouts[2] == pytest.approx(30.0, abs=0.5)


@pytest.mark.parametrize("fenced", [True, False])
def test_a_write_without_a_response_is_dropped_and_not_delivered_late(
    serve: Serve, connect: Connect, fenced: bool
) -> None:
    """A reset empties the buffer of the kernel; a normal end would deliver its content."""
    ends: list[str] = []

    def silent(peer: Peer) -> None:
        peer.receive()
        peer.socket.settimeout(20)
        try:
            ends.append("closed" if peer.socket.recv(1) == b"" else "data")
        except ConnectionResetError:
            ends.append("reset")

    server = serve(silent)
    client: Client = connect(server.url)
    sender = client.fenced(Fence(opens=100)) if fenced else client
    with pytest.raises(RequestTimeout):
        sender.raw("POST", "/a", body=b"x", timeout=0.2)
    server.stop()
    assert ends == ["reset" if fenced else "closed"]


def test_an_idle_connection_is_closed_normally(serve: Serve, connect: Connect) -> None:
    ends: list[bytes] = []

    def answer_then_wait(peer: Peer) -> None:
        peer.receive()
        peer.answer(b"")
        peer.socket.settimeout(20)
        ends.append(peer.socket.recv(1))

    server = serve(answer_then_wait)
    client: Client = connect(server.url)
    client.fenced(Fence(opens=100)).raw("POST", "/a", body=b"x")
    client.close()
    server.stop()
    assert ends == [b""]
