"""ReplicaSets: as many active pods as wanted.

Not simulated: adoption of orphans, `minReadySeconds`.
"""

from collections.abc import Mapping

from navarchos.runtime import Builder
from navarchos.testing.cluster.controllers.frame import WorkloadReconciler
from navarchos.testing.cluster.kinds import PODS, REPLICA_SETS, ReplicaSet
from navarchos.testing.cluster.pods import from_template
from navarchos.testing.cluster.replicas import next_step, status_of
from navarchos.testing.cluster.world import World, status_patch

__all__ = ["ReplicaSets", "install"]


class ReplicaSets(WorkloadReconciler[ReplicaSet]):
    """Creates and deletes pods; counts them in the status."""

    def __init__(self, world: World) -> None:
        super().__init__(world, REPLICA_SETS, world.replica_sets)

    def keep_up(self, found: ReplicaSet) -> None:
        """Create or delete pods until there are as many as wanted."""
        metadata, spec = found.metadata, found.spec
        step = next_step(self.world.pods_of(metadata.uid), spec.replicas)
        for _ in range(step.create):
            self.pods.create(from_template(spec.template, self.owner(found), metadata.namespace))
        for pod in step.delete:
            self.pods.delete(pod)

    def status_of(self, found: ReplicaSet) -> Mapping[str, object] | None:
        """Count the pods."""
        metadata = found.metadata
        status = status_of(self.world.pods_of(metadata.uid), metadata.generation)
        if status == found.status:
            return None
        return status_patch(status, fullyLabeledReplicas=status.replicas)


def install(world: World) -> None:
    """Add the controller to the manager."""
    (
        Builder(world.manager, "replicaset")
        .for_(REPLICA_SETS)
        .owns(PODS)
        .with_workers(2)
        .build(ReplicaSets(world))
    )
