"""The fault proxy in front of a server socket that the test controls."""

import contextlib
import random
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from navarchos.client import Client, ClientConfig, Resource
from navarchos.errors import AlreadyStarted, ConfigError, NotStarted
from navarchos.meta import Object
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.faultproxy import Direction, FaultProxy, WireFault, WireFaultKind

LIMIT = 20.0
SHORT = 0.05
"""Seconds of silence after which a test believes that nothing comes. A slow machine may make
such a test pass wrongly, and never fail."""

TLS = Path(__file__).parents[1] / "client" / "tls"


@dataclass
class Pair:
    """A client's socket and the server's socket behind the proxy."""

    client: socket.socket
    server: socket.socket

    def close(self) -> None:
        self.client.close()
        self.server.close()


Connect = Callable[[], Pair]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT)
        yield listener


@pytest.fixture
def proxy(listener: socket.socket) -> Iterator[FaultProxy]:
    with FaultProxy(f"http://127.0.0.1:{listener.getsockname()[1]}") as proxy:
        yield proxy


def port_of(proxy: FaultProxy) -> int:
    return int(proxy.url.rpartition(":")[2])


@pytest.fixture
def connect(listener: socket.socket, proxy: FaultProxy) -> Iterator[Connect]:
    pairs: list[Pair] = []

    def make() -> Pair:
        client = socket.create_connection(("127.0.0.1", port_of(proxy)), timeout=LIMIT)
        server, _ = listener.accept()
        server.settimeout(LIMIT)
        pairs.append(Pair(client, server))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.close()


@pytest.fixture
def pair(connect: Connect) -> Pair:
    return connect()


def read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        assert part, f"it ended after {data!r}"
        data += part
    return data


def is_silent(sock: socket.socket) -> bool:
    sock.settimeout(SHORT)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(LIMIT)
    return False


def has_ended(sock: socket.socket) -> bool:
    return sock.recv(1) == b""


def test_without_a_fault_bytes_and_ends_pass_both_ways(pair: Pair) -> None:
    pair.client.sendall(b"question")
    assert read(pair.server, 8) == b"question"
    pair.client.shutdown(socket.SHUT_WR)
    assert has_ended(pair.server)
    pair.server.sendall(b"answer")
    assert read(pair.client, 6) == b"answer"
    pair.server.shutdown(socket.SHUT_WR)
    assert has_ended(pair.client)


def test_more_than_any_buffer_holds_arrives_whole_and_in_order(pair: Pair) -> None:
    data = random.Random(1).randbytes(5_000_000)
    sender = threading.Thread(target=pair.server.sendall, args=(data,))
    sender.start()
    assert read(pair.client, len(data)) == data
    sender.join(LIMIT)


def test_a_cut_comes_exactly_where_it_was_asked_for(pair: Pair, proxy: FaultProxy) -> None:
    assert proxy.strike(WireFault(WireFaultKind.CUT, after_bytes=5)) == 1
    pair.server.sendall(b"01")
    pair.server.sendall(b"23456789")
    assert read(pair.client, 5) == b"01234"
    assert has_ended(pair.client)
    assert proxy.wait_for_strikes(1, LIMIT)


def test_lines_are_counted_before_bytes(pair: Pair, proxy: FaultProxy) -> None:
    proxy.strike(WireFault(WireFaultKind.CUT, after_lines=2, after_bytes=3))
    pair.server.sendall(b"on")
    pair.server.sendall(b"e\ntwo\nthree\n")
    assert read(pair.client, 11) == b"one\ntwo\nthr"
    assert has_ended(pair.client)


def test_two_faults_strike_each_at_its_own_place(pair: Pair, proxy: FaultProxy) -> None:
    proxy.strike(WireFault(WireFaultKind.CUT, after_bytes=6))
    proxy.strike(WireFault(WireFaultKind.DUPLICATE, after_bytes=2))
    pair.server.sendall(b"0123456789")
    assert read(pair.client, 10) == b"0123452345"
    assert has_ended(pair.client)
    assert proxy.strikes == 2


