"""The API server of a test run: ours, a real one, or a cluster that exists.

```python
with environment(which, crds=["config/crds"]) as env, env.client() as client:
    ...
```

The counterpart of controller-runtime's `pkg/envtest/server.go`. What its variable
`USE_EXISTING_CLUSTER` decides is an argument here: tests write, so no variable and no
`~/.kube/config` may choose the cluster that they write to.
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
"""What clients in tests may ask, as envtest: more than a test needs, less than a loop
that has gone wild would take from everybody else (TE-01)."""

_DEFAULT_TIMEOUT: Final = 5.0  # this and the next: of the namespace, as envtest (TE-01)
_PERIOD: Final = 0.05

_NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False, type=dict)


class ServerKind(StrEnum):
    """Which server it is."""

    IN_PROCESS = "in-process"
    """`ApiServer`, in this process."""
    REAL = "real"
    """`ControlPlane`, started for this: etcd and kube-apiserver, no controllers."""
    EXISTING = "existing"
    """Somebody's, of a kubeconfig."""


@dataclass(frozen=True)
class Environment:
    """An API server that runs.

    Attributes:
        kind: Which one it is.
        config: How to reach it as somebody who may do everything, within `QPS` and
            `BURST`.
        kubeconfig: The same as a file, for other programs; gone with the environment
            unless the server existed before.
        server: The server, for what goes beyond its API; `None` for an existing one.
    """

    kind: ServerKind
    config: ClientConfig
    kubeconfig: Path
    server: Server | None = None

    def client(self, *, user_agent: str = "navarchos-test") -> Client:
        """Return a client, to be closed by its user; they share no limit."""
        return Client(replace(self.config, user_agent=user_agent))


class EnvironmentNotReady(NavarchosError):
    """A server without a namespace `default`.

    Attributes:
        host: The server.
        seconds: How long it was waited for.
        why: What the last request gave.
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

    Promises: inside, the namespace `default` is there and all definitions are served;
    a server that was started for this is gone afterwards; one that existed is left as it
    is, but for what was created on it. Where to test is what `which` says and nothing
    else.

    Args:
        which: `in-process`, `real`, or the path of a kubeconfig, whose current context
            counts.
        crds: Definitions to install, as objects, files or folders.
        clean_up: Remove, at the end, the definitions that were created for this, with
            all their objects. Those that were there before stay in any case.
        timeout: Seconds that each program of a real server may take to become ready.
        clock: Source of deadlines and waits.

    Raises:
        ConfigError: There is no such kubeconfig, or it cannot be used.
        ControlPlaneError: A real server cannot be had.
        EnvironmentNotReady: The server does not answer as one should.
        ManifestError: A definition cannot be read.
        DefinitionNotReady: A definition is not served.
        ApiError: The server refuses us, or a definition.
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
        # Imported here: it needs the extra `controlplane`.
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
    """Wait for what a server makes a moment after it has begun to answer."""
    deadline, nobody = clock.monotonic() + _DEFAULT_TIMEOUT, StopToken(clock=clock)
    while True:
        try:
            client.resource(_NAMESPACES).get("default")
        except (NotFound, TransportError) as error:
            if clock.monotonic() >= deadline:
                host = client.config.host
                raise EnvironmentNotReady(host, _DEFAULT_TIMEOUT, str(error)) from error
        else:
            return
        nobody.wait(_PERIOD)
