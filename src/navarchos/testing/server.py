"""What a test needs of an API server, whichever it is.

`navarchos.testing.apiserver.ApiServer` answers from this process in milliseconds;
`navarchos.testing.controlplane.ControlPlane` runs the real programs. A test that is
written against `Server` takes either.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from navarchos.client import Client, ClientConfig
from navarchos.clock import Clock
from navarchos.testing.apiserver import AuditRecord, Change
from navarchos.testing.apiserver.objects import JsonObject

__all__ = ["Server"]


class Server(Protocol):
    """An API server that a test starts, fills, looks into, and stops."""

    def start(self) -> Self:
        """Begin to serve; returns the server itself. Does nothing when running."""
        ...

    def stop(self) -> None:
        """End it and everything that belongs to it. Repeatable."""
        ...

    @property
    def url(self) -> str:
        """The base address."""
        ...

    def client_config(self, *, user_agent: str = ...) -> ClientConfig:
        """Return how a client reaches it as somebody who may do everything.

        Args:
            user_agent: How `requests_by` tells that client from others.
        """
        ...

    def client(self, *, user_agent: str = ...) -> Client:
        """Return a client with that configuration, to be closed by its user."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock that its objects live by."""
        ...

    def kubeconfig(self) -> JsonObject:
        """Return a kubeconfig of somebody who may do everything."""
        ...

    def write_kubeconfig(self, path: str | os.PathLike[str]) -> None:
        """Write that to a file that only its owner can read."""
        ...

    def install(self, *manifests: Mapping[str, object]) -> None:
        """Create objects, with their status, and see to it that they can be used."""
        ...

    def get(
        self, plural: str, name: str, namespace: str | None = None, group: str = ""
    ) -> JsonObject:
        """Return an object. Read-only."""
        ...

    def list(self, plural: str, namespace: str | None = None, group: str = "") -> list[JsonObject]:
        """Return the objects of a kind, in key order. Read-only."""
        ...

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` after writes; returns the undo."""
        ...

    def compact(self) -> None:
        """Forget the history of changes."""
        ...

    @property
    def requests(self) -> Mapping[str, int]:
        """How many requests came in, by verb; evictions count as `evict` alone."""
        ...

    def requests_by(self, agent: str) -> Mapping[str, int]:
        """Like `requests`, of clients whose user agent begins with `agent`."""
        ...

    @property
    def audit(self) -> Sequence[AuditRecord]:
        """The latest requests, oldest first; at most 10,000."""
        ...


if TYPE_CHECKING:
    from navarchos.testing.apiserver import ApiServer
    from navarchos.testing.controlplane import ControlPlane

    def _both_are(in_process: ApiServer, real: ControlPlane) -> tuple[Server, Server]:
        """Let the type checker compare the two with the protocol."""
        return in_process, real
