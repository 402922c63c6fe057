"""Deployments: one ReplicaSet per template, and a status with their sums.

A changed template starts a rolling update within `maxSurge` and `maxUnavailable`. With the strategy
`Recreate` the new ReplicaSet has its full size at once, which upstream delays until all old pods
have ended. Pauses, `minReadySeconds` and the history are not simulated.
"""

from collections.abc import Mapping, Sequence

import msgspec

from navarchos.meta import format_time
from navarchos.runtime import Builder
from navarchos.testing.cluster import kinds, options
from navarchos.testing.cluster.context import BY_OWNER, SimulatorContext, status_patch
from navarchos.testing.cluster.controllers import replicasets
from navarchos.testing.cluster.controllers.workload_reconciler import WorkloadReconciler

__all__ = ["Deployments", "install", "rolling_sizes", "summed"]


class Deployments(WorkloadReconciler[kinds.Deployment]):
    """Scales the ReplicaSets of a Deployment."""

    def __init__(self, context: SimulatorContext) -> None:
        super().__init__(context, kinds.DEPLOYMENTS, context.deployments)
        self._sets = context.writer(options.Agent.CONTROLLERS, kinds.REPLICA_SETS)

    def sync(self, found: kinds.Deployment) -> None:
        """Create the ReplicaSet of the template, or scale all ReplicaSets."""
        owned = self._owned(found)
        current = _current(found, owned)
        old = [each for each in owned if each is not current]
        sizes = rolling_sizes(found.spec, current, old)
        if current is None:
            self._create(found, sizes[0])
        else:
            self._scale(current, sizes[0])
        for each, size in zip(old, sizes[1:], strict=True):
            self._scale(each, size)

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

    def _create(self, owner: kinds.Deployment, replicas: int) -> None:
        metadata = owner.metadata
        spec = {**msgspec.to_builtins(owner.spec), "replicas": replicas}
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


def rolling_sizes(
    spec: kinds.DeploymentSpec, current: kinds.ReplicaSet | None, old: Sequence[kinds.ReplicaSet]
) -> list[int]:
    """Return the next sizes of the current ReplicaSet, and of the old ones in their order.

    As upstream (`pkg/controller/deployment/rolling.go`): the current one grows as far as the
    surge allows, and old pods are deleted as long as enough pods are available.
    """
    if spec.strategy.type != "RollingUpdate":
        return [spec.replicas, *(0 for _ in old)]
    update = spec.strategy.rolling_update or kinds.RollingUpdate()
    surge = _count(update.max_surge, spec.replicas, round_up=True)
    unavailable = _count(update.max_unavailable, spec.replicas, round_up=False)
    if not surge and not unavailable:
        unavailable = 1
    size = current.spec.replicas if current is not None else 0
    total = size + sum(each.spec.replicas for each in old)
    grown = size + max(0, spec.replicas + surge - total)
    sizes = [min(spec.replicas, grown)]
    missing = size - current.status.available_replicas if current is not None else 0
    spare = total - (spec.replicas - unavailable) - max(0, missing)
    for each in old:
        ended = min(each.spec.replicas, max(0, spare))
        spare -= ended
        sizes.append(each.spec.replicas - ended)
    return sizes


def _count(value: int | str, replicas: int, *, round_up: bool) -> int:
    if isinstance(value, int):
        return value
    share = int(value.removesuffix("%")) * replicas
    return -(-share // 100) if round_up else share // 100


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
