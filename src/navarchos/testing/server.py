"""The API server that a test needs, in process or real.

`navarchos.testing.apiserver.ApiServer` runs in this process and responds in milliseconds;
`navarchos.testing.controlplane.ControlPlane` runs the real programs. A test that is written against
`Server` works with either.
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
    """An API server that a test starts, fills with objects, inspects and stops."""

    def start(self) -> Self:
        """Begin to serve; return the server itself. Do nothing if it is running."""
        ...

    def stop(self) -> None:
        """Stop the server and everything that belongs to it. May be repeated."""
        ...

    @property
    def url(self) -> str:
        """The base address."""
        ...

    def client_config(self, *, user_agent: str = ...) -> ClientConfig:
        """Return the configuration of a client that may do everything.

        Args:
            user_agent: Identifies the client in `requests_by`.
        """
        ...

    def client(self, *, user_agent: str = ...) -> Client:
        """Return a client with that configuration; the caller closes it."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of the objects."""
        ...

    def kubeconfig(self) -> JsonObject:
        """Return a kubeconfig of a user who may do everything."""
        ...

    def write_kubeconfig(self, path: str | os.PathLike[str]) -> None:
        """Write the kubeconfig to a file that only its owner can read."""
        ...

    def install(self, *manifests: Mapping[str, object]) -> None:
        """Create objects with their status; return when they can be used."""
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
        """Call `listener` after writes; return a function that undoes this."""
        ...

    def compact(self) -> None:
        """Forget the history of changes."""
        ...

    @property
    def requests(self) -> Mapping[str, int]:
        """The number of received requests by verb; an eviction counts only as `evict`."""
        ...

    def requests_by(self, agent: str) -> Mapping[str, int]:
        """Return `requests` of the clients whose user agent begins with `agent`."""
        ...

    @property
    def audit(self) -> Sequence[AuditRecord]:
        """The latest requests, oldest first; at most 10,000."""
        ...


if TYPE_CHECKING:
    from navarchos.testing.apiserver import ApiServer
    from navarchos.testing.controlplane import ControlPlane

    def _check_protocol(in_process: ApiServer, real: ControlPlane) -> tuple[Server, Server]:
        """Let the type checker compare both servers with the protocol."""
        return in_process, real
