"""The taints and the heartbeats of nodes.

The taints are the part of upstream's node lifecycle controller that the simulator needs.
The heartbeats are the leases that kubelets renew: without them a real control plane
considers a node lost.
"""

from typing import Final

import msgspec

from navarchos.client import Conflict, NotFound, Resource, ignore_already_exists
from navarchos.meta import format_time
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.stopping import StopToken
from navarchos.testing.cluster import kinds, nodes, options
from navarchos.testing.cluster.context import SimulatorContext
from navarchos.testing.cluster.controllers.kubelets import Serves

__all__ = ["Heartbeats", "NodeTaints", "install_heartbeats", "install_taints"]


class NodeTaints(Reconciler):
    """Adds the taint `node.kubernetes.io/unschedulable:NoSchedule` to cordoned nodes.

    The not-ready taint with which a real server registers nodes is removed when they are
    Ready.
    """

    def __init__(self, context: SimulatorContext) -> None:
        self._context = context
        self._nodes = context.writer(options.Agent.CONTROLLERS, kinds.NODES)

    def reconcile(self, request: Request) -> Result:
        """Update the taints of one node."""
        node = self._context.nodes.lister.find(request.name)
        if node is None:
            return DONE
        taints = nodes.taints_of(node, self._context.clock.now().replace(microsecond=0))
        if taints == node.spec.taints:
            return DONE
        body = {"spec": {"taints": msgspec.to_builtins(taints)}}
        try:
            # The patch replaces the whole list, so it needs the version that was read.
            written = self._nodes.patch(
                request.name, body, resource_version=node.metadata.resource_version
            )
        except (Conflict, NotFound):
            return DONE  # another client was faster: its event triggers a reconcile
        self._context.nodes.observe_write(written)
        return DONE


def install_taints(context: SimulatorContext) -> None:
    """Add the controller to the manager."""
    Builder(context.manager, "node-taints").for_(kinds.NODES).build(NodeTaints(context))


_LEASES: Final = Resource(
    "coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, type=msgspec.Raw
)
_NAMESPACE: Final = "kube-node-lease"
_PERIOD: Final = 10.0
_SECONDS: Final = 40
"""As in upstream's kubelet: `nodeLeaseDurationSeconds`, renewed after a quarter of it."""


class Heartbeats:
    """Renews the leases of nodes every ten real seconds.

    Args:
        context: Caches, clients and settings.
        serves: Selects the nodes of the simulator; all nodes by default.
    """

    def __init__(self, context: SimulatorContext, serves: Serves | None) -> None:
        self._context = context
        self._serves = serves
        self._leases = context.writer(options.Agent.KUBELET, _LEASES)

    def run(self, stop: StopToken) -> None:
        """Renew the leases until the token is set."""
        while not stop.is_set():
            for node in self._context.nodes.lister.list():
                if self._serves is None or self._serves(node):
                    self._renew(node.metadata.name)
            stop.wait(_PERIOD)

    def _renew(self, name: str) -> None:
        now = format_time(self._context.clock.now())
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
    """Add the heartbeats to the manager."""
    context.manager.add(Heartbeats(context, serves))
