"""Deployments: one ReplicaSet per template, and a status with their sums.

Rolling updates are not simulated: for a changed template the controller creates a new
ReplicaSet of full size and scales the old ones to 0 immediately.
"""

from collections.abc import Mapping

import msgspec

from navarchos.meta import format_time
from navarchos.runtime import Builder
from navarchos.testing.cluster import kinds, options
from navarchos.testing.cluster.context import BY_OWNER, SimulatorContext, status_patch
from navarchos.testing.cluster.controllers import replicasets
from navarchos.testing.cluster.controllers.workload_reconciler import WorkloadReconciler

__all__ = ["Deployments", "install", "summed"]


class Deployments(WorkloadReconciler[kinds.Deployment]):
    """Scales the ReplicaSets of a Deployment."""

    def __init__(self, context: SimulatorContext) -> None:
        super().__init__(context, kinds.DEPLOYMENTS, context.deployments)
        self._sets = context.writer(options.Agent.CONTROLLERS, kinds.REPLICA_SETS)

    def sync(self, found: kinds.Deployment) -> None:
        """Create the ReplicaSet of the template, or scale all ReplicaSets."""
        owned = self._owned(found)
        current = _current(found, owned)
        if current is None:
            self._create(found)
        else:
            for each in owned:
                self._scale(each, found.spec.replicas if each is current else 0)

    def status_of(self, found: kinds.Deployment) -> Mapping[str, object] | None:
        """Add up the counts of the ReplicaSets."""
        owned = self._owned(found)
        current, status = _current(found, owned), summed(found, owned)
        # Without a ReplicaSet there is nothing to count; its event triggers a reconcile.
        if current is None or status == found.status:
            return None
        return status_patch(
            status,
            updatedReplicas=current.status.replicas,
            unavailableReplicas=max(0, found.spec.replicas - status.available_replicas),
            conditions=[self._available(found, status)],
        )

    def _owned(self, found: kinds.Deployment) -> list[kinds.ReplicaSet]:
        return self.context.replica_sets.lister.by_index(BY_OWNER, found.metadata.uid)

    def _create(self, owner: kinds.Deployment) -> None:
        metadata, spec = owner.metadata, msgspec.to_builtins(owner.spec)
        digest = replicasets.template_hash(owner.spec.template)
        replica_set = {
            "metadata": {
                "name": f"{metadata.name}-{digest}",
                "labels": {**metadata.labels, "pod-template-hash": digest},
                "ownerReferences": [self.owner(owner).reference()],
            },
            "spec": replicasets.with_hash(spec, digest),
        }
        created = self._sets.create(replica_set, metadata.namespace)
        self.context.replica_sets.observe_write(created)

    def _scale(self, found: kinds.ReplicaSet, replicas: int) -> None:
        if found.spec.replicas == replicas:
            return
        metadata = found.metadata
        body = {"spec": {"replicas": replicas}}
        scaled = self._sets.patch(metadata.name, body, metadata.namespace, uid=metadata.uid)
        self.context.replica_sets.observe_write(scaled)

    def _available(
        self, found: kinds.Deployment, status: kinds.WorkloadStatus
    ) -> dict[str, object]:
        # Upstream's default strategy allows a quarter of the pods to be unavailable.
        enough = status.available_replicas >= found.spec.replicas - found.spec.replicas // 4
        when = format_time(self.context.clock.now())
        return {
            "type": "Available",
            "status": "True" if enough else "False",
            "reason": f"MinimumReplicas{'A' if enough else 'Una'}vailable",
            "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
            "lastTransitionTime": when,
            "lastUpdateTime": when,
        }


def summed(found: kinds.Deployment, owned: list[kinds.ReplicaSet]) -> kinds.WorkloadStatus:
    """Return the counts of a Deployment: the sums over its ReplicaSets."""
    return kinds.WorkloadStatus(
        observed_generation=found.metadata.generation,
        replicas=sum(each.status.replicas for each in owned),
        ready_replicas=sum(each.status.ready_replicas for each in owned),
        available_replicas=sum(each.status.available_replicas for each in owned),
    )


def _current(found: kinds.Deployment, owned: list[kinds.ReplicaSet]) -> kinds.ReplicaSet | None:
    wanted = found.spec.template
    return next(
        (each for each in owned if replicasets.same_template(wanted, each.spec.template)), None
    )


def install(context: SimulatorContext) -> None:
    """Add the controller to the manager."""
    (
        Builder(context.manager, "deployment")
        .for_(kinds.DEPLOYMENTS)
        .owns(kinds.REPLICA_SETS)
        .build(Deployments(context))
    )
