"""Deployments: one ReplicaSet per template, and a status that adds them up.

Not simulated: rolling updates. A changed template makes a new ReplicaSet at its
full size and takes the old ones down at once.
"""

import msgspec

from navarchos.meta import format_time
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster.agents import Agent
from navarchos.testing.cluster.kinds import (
    DEPLOYMENTS,
    REPLICA_SETS,
    Deployment,
    ReplicaSet,
    WorkloadStatus,
)
from navarchos.testing.cluster.pods import Owner
from navarchos.testing.cluster.replicas import same_template, template_hash, with_hash
from navarchos.testing.cluster.world import (
    BY_OWNER,
    STATUS_DELAY,
    Patience,
    World,
    status_patch,
    terminating,
)

__all__ = ["Deployments", "install", "summed"]


class Deployments(Reconciler):
    """Keeps the ReplicaSets of a Deployment at the sizes that it wants."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._deployments = world.writer(Agent.CONTROLLERS, DEPLOYMENTS)
        self._sets = world.writer(Agent.CONTROLLERS, REPLICA_SETS)
        self._patience = Patience(STATUS_DELAY, world.clock)

    def reconcile(self, request: Request) -> Result:
        """Bring one Deployment a step forward."""
        found = self._world.deployments.lister.find(request.name, request.namespace)
        if found is None or terminating(found):
            self._patience.over(request)
            return DONE
        owned = self._world.replica_sets.lister.by_index(BY_OWNER, found.metadata.uid)
        current = next(
            (each for each in owned if same_template(found.spec.template, each.spec.template)),
            None,
        )
        if current is None:
            self._create(found)
            return DONE
        for each in owned:
            self._scale(each, found.spec.replicas if each is current else 0)
        return self._write_status(request, found, owned, current)

    def _create(self, owner: Deployment) -> None:
        metadata, spec = owner.metadata, msgspec.to_builtins(owner.spec)
        digest = template_hash(owner.spec.template)
        reference = Owner("apps/v1", "Deployment", metadata.name, metadata.uid)
        replica_set = {
            "metadata": {
                "name": f"{metadata.name}-{digest}",
                "labels": {**metadata.labels, "pod-template-hash": digest},
                "ownerReferences": [reference.reference()],
            },
            "spec": with_hash(spec, digest),
        }
        created = self._sets.create(replica_set, metadata.namespace)
        self._world.replica_sets.observe_write(created)

    def _scale(self, found: ReplicaSet, replicas: int) -> None:
        if found.spec.replicas == replicas:
            return
        metadata = found.metadata
        body = {"spec": {"replicas": replicas}}
        scaled = self._sets.patch(metadata.name, body, metadata.namespace, uid=metadata.uid)
        self._world.replica_sets.observe_write(scaled)

    def _write_status(
        self, request: Request, found: Deployment, owned: list[ReplicaSet], current: ReplicaSet
    ) -> Result:
        status = summed(found, owned)
        if status == found.status:
            self._patience.over(request)
            return DONE
        if left := self._patience.left(request):
            return Result(requeue_after=left)
        self._patience.over(request)
        body = status_patch(
            status,
            updatedReplicas=current.status.replicas,
            unavailableReplicas=max(0, found.spec.replicas - status.available_replicas),
            conditions=[self._available(found, status)],
        )
        written = self._deployments.patch(
            request.name, body, request.namespace, subresource="status"
        )
        self._world.deployments.observe_write(written)
        return DONE

    def _available(self, found: Deployment, status: WorkloadStatus) -> dict[str, object]:
        # Upstream's default strategy lets a quarter be away.
        enough = status.available_replicas >= found.spec.replicas - found.spec.replicas // 4
        when = format_time(self._world.clock.now())
        return {
            "type": "Available",
            "status": "True" if enough else "False",
            "reason": f"MinimumReplicas{'A' if enough else 'Una'}vailable",
            "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
            "lastTransitionTime": when,
            "lastUpdateTime": when,
        }


def summed(found: Deployment, owned: list[ReplicaSet]) -> WorkloadStatus:
    """Return the counts of a Deployment: those of its ReplicaSets together."""
    return WorkloadStatus(
        observed_generation=found.metadata.generation,
        replicas=sum(each.status.replicas for each in owned),
        ready_replicas=sum(each.status.ready_replicas for each in owned),
        available_replicas=sum(each.status.available_replicas for each in owned),
    )


def install(world: World) -> None:
    """Add the controller to the manager."""
    (
        Builder(world.manager, "deployment")
        .for_(DEPLOYMENTS)
        .owns(REPLICA_SETS)
        .build(Deployments(world))
    )
