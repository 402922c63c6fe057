"""The part of the node lifecycle controller that keeps the taints of nodes up to date."""

import msgspec

from navarchos.client import Conflict, NotFound
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster.agents import Agent
from navarchos.testing.cluster.kinds import NODES
from navarchos.testing.cluster.nodes import taints_of
from navarchos.testing.cluster.world import World

__all__ = ["NodeTaints", "install"]


class NodeTaints(Reconciler):
    """Shows a cordon as `node.kubernetes.io/unschedulable:NoSchedule`, and no more than that.

    The taint with which a real server registers nodes goes once they are ready.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._nodes = world.writer(Agent.CONTROLLERS, NODES)

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


def install(world: World) -> None:
    """Add the controller to the manager."""
    Builder(world.manager, "node-taints").for_(NODES).build(NodeTaints(world))
