"""Chunked bodies, in chunks and in other pieces."""

import gzip
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.wire import Connect, Peer, Serve

from navarchos.client import Client, ClientConfig, ConnectFailed, HttpRequest, RequestTimeout
from navarchos.client.http.body_reader import ChunkDecoder, ChunkedResponse
from navarchos.client.http.connections import RequestContext
from navarchos.client.http.pool import PooledResponse, PooledTransport
from navarchos.errors import Stopped
from navarchos.stopping import StopToken

CERTIFICATE = str(Path(__file__).parent / "tls" / "cert.pem")
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PATIENCE = 30.0


def sending(*pieces: bytes, hang_up: bool = False) -> Callable[[Any], None]:
    """Send the given bytes, then wait until the client has closed its end."""

    def script(peer: Peer) -> None:
        peer.receive()
        for piece in pieces:
            peer.send(piece)
        if not hang_up:
            peer.wait_until_closed()

    return script


def coded(chunks: Sequence[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)


def body_of(client: Client, **options: Any) -> bytes:
    return bytes(client.raw("GET", "/x", **{"timeout": PATIENCE, **options}).body)


@pytest.fixture
def open_answer(serve: Serve) -> Callable[..., PooledResponse]:
    """Send a request and return its response with the body unread."""

    def opened(
        *pieces: bytes, tls: bool = False, hang_up: bool = False, stop: StopToken | None = None
    ) -> PooledResponse:
        server = serve(sending(*pieces, hang_up=hang_up), tls=tls)
        config = ClientConfig(server.url, ca_file=CERTIFICATE if tls else None)
        return PooledTransport(config).send(HttpRequest("GET", "/x", timeout=PATIENCE, stop=stop))

    return opened


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("length", [1, 100, 20_000, 3_000_000])
def test_a_chunked_body_is_read_whole(
    serve: Serve, connect: Connect, tls: bool, length: int
) -> None:
    chunks = [bytes([65 + number % 26]) * 9_000 for number in range(length // 9_000)] + [b"end"]
    server = serve(sending(HEAD, coded(chunks), b"0\r\n\r\n"), tls=tls)
    client = connect(server.url, ca_file=CERTIFICATE if tls else None)
    assert body_of(client) == b"".join(chunks)


def test_a_connection_is_used_again_after_a_chunked_body(serve: Serve, connect: Connect) -> None:
    def twice(peer: Peer) -> None:
        for _ in range(2):
            peer.receive()
            peer.send(HEAD + coded([b"one", b"two"]) + b"0\r\nTrailer: 1\r\n\r\n")
        peer.wait_until_closed()

    server = serve(twice)
    client = connect(server.url)
    assert [body_of(client), body_of(client)] == [b"onetwo", b"onetwo"]
    assert server.connections == 1


@pytest.mark.parametrize(
    "body",
    [
        b"x\r\n",
        b"-1\r\n",
        b"1_0\r\nabcdefghijklmnop\r\n",
        b"\r\n",
        b"3\r\nabcdef\r\n",
        b"f" * 100_000,
        b"0\r\n" + b"Trailer: without end" * 4_000,
    ],
)
def test_a_body_without_valid_chunks_breaks_the_connection(
    open_answer: Callable[..., PooledResponse], body: bytes
) -> None:
    with pytest.raises(ConnectFailed):
        open_answer(HEAD, body).read()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("body", [b"", b"5", b"5\r\nab", b"5\r\nabcde", b"5\r\nabcde\r\n0\r\n"])
def test_a_chunked_body_that_ends_early_breaks_the_connection(
    open_answer: Callable[..., PooledResponse], tls: bool, body: bytes
) -> None:
    with pytest.raises(ConnectFailed):
        open_answer(HEAD, body, tls=tls, hang_up=True).read()


def test_a_chunk_that_trickles_cannot_outlast_the_deadline(serve: Serve, connect: Connect) -> None:
    done = threading.Event()

    def trickle(peer: Peer) -> None:
        peer.receive()
        peer.send(HEAD + b"ffff\r\n")
        while not done.wait(0.01):
            peer.send(b"x")

    client = connect(serve(trickle).url)
    with pytest.raises(RequestTimeout):
        body_of(client, timeout=0.2)
    done.set()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_bytes_that_arrived_are_returned_without_waiting_for_more(
    open_answer: Callable[..., PooledResponse], tls: bool, batch: bool
) -> None:
    answer = open_answer(HEAD, coded([b"first", b"second"]), tls=tls)
    found = b""
    while found != b"firstsecond":
        found += answer.read_some(PATIENCE, batch=batch)
    with pytest.raises(RequestTimeout):
        answer.read_some(0.01, batch=batch)
    answer.close()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("length", [3, 5_000, 100_000])
def test_a_chunk_is_returned_whole_however_it_was_split(
    open_answer: Callable[..., PooledResponse], tls: bool, length: int
) -> None:
    """A server splits an event into the content of its buffer, the rest, and the line end."""
    sent = coded([b"x" * length])
    cuts = (sent[:4096], sent[4096:-2], sent[-2:]) if length > 4096 else (sent[:-2], sent[-2:])
    answer = open_answer(HEAD, *cuts, *cuts, b"0\r\n\r\n", tls=tls)
    assert answer.read_some(PATIENCE).startswith(b"x" * length)
    while answer.read_some(PATIENCE):
        pass
    answer.close()


def test_a_compressed_body_in_chunks_is_unpacked(
    open_answer: Callable[..., PooledResponse],
) -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    packed = gzip.compress(b"one line\n")
    answer = open_answer(head, coded([packed[:9], packed[9:]]), b"0\r\n\r\n")
    assert b"".join(iter(lambda: answer.read_some(PATIENCE), b"")) == b"one line\n"
    answer.close()


def test_a_connection_is_used_again_after_a_stream_that_ended(serve: Serve) -> None:
    def twice(peer: Peer) -> None:
        for _ in range(2):
            peer.receive()
            peer.send(HEAD + coded([b"one", b"two"]) + b"0\r\n\r\n")
        peer.wait_until_closed()

    server = serve(twice)
    transport = PooledTransport(ClientConfig(server.url))
    for _ in range(2):
        answer = transport.send(HttpRequest("GET", "/x", timeout=PATIENCE))
        found = b""
        while part := answer.read_some(PATIENCE):
            found += part
        assert found == b"onetwo"
        answer.close()
    transport.close()
    assert server.connections == 1


@pytest.mark.parametrize("tls", [False, True])
def test_a_list_that_is_read_in_batches_is_complete(
    open_answer: Callable[..., PooledResponse], tls: bool
) -> None:
    chunks = [b"%07d" % number * 1_500 for number in range(300)]
    answer = open_answer(HEAD, *(coded([chunk]) for chunk in chunks), b"0\r\n\r\n", tls=tls)
    pieces = list(iter(lambda: answer.read_some(PATIENCE, batch=True), b""))
    assert b"".join(pieces) == b"".join(chunks)
    answer.close()


@pytest.mark.rule("RT-24")
@pytest.mark.parametrize("tls", [False, True])
def test_stop_unblocks_a_batched_read(
    open_answer: Callable[..., PooledResponse], tls: bool
) -> None:
    stop = StopToken()
    answer = open_answer(HEAD, coded([b"first"]), tls=tls, stop=stop)
    assert answer.read_some(PATIENCE, batch=True) == b"first"
    stopper = threading.Timer(0.05, stop.stop, ["enough"])
    stopper.start()
    with pytest.raises(Stopped):
        answer.read_some(PATIENCE, batch=True)
    stopper.join()
    answer.close()


def test_a_body_that_came_with_its_head_is_read_in_small_pieces() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(HEAD + coded([b"abcdefghij" * 50]) + b"0\r\n\r\n")
        response = ChunkedResponse(RequestContext(), ours, method="GET")
        response.begin()
        pieces = list(iter(lambda: response.read1(7), b""))
    assert b"".join(pieces) == b"abcdefghij" * 50
    assert max(map(len, pieces)) <= 7
    assert response.isclosed()


def test_bytes_after_the_end_of_the_body_are_not_read() -> None:
    decoder, data = ChunkDecoder(), bytearray(b"3\r\nabc\r\n0\r\n\r\n3\r\nxyz\r\n")
    assert decoder.feed(data, len(data)) == b"abc"
    assert decoder.ended
    assert decoder.feed(data, len(data)) == b""


def test_a_body_with_a_length_is_read_whole_and_then_empty() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\none body")
        response = ChunkedResponse(RequestContext(), ours, method="GET")
        response.begin()
        assert response.read(3) == b"one"
        assert response.read() == b" body"
        assert response.isclosed()
        assert response.read() == b""


def test_a_chunked_body_that_was_read_is_empty() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(HEAD + coded([b"abc"]) + b"0\r\n\r\n")
        response = ChunkedResponse(RequestContext(), ours, method="GET")
        response.begin()
        assert response.read() == b"abc"
        assert response.read() == b""
