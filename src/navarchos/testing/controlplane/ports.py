"""Ports for servers that cannot choose one themselves."""

import socket
from contextlib import ExitStack
from typing import Final

__all__ = ["HOST", "free_ports"]

HOST: Final = "127.0.0.1"
"""Where everything listens."""


def free_ports(count: int) -> list[int]:
    """Return different ports on loopback that nobody uses now.

    Does not promise that nobody takes them a moment later: whoever starts a server on
    one must be ready to try again.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
