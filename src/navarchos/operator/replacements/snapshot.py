"""What admission looks at: one consistent set of objects."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.informers.source import informer_rbac
from navarchos.meta import OwnerReference, ResourceVersion, controller_of
from navarchos.operator.api.v1alpha1 import NodeDrain, NodeReplacement, NodeRollout
from navarchos.operator.nodes import Node

__all__ = [
    "PENDING_PODS",
    "PENDING_SELECTOR",
    "RBAC",
    "ClusterSnapshot",
    "PendingPod",
    "Pod",
    "PodMeta",
    "pending_pods",
    "rollout_uid",
]


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod in phase Pending: whose it is, and since when it exists."""

    key: str
    controller_uid: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The objects that decide what may start. Read-only.

    Every read that made it saw this process's own writes.
    """

    replacements: Sequence[NodeReplacement]
    rollouts: Mapping[str, NodeRollout] = field(default_factory=dict)
    """By uid. A rollout that is not here has been deleted."""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """By name."""
    orphaned: frozenset[str] = frozenset()
    """Nodes with a drain that outlives its replacement: their slot is still taken."""
    drains: Mapping[str, NodeDrain] = field(default_factory=dict)
    """The drains of those in step Draining, by name of the replacement. One may be missing."""
    pending: Sequence[PendingPod] = ()
    budgets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Budgets over the pods of some nodes, by node. Of the others nothing is known."""


def rollout_uid(replacement: NodeReplacement) -> str:
    """Return the uid of the rollout that made it; empty when a person did."""
    owner = controller_of(replacement.metadata)
    return owner.uid if owner is not None and owner.kind == "NodeRollout" else ""


class PodMeta(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """What the gate needs of a pod: identity, age, controller."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: ResourceVersion = ResourceVersion("")
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class Pod(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A pod, as slim as can be."""

    metadata: PodMeta = PodMeta()


PENDING_PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)

PENDING_SELECTOR: Final = "status.phase=Pending"

RBAC: Final = informer_rbac(PENDING_PODS)
"""What their cache needs of the server. RBAC knows no selectors."""


def pending_pods(pods: Iterable[Pod]) -> tuple[PendingPod, ...]:
    """Return the facts about pods that wait to run; one that is leaving waits no more."""
    return tuple(
        PendingPod(
            key=f"{pod.metadata.namespace}/{pod.metadata.name}",
            controller_uid=next(
                (owner.uid for owner in pod.metadata.owner_references if owner.controller), ""
            ),
            created_at=pod.metadata.creation_timestamp,
        )
        for pod in pods
        if pod.metadata.deletion_timestamp is None and pod.metadata.creation_timestamp is not None
    )
