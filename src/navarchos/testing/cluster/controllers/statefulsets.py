"""StatefulSets: pods with names, one after the other.

Not simulated: volume claims, rolling updates.
"""

from collections.abc import Mapping

from navarchos.runtime import Builder
from navarchos.testing.cluster.controllers.frame import WorkloadReconciler
from navarchos.testing.cluster.kinds import PODS, STATEFUL_SETS, StatefulSet
from navarchos.testing.cluster.replicas import status_of
from navarchos.testing.cluster.statefulpods import next_step, stateful_pod
from navarchos.testing.cluster.world import World, status_patch

__all__ = ["StatefulSets", "install"]


class StatefulSets(WorkloadReconciler[StatefulSet]):
    """Brings a pod that is gone back under its name."""

    def __init__(self, world: World) -> None:
        super().__init__(world, STATEFUL_SETS, world.stateful_sets)

    def keep_up(self, found: StatefulSet) -> None:
        """Create the next pods, or delete what is in their way or too much."""
        metadata, spec = found.metadata, found.spec
        step = next_step(
            metadata.name,
            self.world.pods_of(metadata.uid),
            spec.replicas,
            ordered=spec.pod_management_policy == "OrderedReady",
        )
        for ordinal in step.create:
            # A cache that has not seen the last pod of that name go leads to
            # AlreadyExists, which the queue retries with back-off.
            owner = self.owner(found)
            self.pods.create(stateful_pod(owner, metadata.namespace, spec.template, ordinal))
        for pod in step.delete:
            self.pods.delete(pod)

    def status_of(self, found: StatefulSet) -> Mapping[str, object] | None:
        """Count the pods."""
        metadata = found.metadata
        status = status_of(self.world.pods_of(metadata.uid), metadata.generation)
        if status == found.status:
            return None
        counts = {"currentReplicas": status.replicas, "updatedReplicas": status.replicas}
        return status_patch(status, **counts)


def install(world: World) -> None:
    """Add the controller to the manager."""
    (
        Builder(world.manager, "statefulset")
        .for_(STATEFUL_SETS)
        .owns(PODS)
        .build(StatefulSets(world))
    )
