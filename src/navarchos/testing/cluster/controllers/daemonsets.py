"""DaemonSets: one pod on every node, cordoned or not.

Their pods are created with `spec.nodeName`, as upstream did before its scheduler
took them over: a request less per pod, and nothing else differs.
"""

from collections.abc import Iterable

import msgspec

from navarchos.client import ignore_not_found
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster.agents import Agent
from navarchos.testing.cluster.daemonpods import Plan, plan, tolerations_of
from navarchos.testing.cluster.kinds import DAEMON_SETS, NODES, PODS, DaemonSet, Node
from navarchos.testing.cluster.pods import Owner, from_template
from navarchos.testing.cluster.world import (
    STATUS_DELAY,
    Patience,
    World,
    status_patch,
    terminating,
)

__all__ = ["DaemonSets", "install"]


class DaemonSets(Reconciler):
    """Creates the pods that nodes lack."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sets = world.writer(Agent.CONTROLLERS, DAEMON_SETS)
        self._pods = world.writer(Agent.CONTROLLERS, PODS)
        self._patience = Patience(STATUS_DELAY, world.clock)

    def reconcile(self, request: Request) -> Result:
        """Bring one DaemonSet a step forward."""
        found = self._world.daemon_sets.lister.find(request.name, request.namespace)
        if found is None or terminating(found):
            self._patience.over(request)
            return DONE
        step = plan(
            found.spec.template,
            self._world.nodes.lister.list(),
            self._world.pods_of(found.metadata.uid),
            generation=found.metadata.generation,
        )
        for node in step.create:
            self._create(found, node)
        for pod in step.delete:
            with ignore_not_found():
                self._pods.delete(pod.metadata.name, request.namespace, uid=pod.metadata.uid)
        return self._write_status(request, found, step)

    def requests_for(self, node: Node) -> Iterable[Request]:
        """Map a node that changed to every DaemonSet."""
        del node
        for each in self._world.daemon_sets.lister.list():
            yield Request(each.metadata.namespace, each.metadata.name)

    def _create(self, owner: DaemonSet, node: str) -> None:
        metadata, template = owner.metadata, owner.spec.template
        tolerations = msgspec.to_builtins(tolerations_of(template))
        pod = from_template(
            template,
            Owner("apps/v1", "DaemonSet", metadata.name, metadata.uid),
            metadata.namespace,
            spec={"nodeName": node, "tolerations": tolerations},
        )
        self._world.pods.observe_write(self._pods.create(pod, metadata.namespace))

    def _write_status(self, request: Request, found: DaemonSet, step: Plan) -> Result:
        status = step.status
        if status == found.status:
            self._patience.over(request)
            return DONE
        if left := self._patience.left(request):
            return Result(requeue_after=left)
        self._patience.over(request)
        body = status_patch(
            status,
            numberMisscheduled=0,
            numberAvailable=status.number_ready,
            numberUnavailable=status.desired_number_scheduled - status.number_ready,
            updatedNumberScheduled=status.current_number_scheduled,
        )
        written = self._sets.patch(request.name, body, request.namespace, subresource="status")
        self._world.daemon_sets.observe_write(written)
        return DONE


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
