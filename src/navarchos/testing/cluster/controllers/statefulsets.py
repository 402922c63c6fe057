"""StatefulSets: pods with ordinal names, created one after the other.

A missing pod is created again under its name, but never while the previous pod of that
name exists. Volume claims and rolling updates are not simulated.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from navarchos.runtime import Builder
from navarchos.testing.cluster import kinds
from navarchos.testing.cluster.context import SimulatorContext, status_patch
from navarchos.testing.cluster.controllers.replicasets import status_of
from navarchos.testing.cluster.controllers.workload_reconciler import WorkloadReconciler
from navarchos.testing.cluster.pods import Owner, from_template

__all__ = ["StatefulSetStep", "StatefulSets", "install", "next_step", "stateful_pod"]

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StatefulSetStep:
    """The ordinals to create and the pods to delete."""

    create: tuple[int, ...] = ()
    delete: tuple[kinds.Pod, ...] = ()


def next_step(
    name: str, pods: Iterable[kinds.Pod], replicas: int, *, ordered: bool = True
) -> StatefulSetStep:
    """Return the next step for the pods of the StatefulSet `name`.

    Args:
        name: The name of the set; pod `n` is `name-n`.
        pods: The pods of the set.
        replicas: The desired number of pods.
        ordered: Whether each pod waits until the previous ones are ready
            (`podManagementPolicy: OrderedReady`).
    """
    found = {pod.metadata.name: pod for pod in pods}
    create: list[int] = []
    for ordinal in range(replicas):
        pod = found.pop(f"{name}-{ordinal}", None)
        if pod is None:
            create.append(ordinal)
        elif pod.is_finished and not pod.is_terminating:
            # Upstream deletes a finished pod before it creates the next one of that name.
            return StatefulSetStep(delete=(pod,))
        if ordered and (pod is None or not pod.is_ready or pod.is_terminating):
            return StatefulSetStep(create=tuple(create))
    if create:
        return StatefulSetStep(create=tuple(create))
    surplus = sorted((p for p in found.values() if not p.is_terminating), key=_ordinal)
    return StatefulSetStep(delete=tuple(surplus[-1:] if ordered else surplus))


def stateful_pod(
    owner: Owner, namespace: str, template: kinds.Template, ordinal: int
) -> JsonObject:
    """Return the pod with the given ordinal."""
    name = f"{owner.name}-{ordinal}"
    labels = {
        "apps.kubernetes.io/pod-index": str(ordinal),
        "statefulset.kubernetes.io/pod-name": name,
    }
    spec = {"hostname": name}
    return from_template(template, owner, namespace, name=name, labels=labels, spec=spec)


def _ordinal(pod: kinds.Pod) -> int:
    _, _, number = pod.metadata.name.rpartition("-")
    return int(number) if number.isdigit() else 0


class StatefulSets(WorkloadReconciler[kinds.StatefulSet]):
    """Creates missing pods again under their names."""

    def __init__(self, context: SimulatorContext) -> None:
        super().__init__(context, kinds.STATEFUL_SETS, context.stateful_sets)

    def sync(self, found: kinds.StatefulSet) -> None:
        """Create the next pods, or delete finished and surplus pods."""
        metadata, spec = found.metadata, found.spec
        step = next_step(
            metadata.name,
            self.context.pods_of(metadata.uid),
            spec.replicas,
            ordered=spec.pod_management_policy == "OrderedReady",
        )
        for ordinal in step.create:
            # If the cache has not observed the deletion of the previous pod of this name,
            # the create fails with AlreadyExists, and the queue retries with back-off.
            owner = self.owner(found)
            self.pods.create(stateful_pod(owner, metadata.namespace, spec.template, ordinal))
        for pod in step.delete:
            self.pods.delete(pod)

    def status_of(self, found: kinds.StatefulSet) -> Mapping[str, object] | None:
        """Count the pods."""
        metadata = found.metadata
        status = status_of(self.context.pods_of(metadata.uid), metadata.generation)
        if status == found.status:
            return None
        counts = {"currentReplicas": status.replicas, "updatedReplicas": status.replicas}
        return status_patch(status, **counts)


def install(context: SimulatorContext) -> None:
    """Add the controller to the manager."""
    (
        Builder(context.manager, "statefulset")
        .for_(kinds.STATEFUL_SETS)
        .owns(kinds.PODS)
        .build(StatefulSets(context))
    )