def test_a_reset_is_a_reset_at_both_ends(pair: Pair, proxy: FaultProxy) -> None:
    proxy.strike(WireFault(WireFaultKind.RESET))
    for sock in (pair.client, pair.server):
        with pytest.raises(ConnectionResetError):
            sock.recv(1)


def test_a_half_close_ends_one_direction_and_leaves_the_other(
    pair: Pair, proxy: FaultProxy
) -> None:
    proxy.strike(WireFault(WireFaultKind.HALF_CLOSE, after_bytes=2))
    pair.server.sendall(b"0123")
    assert read(pair.client, 2) == b"01"
    assert has_ended(pair.client)
    pair.client.sendall(b"still here")
    assert read(pair.server, 10) == b"still here"


def test_a_stall_in_mid_line_holds_back_all_that_follows_until_it_heals(
    pair: Pair, proxy: FaultProxy
) -> None:
    proxy.strike(WireFault(WireFaultKind.STALL, after_lines=1, after_bytes=3))
    pair.server.sendall(b"one\ntwo and more\n")
    assert read(pair.client, 7) == b"one\ntwo"
    pair.server.sendall(b"three\n")
    pair.server.shutdown(socket.SHUT_WR)
    assert is_silent(pair.client)
    pair.client.sendall(b"the other way")
    assert read(pair.server, 13) == b"the other way"
    proxy.heal()
    assert read(pair.client, 16) == b" and more\nthree\n"
    assert has_ended(pair.client)


@pytest.mark.parametrize("leave", ["close", "reset"])
def test_after_a_drop_nobody_hears_anything_not_even_of_an_end(
    pair: Pair, proxy: FaultProxy, leave: str
) -> None:
    for direction in Direction:
        proxy.strike(WireFault(WireFaultKind.DROP, direction))
    pair.server.sendall(b"lost")
    pair.client.sendall(b"lost")
    assert is_silent(pair.client)
    assert is_silent(pair.server)
    if leave == "reset":
        pair.server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    pair.server.close()
    assert is_silent(pair.client)
    proxy.heal()
    assert is_silent(pair.client), "dropped bytes stay lost"


def test_a_delay_comes_late_and_in_order(pair: Pair, proxy: FaultProxy) -> None:
    proxy.strike(WireFault(WireFaultKind.DELAY, seconds=LIMIT * 10))
    pair.server.sendall(b"one ")
    pair.server.sendall(b"two")
    assert is_silent(pair.client)
    proxy.heal()
    assert read(pair.client, 7) == b"one two"
    proxy.strike(WireFault(WireFaultKind.DELAY, seconds=SHORT))
    pair.server.sendall(b"three")
    assert read(pair.client, 5) == b"three"


def test_refused_connections_are_refused_and_healed_ones_are_not(
    pair: Pair, proxy: FaultProxy, connect: Connect
) -> None:
    before = port_of(proxy)
    for _ in range(3):
        proxy.refuse()
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", before), timeout=LIMIT)
        proxy.heal()
        pair = connect()
        pair.client.sendall(b"x")
        assert read(pair.server, 1) == b"x"
    assert port_of(proxy) == before
    assert proxy.accepted == 4


def test_faults_for_new_connections_leave_the_open_ones_alone(
    pair: Pair, proxy: FaultProxy, connect: Connect
) -> None:
    proxy.strike_next(WireFault(WireFaultKind.CUT, after_bytes=1))
    proxy.strike_new(WireFault(WireFaultKind.CUT, Direction.TO_SERVER, after_bytes=1))
    first, second = connect(), connect()
    for each in (pair, first, second):
        each.server.sendall(b"ab")
    assert read(pair.client, 2) == b"ab"
    assert read(first.client, 1) == b"a"
    assert has_ended(first.client)
    assert read(second.client, 2) == b"ab"
    second.client.sendall(b"ab")
    assert read(second.server, 1) == b"a"
    assert has_ended(second.server)
    proxy.heal()
    healed = connect()
    healed.client.sendall(b"ab")
    assert read(healed.server, 2) == b"ab"


