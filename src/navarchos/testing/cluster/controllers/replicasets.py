"""ReplicaSets: as many active pods as wanted.

Not simulated: adoption of orphans, `minReadySeconds`.
"""

from navarchos.client import ignore_not_found
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster.agents import Agent
from navarchos.testing.cluster.kinds import PODS, REPLICA_SETS, Pod, ReplicaSet
from navarchos.testing.cluster.pods import Owner, from_template
from navarchos.testing.cluster.replicas import next_step, status_of
from navarchos.testing.cluster.world import (
    STATUS_DELAY,
    Patience,
    World,
    status_patch,
    terminating,
)

__all__ = ["ReplicaSets", "install"]


class ReplicaSets(Reconciler):
    """Creates and deletes pods; counts them in the status."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sets = world.writer(Agent.CONTROLLERS, REPLICA_SETS)
        self._pods = world.writer(Agent.CONTROLLERS, PODS)
        self._patience = Patience(STATUS_DELAY, world.clock)

    def reconcile(self, request: Request) -> Result:
        """Bring one ReplicaSet a step forward."""
        found = self._world.replica_sets.lister.find(request.name, request.namespace)
        if found is None or terminating(found):
            self._patience.over(request)
            return DONE
        step = next_step(self._world.pods_of(found.metadata.uid), found.spec.replicas)
        for _ in range(step.create):
            self._create(found)
        for pod in step.delete:
            self._delete(pod)
        return self._write_status(request, found)

    def _create(self, owner: ReplicaSet) -> None:
        metadata = owner.metadata
        reference = Owner("apps/v1", "ReplicaSet", metadata.name, metadata.uid)
        pod = from_template(owner.spec.template, reference, metadata.namespace)
        # The next pass may come before the watch: it has to see this pod (RT-32).
        self._world.pods.observe_write(self._pods.create(pod, metadata.namespace))

    def _delete(self, pod: Pod) -> None:
        metadata = pod.metadata
        with ignore_not_found():
            self._pods.delete(metadata.name, metadata.namespace, uid=metadata.uid)

    def _write_status(self, request: Request, found: ReplicaSet) -> Result:
        status = status_of(self._world.pods_of(found.metadata.uid), found.metadata.generation)
        if status == found.status:
            self._patience.over(request)
            return DONE
        if left := self._patience.left(request):
            return Result(requeue_after=left)
        self._patience.over(request)
        written = self._sets.patch(
            request.name,
            status_patch(status, fullyLabeledReplicas=status.replicas),
            request.namespace,
            subresource="status",
        )
        self._world.replica_sets.observe_write(written)
        return DONE


def install(world: World) -> None:
    """Add the controller to the manager."""
    (
        Builder(world.manager, "replicaset")
        .for_(REPLICA_SETS)
        .owns(PODS)
        .with_workers(2)
        .build(ReplicaSets(world))
    )
