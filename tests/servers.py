"""Which API server the tests of both talk to: ours in this process, or a real one.

`--server=real` starts a real one, without controllers, as ours has none either. A
server that runs already is named by `NAVARCHOS_CONTRACT_KUBECONFIG`, or by
`NAVARCHOS_CONTRACT_URL` with `NAVARCHOS_CONTRACT_TOKEN` and `NAVARCHOS_CONTRACT_CA` (a
file; without one the certificate is not verified).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from navarchos.client import ClientConfig, load_config
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.server import Server

__all__ = ["IN_PROCESS", "REAL", "Served", "named", "serve"]

IN_PROCESS, REAL = "in-process", "real"

_PREFIX = "NAVARCHOS_CONTRACT_"


@dataclass(frozen=True)
class Served:
    """A server that runs.

    Attributes:
        kind: `IN_PROCESS` or `REAL`.
        config: How to reach it as somebody who may do everything.
    """

    kind: str
    config: ClientConfig


def named() -> bool:
    """Whether the environment names a server that runs."""
    return any(os.environ.get(_PREFIX + name) for name in ("URL", "KUBECONFIG"))


@contextmanager
def serve(kind: str) -> Iterator[Served]:
    """Start a server of that kind, or use the real one that the environment names."""
    if kind == REAL and named():
        yield Served(kind, _from_environment())
        return
    server: Server = (
        ApiServer() if kind == IN_PROCESS else ControlPlane(controllers=False, scheduler=False)
    )
    with TemporaryDirectory(prefix="contract-") as directory:
        server.start()
        try:
            path = Path(directory, "kubeconfig")
            server.write_kubeconfig(path)
            yield Served(kind, load_config(kubeconfig=path))
        finally:
            server.stop()


def _from_environment() -> ClientConfig:
    if kubeconfig := os.environ.get(_PREFIX + "KUBECONFIG"):
        return load_config(kubeconfig=kubeconfig)
    token, authority = os.environ.get(_PREFIX + "TOKEN"), os.environ.get(_PREFIX + "CA")
    return ClientConfig(
        os.environ[_PREFIX + "URL"].rstrip("/"),
        ca_file=authority,
        verify=authority is not None,
        authorization=(lambda: f"Bearer {token}") if token else None,
    )
