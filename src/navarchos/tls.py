"""Closing the socket of a TLS handshake that failed.

CPython's `SSLSocket._create` takes the descriptor out of the plain socket and then asks
the new TLS socket for its peer. If the peer has reset the connection by then, the
question raises, and the TLS socket is dropped without being closed: the caller has only
the plain socket, which no longer owns the descriptor. The descriptor stays open until the
garbage collector finds the object, with a `ResourceWarning`.

So code that wraps a socket calls `close_dropped_sockets` when that fails. A
`ResourceWarning` about an `ssl.SSLSocket` then always means a real leak.
"""

import ssl
import traceback

__all__ = ["close_dropped_sockets"]


def close_dropped_sockets(error: BaseException) -> None:
    """Close the TLS sockets whose methods raised `error`.

    The traceback is the only place that still refers to such a socket: it is the `self` of
    a frame there. Closing a socket that is already closed is harmless.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        found = frame.f_locals.get("self")
        if isinstance(found, ssl.SSLSocket):
            found.close()
