"""The clusters that a sandbox can use: the simulated one, and what both kinds must offer."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from navarchos.cli.manifest_files import Manifest
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.operator.systems import ROLLOUTS, System
from navarchos.testing.apiserver import ApiServer, Change
from navarchos.testing.cluster import Cluster, ClusterOptions

__all__ = ["MANAGER_AGENT", "SandboxCluster", "SimulatedCluster", "definitions_of"]

MANAGER_AGENT = "navarchos-manager/"
"""How the user agent of the manager begins."""


def definitions_of(systems: Sequence[System]) -> list[Mapping[str, object]]:
    """Return the CustomResourceDefinitions of systems, and of the operator in any case."""
    # The manager of any system needs the operator's kinds.
    found = {system.name: system for system in (ROLLOUTS, *systems)}.values()
    return [each for system in found for each in system.definitions()]


class SandboxCluster(Protocol):
    """A cluster for a sandbox, with its API server.

    Lifecycle: `serve`, then `populate`. What ends it is put on the stack.
    """

    nodes: int
    """The number of nodes at the start."""

    checks_budgets: bool
    """Whether `violations` reports violated budgets."""

    def serve(self, stack: ExitStack, on_change: Callable[[Change], None]) -> None:
        """Start the API server, and call `on_change` after every change."""
        ...

    def populate(self, stack: ExitStack) -> None:
        """Start the nodes and the workloads."""
        ...

    @property
    def url(self) -> str:
        """The URL of the API server."""
        ...

    def write_kubeconfig(self, path: Path) -> None:
        """Write the kubeconfig to a file.

        Raises:
            OSError: It cannot be written.
        """
        ...

    def adapt(self, manifests: Sequence[Manifest]) -> Sequence[Manifest]:
        """Return the user's objects as they can run on this cluster."""
        ...

    @property
    def violations(self) -> Sequence[object]:
        """What the cluster saw that must not happen.

        Raises:
            Exception: A part of the cluster failed.
        """
        ...

    @property
    def evictions(self) -> int:
        """The number of evictions that the server granted."""
        ...

    def manager_requests(self) -> Mapping[str, int]:
        """Return the number of the manager's requests, by verb."""
        ...


class SimulatedCluster:
    """The simulator on an API server in this process.

    Args:
        options: Size and speed.
        port: Port of the server on loopback; 0 uses a free port.
        systems: The systems that the manager runs.
    """

    checks_budgets = True

    def __init__(self, options: ClusterOptions, *, port: int, systems: Sequence[System]) -> None:
        self.nodes = options.nodes
        self._systems = systems
        self._server = ApiServer(port=port, crds=definitions_of(systems))
        self._cluster = Cluster(self._server, options=options)

    @classmethod
    def of_size(
        cls, nodes: int, pods_per_node: int, speed: float, *, port: int, systems: Sequence[System]
    ) -> "SimulatedCluster":
        """Return a cluster whose cloud replaces drained machines."""
        options = ClusterOptions(
            nodes=nodes,
            pods_per_node=pods_per_node,
            speed=speed,
            terminate_label=DRAIN_COMPLETED_LABEL,
        )
        return cls(options, port=port, systems=systems)

    def serve(self, stack: ExitStack, on_change: Callable[[Change], None]) -> None:
        """Start the API server, and call `on_change` after every change."""
        self._server.start()
        stack.callback(self._server.stop)
        stack.callback(self._server.subscribe(on_change))

    def populate(self, stack: ExitStack) -> None:
        """Start the simulator, and what the systems need from outside."""
        self._cluster.populate()
        self._cluster.start()
        stack.callback(self._cluster.stop)
        for system in self._systems:
            if system.simulate is not None:
                stack.enter_context(system.simulate(self._server, self._cluster))

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return self._server.url

    def write_kubeconfig(self, path: Path) -> None:
        """Write the kubeconfig to a file."""
        self._server.write_kubeconfig(path)

    def adapt(self, manifests: Sequence[Manifest]) -> Sequence[Manifest]:
        """Return the objects unchanged: simulated kubelets do not read images."""
        return manifests

    @property
    def violations(self) -> Sequence[object]:
        """The violated invariants."""
        return self._cluster.violations

    @property
    def evictions(self) -> int:
        """The number of evictions that the server granted."""
        return self._cluster.stats.evictions_granted

    def manager_requests(self) -> Mapping[str, int]:
        """Return the number of the manager's requests, by verb."""
        return self._server.requests_by(MANAGER_AGENT)
