"""Looks at a server's health, and waits for it."""

import ssl
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import Stopped
from navarchos.stopping import StopToken
from navarchos.testing.controlplane.errors import PartFailed, PartNotReady
from navarchos.testing.controlplane.guard import Guard
from navarchos.testing.controlplane.layout import HOST

__all__ = ["ReadinessCheck", "ReadinessWaiter", "http_health"]

_ANSWER_TIMEOUT: Final = 5.0
_PERIOD: Final = 0.05
_SHOWN: Final = 200

ReadinessCheck = Callable[[], str]
"""Tells what is missing; `""` when nothing is."""


def http_health(port: int, path: str, authority: Path | None = None) -> str:
    """Ask a server on loopback for its health.

    Args:
        port: Where it listens.
        path: What to ask for.
        authority: The certificate to trust; `None` for a server without TLS.

    Returns:
        `""` when it answers 200, else what happened instead.
    """
    connection = (
        HTTPConnection(HOST, port, timeout=_ANSWER_TIMEOUT)
        if authority is None
        else HTTPSConnection(
            HOST,
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
        return str(error) or type(error).__name__
    finally:
        connection.close()
    if response.status == 200:
        return ""
    text = " ".join(body.decode("utf-8", "replace").split())
    return f"HTTP status {response.status}: {text[:_SHOWN]}"


class ReadinessWaiter:
    """Waits for servers to become what they should be, as long as they all run.

    Args:
        guard: Keeps the servers.
        stop: Frees who waits.
        timeout: Seconds for each wait.
        clock: Source of deadlines.
    """

    def __init__(
        self, guard: Guard, *, stop: StopToken, timeout: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._guard = guard
        self._stop = stop
        self._timeout = timeout
        self._clock = clock

    def until(self, part: str, look: ReadinessCheck) -> None:
        """Wait until `look` misses nothing.

        Raises:
            PartNotReady: The time passed; the part named is who is waited for.
            PartFailed: A server ended meanwhile, this one or another.
            Stopped: The stop token was set.
            GuardLost: The guard is gone.
        """
        deadline = self._clock.monotonic() + self._timeout
        while why := look():
            self.check()
            if self._clock.monotonic() >= deadline:
                raise PartNotReady(part, self._timeout, why, self._guard.tail(part))
            if self._stop.wait(_PERIOD):
                raise Stopped(self._stop.reason or "stopped")

    def check(self) -> None:
        """Raise `PartFailed` if a server has ended."""
        for part, status in self._guard.status().items():
            if status is not None:
                raise PartFailed(part, status, self._guard.tail(part))
