"""ReplicaSets: create and delete pods until the desired number is active.

Adoption of orphans and `minReadySeconds` are not simulated.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from navarchos.runtime import Builder
from navarchos.testing.cluster import kinds
from navarchos.testing.cluster.context import SimulatorContext, status_patch
from navarchos.testing.cluster.controllers.workload_reconciler import WorkloadReconciler
from navarchos.testing.cluster.pods import from_template

__all__ = [
    "HASH_LABEL",
    "ReplicaSets",
    "ReplicaStep",
    "install",
    "next_step",
    "same_template",
    "status_of",
    "template_hash",
    "with_hash",
]

JsonObject = dict[str, Any]

HASH_LABEL = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class ReplicaStep:
    """The number of pods to create, or the pods to delete."""

    create: int = 0
    delete: tuple[kinds.Pod, ...] = ()


def next_step(pods: Iterable[kinds.Pod], replicas: int) -> ReplicaStep:
    """Return the step from the existing pods to `replicas` active pods.

    Terminating and finished pods do not count, as in upstream: an evicted pod is replaced
    immediately, not after it has ended. Of surplus pods, unbound ones are deleted first,
    then pods that are not ready, then the youngest.
    """
    active = [pod for pod in pods if pod.is_active]
    missing = replicas - len(active)
    if missing >= 0:
        return ReplicaStep(create=missing)
    return ReplicaStep(delete=tuple(sorted(active, key=_usefulness)[:-missing]))


def _usefulness(pod: kinds.Pod) -> tuple[bool, bool, float, str]:
    created = pod.metadata.creation_timestamp
    age_key = -created.timestamp() if created is not None else 0.0
    return (bool(pod.spec.node_name), pod.is_ready, age_key, pod.metadata.name)


def status_of(pods: Iterable[kinds.Pod], generation: int) -> kinds.WorkloadStatus:
    """Return the counts of the owner's status."""
    active = [pod for pod in pods if pod.is_active]
    ready = sum(pod.is_ready for pod in active)
    return kinds.WorkloadStatus(
        observed_generation=generation,
        replicas=len(active),
        ready_replicas=ready,
        available_replicas=ready,
    )


def template_hash(template: kinds.Template) -> str:
    """Return a short hash of a template."""
    encoded = msgspec.json.encode(template, order="deterministic")
    return hashlib.blake2b(encoded, digest_size=5).hexdigest()


def with_hash(spec: Mapping[str, Any], digest: str) -> JsonObject:
    """Return the spec of the ReplicaSet for a Deployment's spec.

    The pods and the selector have the hash label, which separates the pods of different
    templates.
    """
    template = spec["template"]
    labels = {**template["metadata"]["labels"], HASH_LABEL: digest}
    selector = dict(spec["selector"])
    selector["matchLabels"] = {**selector.get("matchLabels", {}), HASH_LABEL: digest}
    metadata = {**template["metadata"], "labels": labels}
    return {
        "replicas": spec.get("replicas", 1),
        "selector": selector,
        "template": {**template, "metadata": metadata},
    }


def same_template(wanted: kinds.Template, found: kinds.Template) -> bool:
    """Return whether two templates are equal without the hash label."""
    return _without_hash(wanted) == _without_hash(found)


def _without_hash(template: kinds.Template) -> Mapping[str, object]:
    metadata = template.get("metadata")
    if not isinstance(metadata, Mapping):
        return template
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != HASH_LABEL}
    # The server writes an explicit null for creationTimestamp.
    kept = {k: v for k, v in metadata.items() if k != "creationTimestamp"}
    return {**template, "metadata": {**kept, "labels": labels}}


class ReplicaSets(WorkloadReconciler[kinds.ReplicaSet]):
    """Creates and deletes pods; counts them in the status."""

    def __init__(self, context: SimulatorContext) -> None:
        super().__init__(context, kinds.REPLICA_SETS, context.replica_sets)

    def sync(self, found: kinds.ReplicaSet) -> None:
        """Create the missing pods, or delete the surplus pods."""
        metadata, spec = found.metadata, found.spec
        step = next_step(self.context.pods_of(metadata.uid), spec.replicas)
        for _ in range(step.create):
            self.pods.create(from_template(spec.template, self.owner(found), metadata.namespace))
        for pod in step.delete:
            self.pods.delete(pod)

    def status_of(self, found: kinds.ReplicaSet) -> Mapping[str, object] | None:
        """Count the pods."""
        metadata = found.metadata
        status = status_of(self.context.pods_of(metadata.uid), metadata.generation)
        if status == found.status:
            return None
        return status_patch(status, fullyLabeledReplicas=status.replicas)


def install(context: SimulatorContext) -> None:
    """Add the controller to the manager."""
    (
        Builder(
            context.manager,
            "replicaset",
            options=context.manager.options.controllers_with(workers=2),
        )
        .for_(kinds.REPLICA_SETS)
        .owns(kinds.PODS)
        .build(ReplicaSets(context))
    )
