"""Ports for servers that cannot choose one themselves."""

import socket
import sys
from contextlib import ExitStack
from typing import Final

__all__ = ["HOST", "HeldPort", "hold_ports"]

HOST: Final = "127.0.0.1"
"""Where everything listens."""


class HeldPort:
    """A port on loopback that is kept for a server of ours, however late it starts.

    A socket is bound to it and does not listen. The kernel gives such a port to nobody
    who asks for any, be it to listen or to connect from; but a server that asks for this
    one, with SO_REUSEADDR as Go's listeners do, may listen on it, as often as it likes.

    Does not promise: that nobody who asks for its very number takes it first; nor, where
    nobody may listen beside a bound socket, as only Linux allows, that the kernel does not
    give it away.

    Lifecycle: held from the start until `release`, which may be repeated.

    Attributes:
        number: Of the port.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, 0))
        except OSError:
            self._socket.close()
            raise
        self.number: Final = int(self._socket.getsockname()[1])
        if sys.platform != "linux":
            self.release()  # or it would be in the server's way

    def release(self) -> None:
        """Let anybody have it whom the kernel gives it to."""
        self._socket.close()


def hold_ports(count: int) -> tuple[HeldPort, ...]:
    """Return different ports, all held."""
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            held.append(HeldPort())
            stack.callback(held[-1].release)
        stack.pop_all()
    return tuple(held)
