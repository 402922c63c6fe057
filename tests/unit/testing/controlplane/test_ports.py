"""Ports that are reserved for servers that start later."""

import errno
import socket
import sys
from collections.abc import Iterator

import pytest

from navarchos.testing.controlplane.layout import HOST, HeldPort, hold_ports

IP_LOCAL_PORT_RANGE = 51  # linux/in.h since 6.3; the socket module does not name it


pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux allows listening on a bound port"
)


@pytest.fixture
def port() -> Iterator[HeldPort]:
    held = HeldPort()
    yield held
    held.release()


@pytest.fixture
def asker(port: HeldPort) -> Iterator[socket.socket]:
    """A socket for which the kernel can choose only this port."""
    only = (port.number << 16 | port.number).to_bytes(4, sys.byteorder)
    with socket.socket() as asker:
        try:
            asker.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, only)
        except OSError:
            pytest.skip("the kernel takes no range of ports for one socket: Linux 6.3 does")
        yield asker


def test_a_held_port_is_not_given_to_who_listens_on_any(
    port: HeldPort, asker: socket.socket
) -> None:
    with pytest.raises(OSError) as caught:
        asker.bind((HOST, 0))
    assert caught.value.errno == errno.EADDRINUSE


def test_a_held_port_is_not_given_to_who_asks_for_any_to_use_again(
    port: HeldPort, asker: socket.socket
) -> None:
    asker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with pytest.raises(OSError) as caught:
        asker.bind((HOST, 0))
    assert caught.value.errno == errno.EADDRINUSE


def test_a_held_port_is_not_given_to_who_connects(port: HeldPort, asker: socket.socket) -> None:
    with socket.create_server((HOST, 0)) as server, pytest.raises(OSError) as caught:
        asker.connect(server.getsockname())
    assert caught.value.errno == errno.EADDRNOTAVAIL


def test_a_released_port_is_given_to_who_asks_for_any(port: HeldPort, asker: socket.socket) -> None:
    port.release()
    port.release()
    asker.bind((HOST, 0))
    assert asker.getsockname()[1] == port.number


def test_a_server_listens_on_its_held_port_and_again_after_a_restart(port: HeldPort) -> None:
    for _ in range(2):
        with (
            socket.create_server((HOST, port.number)) as server,
            socket.create_connection((HOST, port.number)) as client,
        ):
            accepted, _ = server.accept()
            # The server's end closes first, so that its port has a connection in TIME_WAIT.
            accepted.close()
            assert client.recv(1) == b""


def test_ports_that_are_held_are_different() -> None:
    held = hold_ports(50)
    assert len({each.number for each in held}) == 50
    for each in held:
        each.release()
