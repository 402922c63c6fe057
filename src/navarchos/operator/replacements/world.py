"""What admission looks at: one consistent set of objects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from navarchos.meta import controller_of
from navarchos.operator.api.v1alpha1 import NodeDrain, NodeReplacement, NodeRollout
from navarchos.operator.nodes import Node

__all__ = ["PendingPod", "World", "owning_rollout"]


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod in phase Pending: whose it is, and since when it exists."""

    key: str
    controller_uid: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class World:
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


def owning_rollout(replacement: NodeReplacement) -> str:
    """Return the uid of the rollout that made it; empty when a person did."""
    owner = controller_of(replacement.metadata)
    return owner.uid if owner is not None and owner.kind == "NodeRollout" else ""
