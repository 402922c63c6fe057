"""The leases that kubelets renew: without them a real control plane takes a node for lost."""

from typing import Final

import msgspec

from navarchos.client import NotFound, Resource, ignore_already_exists
from navarchos.meta import format_time
from navarchos.stopping import StopToken
from navarchos.testing.cluster.agents import Agent
from navarchos.testing.cluster.controllers.kubelets import Serves
from navarchos.testing.cluster.world import World

__all__ = ["Heartbeats", "install"]

_LEASES: Final = Resource(
    "coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, type=msgspec.Raw
)
_NAMESPACE: Final = "kube-node-lease"
_PERIOD: Final = 10.0
_SECONDS: Final = 40
"""Both as upstream's kubelet has them: `nodeLeaseDurationSeconds`, renewed at a quarter of it."""


class Heartbeats:
    """Renews the leases of nodes, every ten seconds whatever the cluster's pace.

    Args:
        world: The cluster's.
        serves: Which nodes are the simulator's; all without it.
    """

    def __init__(self, world: World, serves: Serves | None) -> None:
        self._world = world
        self._serves = serves
        self._leases = world.writer(Agent.KUBELET, _LEASES)

    def run(self, stop: StopToken) -> None:
        """Renew until told to stop."""
        while not stop.is_set():
            for node in self._world.nodes.lister.list():
                if self._serves is None or self._serves(node):
                    self._renew(node.metadata.name)
            stop.wait(_PERIOD)

    def _renew(self, name: str) -> None:
        now = format_time(self._world.clock.now())
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": _SECONDS,
            "renewTime": now.replace("Z", ".000000Z"),
        }
        try:
            self._leases.patch(name, {"spec": spec}, _NAMESPACE)
        except NotFound:
            with ignore_already_exists():
                self._leases.create({"metadata": {"name": name}, "spec": spec}, _NAMESPACE)


def install(world: World, *, serves: Serves | None = None) -> None:
    """Let the manager run them."""
    world.manager.add(Heartbeats(world, serves))
