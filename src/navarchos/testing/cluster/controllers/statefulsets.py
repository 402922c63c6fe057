"""StatefulSets: pods with names, one after the other.

Not simulated: volume claims, rolling updates.
"""

from navarchos.client import ignore_not_found
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster.agents import Agent
from navarchos.testing.cluster.kinds import PODS, STATEFUL_SETS, StatefulSet
from navarchos.testing.cluster.pods import Owner
from navarchos.testing.cluster.replicas import status_of
from navarchos.testing.cluster.statefulpods import next_step, stateful_pod
from navarchos.testing.cluster.world import (
    STATUS_DELAY,
    Patience,
    World,
    status_patch,
    terminating,
)

__all__ = ["StatefulSets", "install"]


class StatefulSets(Reconciler):
    """Brings a pod that is gone back under its name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sets = world.writer(Agent.CONTROLLERS, STATEFUL_SETS)
        self._pods = world.writer(Agent.CONTROLLERS, PODS)
        self._patience = Patience(STATUS_DELAY, world.clock)

    def reconcile(self, request: Request) -> Result:
        """Bring one StatefulSet a step forward."""
        found = self._world.stateful_sets.lister.find(request.name, request.namespace)
        if found is None or terminating(found):
            self._patience.over(request)
            return DONE
        step = next_step(
            found.metadata.name,
            self._world.pods_of(found.metadata.uid),
            found.spec.replicas,
            ordered=found.spec.pod_management_policy == "OrderedReady",
        )
        for ordinal in step.create:
            self._create(found, ordinal)
        for pod in step.delete:
            with ignore_not_found():
                self._pods.delete(pod.metadata.name, request.namespace, uid=pod.metadata.uid)
        return self._write_status(request, found)

    def _create(self, owner: StatefulSet, ordinal: int) -> None:
        metadata = owner.metadata
        reference = Owner("apps/v1", "StatefulSet", metadata.name, metadata.uid)
        pod = stateful_pod(reference, metadata.namespace, owner.spec.template, ordinal)
        # A cache that has not seen the last pod of that name go leads to
        # AlreadyExists, which the queue retries with back-off.
        self._world.pods.observe_write(self._pods.create(pod, metadata.namespace))

    def _write_status(self, request: Request, found: StatefulSet) -> Result:
        status = status_of(self._world.pods_of(found.metadata.uid), found.metadata.generation)
        if status == found.status:
            self._patience.over(request)
            return DONE
        if left := self._patience.left(request):
            return Result(requeue_after=left)
        self._patience.over(request)
        counts = {"currentReplicas": status.replicas, "updatedReplicas": status.replicas}
        written = self._sets.patch(
            request.name,
            status_patch(status, **counts),
            request.namespace,
            subresource="status",
        )
        self._world.stateful_sets.observe_write(written)
        return DONE


def install(world: World) -> None:
    """Add the controller to the manager."""
    (
        Builder(world.manager, "statefulset")
        .for_(STATEFUL_SETS)
        .owns(PODS)
        .build(StatefulSets(world))
    )
