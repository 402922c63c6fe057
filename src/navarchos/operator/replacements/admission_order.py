"""Which replacements may be admitted at all, and their order (OP-09). Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, assert_never

from navarchos.errors import ConfigError
from navarchos.meta import EPOCH
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.history import count_failures, halt_reason
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.snapshot import ClusterSnapshot

__all__ = [
    "cancelled_replacements",
    "children_of_rollouts",
    "is_excluded",
    "order_across_rollouts",
    "sort_key",
    "suspended_rollouts",
    "topology_of",
]


def is_excluded(replacement: api.NodeReplacement, uid: str, snapshot: ClusterSnapshot) -> bool:
    """Return whether a replacement neither starts nor blocks others.

    It is finished, or it or its rollout is deleted. Its slot is counted elsewhere.
    """
    if replacement.status.current.is_finished:
        return True
    if replacement.metadata.deletion_timestamp is not None:
        return True
    if not uid:
        return False
    rollout = snapshot.rollouts.get(uid)
    return rollout is None or rollout.metadata.deletion_timestamp is not None


def cancelled_replacements(snapshot: ClusterSnapshot) -> Mapping[str, None]:
    """Return the names of waiting replacements that never start, in their order."""
    # mutant: cancelled-rollouts-start
    rollouts = {uid for uid, rollout in snapshot.rollouts.items() if rollout.spec.cancel}
    return {
        replacement.metadata.name: None
        for replacement in snapshot.replacements
        if replacement.status.current is api.Step.WAITING
        and (replacement.spec.cancel or (rollouts and snapshot.owner_uid(replacement) in rollouts))
        and not is_excluded(replacement, snapshot.owner_uid(replacement), snapshot)
    }


def suspended_rollouts(snapshot: ClusterSnapshot) -> dict[str, WaitReason]:
    """Return the rollouts of which no node may start, by uid, and why."""
    children = children_of_rollouts(snapshot)
    reasons = {
        uid: _rollout_reason(snapshot.rollouts[uid], children[uid]) for uid in snapshot.rollouts
    }
    return {uid: reason for uid, reason in reasons.items() if reason is not None}


def _rollout_reason(
    rollout: api.NodeRollout, children: Iterable[api.NodeReplacement]
) -> WaitReason | None:
    if rollout.spec.paused:
        return WaitReason.ROLLOUT_PAUSED
    match rollout.status.phase:
        case api.RolloutPhase.HALTED:
            return WaitReason.ROLLOUT_HALTED
        case None | api.RolloutPhase.NEW:
            # Children are created in order, but the creation of one may have failed. No node
            # may start before the nodes that precede it exist.
            return WaitReason.ROLLOUT_NOT_READY
        case api.RolloutPhase.IN_PROGRESS | api.RolloutPhase.COMPLETED:
            # The rollout's controller may not have written Halted yet.
            return _halted(rollout, children)
        case _:
            assert_never(rollout.status.phase)


def _halted(rollout: api.NodeRollout, children: Iterable[api.NodeReplacement]) -> WaitReason | None:
    try:
        why = halt_reason(rollout, count_failures(children, resumed=rollout.status.resumed))
    except ConfigError:
        return WaitReason.INVALID_STRATEGY
    return WaitReason.ROLLOUT_HALTED if why else None


def children_of_rollouts(snapshot: ClusterSnapshot) -> dict[str, list[api.NodeReplacement]]:
    """Return the replacements of each rollout by its uid; under "" those without a rollout."""
    children: dict[str, list[api.NodeReplacement]] = {"": []}
    children |= {uid: [] for uid in snapshot.rollouts}
    for replacement in snapshot.replacements:
        uid = snapshot.owner_uid(replacement)
        if uid in children:
            children[uid].append(replacement)
    return children


class _SortKey(NamedTuple):
    """The order of OP-09, with retries after all other nodes."""

    attempts: int
    topology: str
    created_at: datetime
    node: str
    name: str


def sort_key(replacement: api.NodeReplacement, snapshot: ClusterSnapshot) -> _SortKey:
    """Return the key by which the replacements of one priority are sorted."""
    node = snapshot.nodes.get(replacement.spec.node_name)
    created = node.metadata.creation_timestamp if node is not None else None
    return _SortKey(
        replacement.status.counted_attempts,
        topology_of(replacement.spec.node_name, replacement.spec.strategy.topology_key, snapshot),
        created or EPOCH,
        replacement.spec.node_name,
        replacement.metadata.name,
    )


def order_across_rollouts(
    replacement: api.NodeReplacement, snapshot: ClusterSnapshot
) -> tuple[int, _SortKey]:
    """Return the key by which replacements of all priorities are sorted."""
    return -replacement.spec.replacement.priority, sort_key(replacement, snapshot)


def topology_of(node_name: str, key: str, snapshot: ClusterSnapshot) -> str:
    """Return the value of a node's topology label; empty without label, key or node."""
    node = snapshot.nodes.get(node_name)
    return node.metadata.labels.get(key, "") if key and node is not None else ""
