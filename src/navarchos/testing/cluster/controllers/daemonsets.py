"""DaemonSets: one pod on every node, cordoned or not.

Their pods are created with `spec.nodeName`, as upstream did before its scheduler
took them over: a request less per pod, and nothing else differs.
"""

from collections.abc import Iterable, Mapping

import msgspec

from navarchos.runtime import Builder, Request
from navarchos.testing.cluster.controllers.frame import WorkloadReconciler
from navarchos.testing.cluster.daemonpods import Plan, plan, tolerations_of
from navarchos.testing.cluster.kinds import DAEMON_SETS, NODES, PODS, DaemonSet, Node
from navarchos.testing.cluster.pods import from_template
from navarchos.testing.cluster.world import World, status_patch

__all__ = ["DaemonSets", "install"]


class DaemonSets(WorkloadReconciler[DaemonSet]):
    """Creates the pods that nodes lack."""

    def __init__(self, world: World) -> None:
        super().__init__(world, DAEMON_SETS, world.daemon_sets)

    def keep_up(self, found: DaemonSet) -> None:
        """Create the pods that nodes lack, and delete those that do not belong."""
        step = self._plan(found)
        template, namespace = found.spec.template, found.metadata.namespace
        for node in step.create:
            tolerations = msgspec.to_builtins(tolerations_of(template))
            spec = {"nodeName": node, "tolerations": tolerations}
            self.pods.create(from_template(template, self.owner(found), namespace, spec=spec))
        for pod in step.delete:
            self.pods.delete(pod)

    def status_of(self, found: DaemonSet) -> Mapping[str, object] | None:
        """Count nodes and pods."""
        status = self._plan(found).status
        if status == found.status:
            return None
        return status_patch(
            status,
            numberMisscheduled=0,
            numberAvailable=status.number_ready,
            numberUnavailable=status.desired_number_scheduled - status.number_ready,
            updatedNumberScheduled=status.current_number_scheduled,
        )

    def requests_for(self, node: Node) -> Iterable[Request]:
        """Map a node that changed to every DaemonSet."""
        del node
        for each in self.world.daemon_sets.lister.list():
            yield Request(each.metadata.namespace, each.metadata.name)

    def _plan(self, found: DaemonSet) -> Plan:
        metadata = found.metadata
        return plan(
            found.spec.template,
            self.world.nodes.lister.list(),
            self.world.pods_of(metadata.uid),
            generation=metadata.generation,
        )


def install(world: World) -> None:
    """Add the controller to the manager."""
    reconciler = DaemonSets(world)
    (
        Builder(world.manager, "daemonset")
        .for_(DAEMON_SETS)
        .owns(PODS)
        .watches(NODES, map=reconciler.requests_for)
        .build(reconciler)
    )
