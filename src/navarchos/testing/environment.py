"""The API server of a test run: in process, a real one, or an existing cluster.

```python
with environment(which, crds=["config/crds"]) as env, env.client() as client:
    ...
```

The counterpart of controller-runtime's `pkg/envtest/server.go`. The server is selected by
an argument and never by an environment variable or `~/.kube/config`: tests write to the
cluster, so the choice has to be explicit.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from navarchos.client import (
    Client,
    ClientConfig,
    NotFound,
    Resource,
    TransportError,
    UpsertOutcome,
    load_config,
)
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import ConfigError, NavarchosError
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.definitions import Source, install_definitions, uninstall_definitions
from navarchos.testing.server import Server

__all__ = ["Environment", "EnvironmentNotReady", "ServerKind", "environment"]

QPS: Final = 1000.0
BURST: Final = 2000
"""The rate limits of test clients, as in envtest: enough for any test, and a limit for a
request loop that does not end."""

_NAMESPACE_TIMEOUT: Final = 5.0  # as in envtest
_NAMESPACE_PERIOD: Final = 0.05  # as in envtest

_NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False, type=dict)


class ServerKind(StrEnum):
    """The kind of API server."""

    IN_PROCESS = "in-process"
    """`ApiServer`, in this process."""
    REAL = "real"
    """A new `ControlPlane`: etcd and kube-apiserver without controllers."""
    EXISTING = "existing"
    """The server of a given kubeconfig."""


@dataclass(frozen=True)
class Environment:
    """A running API server.

    Attributes:
        kind: The kind of server.
        config: The client configuration of the administrator, limited to `QPS` and `BURST`.
        kubeconfig: The same configuration as a file for other programs. The file is removed
            with the environment unless the server is an existing one.
        server: The server object for access beyond the API; `None` for an existing server.
    """

    kind: ServerKind
    config: ClientConfig
    kubeconfig: Path
    server: Server | None = None

    def client(self, *, user_agent: str = "navarchos-test") -> Client:
        """Return a client, which the caller must close; each client has separate limits."""
        return Client(replace(self.config, user_agent=user_agent))


class EnvironmentNotReady(NavarchosError):
    """A server did not create the namespace `default` in time.

    Attributes:
        host: The server.
        seconds: The timeout.
        why: The error of the last request.
    """

    def __init__(self, host: str, seconds: float, why: str) -> None:
        super().__init__(host, seconds, why)
        self.host = host
        self.seconds = seconds
        self.why = why

    def __str__(self) -> str:
        return f"{self.host} has no namespace default after {self.seconds:g} s: {self.why}"


@contextmanager
def environment(
    which: str | os.PathLike[str] = ServerKind.IN_PROCESS,
    *,
    crds: Iterable[Source] = (),
    clean_up: bool = False,
    timeout: float = 60.0,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Environment]:
    """Provide an API server for the length of a `with` block.

    Promises: inside the block, the namespace `default` exists and all
    CustomResourceDefinitions are served. After the block, a server that was started for it
    has stopped; an existing server keeps the objects that were created. Only `which`
    selects the server.

    Args:
        which: `in-process`, `real`, or the path of a kubeconfig, of which the current
            context is used.
        crds: CustomResourceDefinitions to install: objects, files or folders.
        clean_up: Whether to remove the CustomResourceDefinitions created by this call, with
            all their objects, after the block. Definitions that existed before always stay.
        timeout: Seconds until each program of a real server must be ready.
        clock: The clock for deadlines and waits.

    Raises:
        ConfigError: The kubeconfig does not exist or cannot be used.
        ControlPlaneError: A real server cannot be started.
        EnvironmentNotReady: The namespace `default` was not created in time.
        ManifestError: A CustomResourceDefinition cannot be read.
        DefinitionNotReady: A CustomResourceDefinition is not served.
        ApiError: The server rejects a request.
    """
    with ExitStack() as stack:
        found = stack.enter_context(_serve(which, timeout, clock))
        client = stack.enter_context(found.client(user_agent="navarchos-environment"))
        _wait_for_default(client, clock)
        installed = install_definitions(client, *crds, clock=clock)
        made = [each.object for each in installed if each.outcome is UpsertOutcome.CREATED]
        try:
            yield found
        finally:
            if clean_up:
                uninstall_definitions(client, *made, clock=clock)


@contextmanager
def _serve(which: str | os.PathLike[str], timeout: float, clock: Clock) -> Iterator[Environment]:
    if which == ServerKind.IN_PROCESS:
        yield from _started(ServerKind.IN_PROCESS, ApiServer)
    elif which == ServerKind.REAL:
        # Imported here because it needs the extra `controlplane`.
        from navarchos.testing.controlplane import ControlPlane

        def make() -> ControlPlane:
            return ControlPlane(controllers=False, scheduler=False, timeout=timeout, clock=clock)

        yield from _started(ServerKind.REAL, make)
    else:
        yield _existing(Path(which).absolute())


def _started(kind: ServerKind, make: Callable[[], Server]) -> Iterator[Environment]:
    with ExitStack() as stack:
        server = make()
        stack.callback(server.stop)
        server.start()
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="navarchos-"))
        kubeconfig = Path(directory) / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        yield Environment(kind, _limited(server.client_config()), kubeconfig, server)


def _existing(kubeconfig: Path) -> Environment:
    if not kubeconfig.is_file():
        rule = "it must be in-process, real, or the path of an existing kubeconfig"
        raise ConfigError("which", str(kubeconfig), rule)
    config = load_config(kubeconfig=kubeconfig)
    return Environment(ServerKind.EXISTING, _limited(config), kubeconfig)


def _limited(config: ClientConfig) -> ClientConfig:
    return replace(config, qps=QPS, burst=BURST)


def _wait_for_default(client: Client, clock: Clock) -> None:
    """Wait for the namespace `default`, which a server creates shortly after its start."""
    deadline, pause = clock.monotonic() + _NAMESPACE_TIMEOUT, StopToken(clock=clock)
    while True:
        try:
            client.resource(_NAMESPACES).get("default")
        except (NotFound, TransportError) as error:
            if clock.monotonic() >= deadline:
                host = client.config.host
                raise EnvironmentNotReady(host, _NAMESPACE_TIMEOUT, str(error)) from error
        else:
            return
        pause.wait(_NAMESPACE_PERIOD)
