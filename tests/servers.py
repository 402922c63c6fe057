"""The API server of tests for both servers: the in-process server or a real one.

`--server=real` starts a real server without controllers, which the in-process server does
not have either. A running server is named by `NAVARCHOS_CONTRACT_KUBECONFIG`, or by
`NAVARCHOS_CONTRACT_URL` with `NAVARCHOS_CONTRACT_TOKEN` and `NAVARCHOS_CONTRACT_CA` (a
file; without one the certificate is not verified).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from navarchos.client import ClientConfig
from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.environment import environment
from navarchos.testing.server import Server

__all__ = ["IN_PROCESS", "REAL", "Served", "named", "serve"]

IN_PROCESS, REAL = "in-process", "real"

_PREFIX = "NAVARCHOS_CONTRACT_"


@dataclass(frozen=True)
class Served:
    """A running server.

    Attributes:
        kind: `IN_PROCESS` or `REAL`.
        config: The client configuration of the administrator.
        server: The server object; `None` for an existing server.
        kubeconfig: The configuration as a file; `None` for a server named by its address.
    """

    kind: str
    config: ClientConfig
    server: Server | None = None
    kubeconfig: Path | None = None

    def restart(self) -> None:
        """Restart the server: connections end; address and objects stay."""
        if isinstance(self.server, ControlPlane):
            self.server.restart_apiserver()
        else:
            assert self.server is not None, "it is not ours"
            self.server.stop()
            self.server.start()

    def forget(self) -> None:
        """Compact the history: a page or watch of an earlier resourceVersion gets 410."""
        assert self.server is not None, "it is not ours"
        self.server.compact()
        if isinstance(self.server, ControlPlane):
            self.restart()  # its cache keeps the history that etcd has compacted


def named() -> bool:
    """Return whether the environment names a running server."""
    return any(os.environ.get(_PREFIX + name) for name in ("URL", "KUBECONFIG"))


@contextmanager
def serve(kind: str) -> Iterator[Served]:
    """Start a server of this kind, or use the real one that the environment names."""
    if kind == REAL and (url := os.environ.get(_PREFIX + "URL")):
        yield Served(kind, _by_token(url.rstrip("/")))
        return
    named_file = os.environ.get(_PREFIX + "KUBECONFIG") if kind == REAL else None
    with environment(named_file or kind) as found:
        yield Served(kind, found.config, found.server, found.kubeconfig)


def _by_token(url: str) -> ClientConfig:
    token, authority = os.environ.get(_PREFIX + "TOKEN"), os.environ.get(_PREFIX + "CA")
    return ClientConfig(
        url,
        ca_file=authority,
        verify=authority is not None,
        authorization=(lambda: f"Bearer {token}") if token else None,
    )
