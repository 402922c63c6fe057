"""The cluster as admission sees it: one consistent set of objects, and who reads it.

Only Pending pods are cached for the whole cluster; all other pods would cost too much memory.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.informers.source import informer_rbac
from navarchos.meta import OwnerReference, ResourceVersion, controller_of
from navarchos.operator.api.v1alpha1 import NodeDrain, NodeReplacement, NodeRollout, Step
from navarchos.operator.clients import OperatorClients
from navarchos.operator.gates import GateMonitor, Records
from navarchos.operator.nodes import Node
from navarchos.operator.owners import ROLLOUT_KIND, OwnerKind, Owners, kind_of
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.attempt_drain import belongs_to, drain_name
from navarchos.operator.slots import ROLLOUTS, Holder, Slots, orphaned_nodes

__all__ = [
    "PENDING_PODS",
    "PENDING_SELECTOR",
    "RBAC",
    "CachedPod",
    "ClusterReader",
    "ClusterSnapshot",
    "Hold",
    "PendingPod",
    "PodMeta",
    "pending_pods",
    "rollout_uid",
]


class PodMeta(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The metadata that admission reads: identity, age and controller."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: ResourceVersion = ResourceVersion("")
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class CachedPod(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A Pending pod in the cache."""

    metadata: PodMeta = PodMeta()


PENDING_PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True, type=CachedPod)

PENDING_SELECTOR: Final = "status.phase=Pending"

RBAC: Final = informer_rbac(PENDING_PODS)
"""Permissions of the cache of Pending pods. RBAC cannot be limited by a field selector."""


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod in phase Pending: its controller and its age."""

    key: str
    controller_uid: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Hold:
    """Why the action of a node keeps it in Waiting.

    With `Queued` nodes of lower priorities wait for the node, with any other reason they do not.
    """

    reason: WaitReason
    message: str = ""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The objects that decide which nodes may start. Read-only.

    Promises: it contains all earlier writes of this process.
    """

    replacements: Sequence[NodeReplacement]
    rollouts: Mapping[str, NodeRollout] = field(default_factory=dict)
    """By uid, with the views of other owners. A rollout that is not here has been deleted."""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """By name."""
    orphaned: frozenset[str] = frozenset()
    """Nodes with a drain whose replacement was deleted: their slot is still occupied."""
    holders: Mapping[str, Holder] = field(default_factory=dict)
    """Nodes in flight because of an object other than a replacement, by name."""
    objections: Mapping[str, str] = field(default_factory=dict)
    """Why nodes must not start now, by name. Only nodes of waiting replacements are here."""
    drains: Mapping[str, NodeDrain] = field(default_factory=dict)
    """The drains of replacements in step Draining, by name of the replacement. A drain that the
    cache does not have yet is missing."""
    pending: Sequence[PendingPod] = ()
    gates: Mapping[str, Records] = field(default_factory=dict)
    """The gates of unfinished rollouts, by uid of the rollout and name of the gate."""
    budgets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Budgets over the pods of some nodes, by node. The budgets of other nodes are unknown."""
    holds: Mapping[str, Hold] = field(default_factory=dict)
    """Waiting replacements that their action keeps waiting, by name."""
    other_owners: Mapping[str, str] = field(default_factory=dict)
    """Those of `rollouts` that are views of other owners, by uid: kind and name, for users."""
    owner_kinds: frozenset[OwnerKind] = frozenset({ROLLOUT_KIND})
    """A replacement whose controller is of another kind counts as one that a user created."""

    def owner_uid(self, replacement: NodeReplacement) -> str:
        """Return the uid of the rollout, or other owner, of a replacement.

        Empty if a user created it.
        """
        owner = controller_of(replacement.metadata)
        return owner.uid if owner is not None and kind_of(owner) in self.owner_kinds else ""


class ClusterReader:
    """Takes snapshots from the caches.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        clients: OperatorClients,
        pending: Callable[[], Iterable[CachedPod]],
        slots: Slots,
        owners: Owners | None = None,
        gates: GateMonitor | None = None,
    ) -> None:
        self._clients = clients
        self._pending = pending
        self._slots = slots
        self._owners = owners or Owners()
        self._gates = gates

    def snapshot(self) -> ClusterSnapshot:
        """Return the objects as the caches have them now.

        Raises:
            SlotsUnknown: Another system failed to report its slots or objections.
        """
        replacements = self._clients.replacements.list()
        nodes = {node.metadata.name: node for node in self._clients.nodes.list()}
        views = self._owners.views()
        rollouts = {**{r.metadata.uid: r for r in self._clients.rollouts.list()}, **views}
        return ClusterSnapshot(
            replacements=replacements,
            rollouts=rollouts,
            other_owners=_names_of_owners(replacements, views) if views else {},
            owner_kinds=self._owners.kinds,
            nodes=nodes,
            orphaned=orphaned_nodes(self._clients.drains.list(), replacements, nodes),
            holders=self._slots.holders(without=ROLLOUTS),
            objections=self._objections(replacements),
            drains={
                replacement.metadata.name: drain
                for replacement in replacements
                if replacement.status.current is Step.DRAINING
                and (drain := self._drain_of(replacement)) is not None
            },
            pending=pending_pods(self._pending()),
            gates=self._records(rollouts, replacements),
        )

    def _objections(self, replacements: Iterable[NodeReplacement]) -> dict[str, str]:
        if not self._slots.has_objections:
            return {}
        names = {r.spec.node_name for r in replacements if r.status.current is Step.WAITING}
        texts = {name: self._slots.objection(name) for name in names}  # mutant: holders-per-node
        return {name: text for name, text in texts.items() if text is not None}

    def _records(
        self, rollouts: Mapping[str, NodeRollout], replacements: Sequence[NodeReplacement]
    ) -> Mapping[str, Records]:
        if self._gates is None:
            return {}
        if not any(rollout.spec.gates for rollout in rollouts.values()):
            return self._gates.observe((), ())
        in_flight = {r.spec.node_name for r in replacements if r.status.current.in_flight}
        in_flight.update(self._slots.holders())
        return self._gates.observe(rollouts.values(), in_flight)

    def _drain_of(self, replacement: NodeReplacement) -> NodeDrain | None:
        drain = self._clients.drains.find(drain_name(replacement))
        return drain if drain is not None and belongs_to(drain, replacement) else None


def _names_of_owners(
    replacements: Iterable[NodeReplacement], views: Mapping[str, NodeRollout]
) -> Mapping[str, str]:
    """Return kind and name of the owners that are not rollouts, by uid."""
    found = (controller_of(replacement.metadata) for replacement in replacements)
    owners = {owner.uid: f"{owner.kind} {owner.name}" for owner in found if owner is not None}
    return {uid: owners.get(uid, view.metadata.name) for uid, view in views.items()}


def rollout_uid(replacement: NodeReplacement) -> str:
    """Return the uid of the rollout that owns it; empty if a user created it."""
    owner = controller_of(replacement.metadata)
    return owner.uid if owner is not None and owner.kind == "NodeRollout" else ""


def pending_pods(pods: Iterable[CachedPod]) -> tuple[PendingPod, ...]:
    """Return the Pending pods that wait to run; a pod that is being deleted does not wait."""
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
