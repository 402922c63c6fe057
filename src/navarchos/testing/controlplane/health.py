"""Check the health of servers and wait until they are ready."""

import ssl
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import Stopped
from navarchos.stopping import StopToken
from navarchos.testing.controlplane import errors, layout
from navarchos.testing.controlplane.guard import Guard
from navarchos.tls import close_dropped_sockets

__all__ = ["ReadinessCheck", "ReadinessWaiter", "http_health"]

_ANSWER_TIMEOUT: Final = 5.0
_PERIOD: Final = 0.05
_SHOWN: Final = 200

ReadinessCheck = Callable[[], str]
"""Returns what is missing, or `""` when the server is ready."""


def http_health(port: int, path: str, authority: Path | None = None) -> str:
    """Request the health endpoint of a server on loopback.

    Args:
        port: The server's port.
        path: The path of the endpoint.
        authority: The certificate to trust; `None` for a server without TLS.

    Returns:
        `""` for the status 200, otherwise a description of the failure.
    """
    connection = (
        HTTPConnection(layout.HOST, port, timeout=_ANSWER_TIMEOUT)
        if authority is None
        else HTTPSConnection(
            layout.HOST,
            port,
            timeout=_ANSWER_TIMEOUT,
            context=ssl.create_default_context(cafile=str(authority)),
        )
    )
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    except (OSError, HTTPException) as error:
        close_dropped_sockets(error)
        return str(error) or type(error).__name__
    finally:
        connection.close()
    if response.status == 200:
        return ""
    text = " ".join(body.decode("utf-8", "replace").split())
    return f"HTTP status {response.status}: {text[:_SHOWN]}"


class ReadinessWaiter:
    """Waits until servers are ready; fails when one of them ends.

    Args:
        guard: Runs the servers.
        stop: Ends a wait.
        timeout: Seconds for each wait.
        clock: The clock for deadlines.
    """

    def __init__(
        self, guard: Guard, *, stop: StopToken, timeout: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._guard = guard
        self._stop = stop
        self._timeout = timeout
        self._clock = clock

    def until(self, part: str, check: ReadinessCheck) -> None:
        """Wait until `check` returns `""`.

        Raises:
            PartNotReady: The timeout passed.
            PartFailed: A server ended meanwhile, this one or another.
            Stopped: The stop token was set.
            GuardLost: The guard process has ended or does not answer.
        """
        deadline = self._clock.monotonic() + self._timeout
        while why := check():
            self.check()
            if self._clock.monotonic() >= deadline:
                raise errors.PartNotReady(part, self._timeout, why, self._guard.tail(part))
            if self._stop.wait(_PERIOD):
                raise Stopped(self._stop.reason or "stopped")

    def check(self) -> None:
        """Raise `PartFailed` if any server has ended."""
        for part, status in self._guard.status().items():
            if status is not None:
                raise errors.PartFailed(part, status, self._guard.tail(part))
