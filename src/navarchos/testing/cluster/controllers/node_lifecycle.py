"""The part of the node lifecycle controller that keeps the taints of nodes up to date."""

from typing import Final

import msgspec

from navarchos.client import Conflict, NotFound, Resource, ignore_already_exists
from navarchos.meta import format_time
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.stopping import StopToken
from navarchos.testing.cluster.context import SimulatorContext
from navarchos.testing.cluster.controllers.kubelets import Serves
from navarchos.testing.cluster.kinds import NODES
from navarchos.testing.cluster.nodes import taints_of
from navarchos.testing.cluster.options import Agent

__all__ = ["Heartbeats", "NodeTaints", "install_heartbeats", "install_taints"]


class NodeTaints(Reconciler):
    """Shows a cordon as `node.kubernetes.io/unschedulable:NoSchedule`, and no more than that.

    The taint with which a real server registers nodes goes once they are ready.
    """

    def __init__(self, context: SimulatorContext) -> None:
        self._world = context
        self._nodes = context.writer(Agent.CONTROLLERS, NODES)

    def reconcile(self, request: Request) -> Result:
        """Bring the taints of one node in line with its cordon."""
        node = self._world.nodes.lister.find(request.name)
        if node is None:
            return DONE
        taints = taints_of(node, self._world.clock.now().replace(microsecond=0))
        if taints == node.spec.taints:
            return DONE
        body = {"spec": {"taints": msgspec.to_builtins(taints)}}
        try:
            # The list is replaced whole, so it must be the one that was read.
            written = self._nodes.patch(
                request.name, body, resource_version=node.metadata.resource_version
            )
        except (Conflict, NotFound):
            return DONE  # somebody was faster: the event of that brings us back
        self._world.nodes.observe_write(written)
        return DONE


def install_taints(context: SimulatorContext) -> None:
    """Add the controller to the manager."""
    Builder(context.manager, "node-taints").for_(NODES).build(NodeTaints(context))


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

    def __init__(self, context: SimulatorContext, serves: Serves | None) -> None:
        self._world = context
        self._serves = serves
        self._leases = context.writer(Agent.KUBELET, _LEASES)

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


def install_heartbeats(context: SimulatorContext, *, serves: Serves | None = None) -> None:
    """Let the manager run them."""
    context.manager.add(Heartbeats(context, serves))