def test_a_server_that_is_gone_resets_the_client(listener: socket.socket) -> None:
    with FaultProxy(f"http://127.0.0.1:{listener.getsockname()[1]}") as proxy:
        listener.close()
        with (
            pytest.raises(ConnectionResetError),
            socket.create_connection(("127.0.0.1", port_of(proxy)), timeout=LIMIT) as client,
        ):
            client.recv(1)


def test_a_stop_ends_every_connection_in_whatever_state_and_leaves_no_descriptor(
    listener: socket.socket, open_descriptors: Callable[[], int]
) -> None:
    before = open_descriptors()
    for kind in (WireFaultKind.STALL, WireFaultKind.DROP, WireFaultKind.HALF_CLOSE):
        proxy = FaultProxy(f"http://127.0.0.1:{listener.getsockname()[1]}").start()
        with socket.create_connection(("127.0.0.1", port_of(proxy)), timeout=LIMIT) as client:
            server, _ = listener.accept()
            with server:
                proxy.strike(WireFault(kind))
                proxy.stop()
                with contextlib.suppress(ConnectionResetError):
                    assert has_ended(client)
        proxy.stop()
        assert proxy.open_connections == 0
    assert open_descriptors() == before


def test_life_cycle_errors_name_the_proxy() -> None:
    proxy = FaultProxy("http://127.0.0.1:1")
    for use in (lambda: proxy.url, proxy.refuse, proxy.heal):
        with pytest.raises(NotStarted, match="the fault proxy"):
            use()
    with proxy, pytest.raises(AlreadyStarted):
        proxy.start()
    with pytest.raises(AlreadyStarted):
        proxy.start()


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="a host and a port"):
        FaultProxy("http://127.0.0.1")
    for wrong in (
        {"kind": WireFaultKind.CUT, "after_bytes": -1},
        {"kind": WireFaultKind.CUT, "after_lines": -1},
        {"kind": WireFaultKind.CUT, "seconds": 1.0},
        {"kind": WireFaultKind.DELAY},
    ):
        with pytest.raises(ConfigError):
            WireFault(**wrong)


def test_a_drawn_fault_depends_on_the_seed_alone() -> None:
    def draw(seed: int) -> list[WireFault]:
        rand = random.Random(seed)
        return [WireFault.draw(rand, bytes_at_most=99, seconds_at_most=1) for _ in range(200)]

    assert draw(7) == draw(7) != draw(8)
    drawn = draw(7)
    assert {fault.kind for fault in drawn} == set(WireFaultKind)
    assert {fault.direction for fault in drawn} == set(Direction)
    assert all(0 <= fault.after_bytes <= 99 for fault in drawn)


def test_it_stands_in_front_of_tls_without_knowing(
    listener: socket.socket, proxy: FaultProxy
) -> None:
    trusted = ssl.create_default_context(cafile=str(TLS / "cert.pem"))
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")

    def serve() -> None:
        server, _ = listener.accept()
        with own.wrap_socket(server, server_side=True) as secure:
            secure.sendall(b"secret")
            with contextlib.suppress(OSError):
                secure.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    plain = socket.create_connection(("127.0.0.1", port_of(proxy)), timeout=LIMIT)
    with trusted.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
        assert read(secure, 6) == b"secret"
        proxy.strike(WireFault(WireFaultKind.RESET))
        with contextlib.suppress(ConnectionResetError):  # the TLS layer may report it as an end
            assert secure.recv(1) == b""
    thread.join(LIMIT)


class ConfigMap(Object, frozen=True):
    """An object with a name only."""


def test_a_client_works_through_it() -> None:
    maps = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=ConfigMap)
    with (
        ApiServer() as server,
        FaultProxy(server.url) as proxy,
        Client(ClientConfig(proxy.url)) as client,
    ):
        client.resource(maps).create({"metadata": {"name": "a"}}, "default")
        assert [each.metadata.name for each in client.resource(maps).list("default").items] == ["a"]
        assert proxy.accepted == 1
