"""The limits within which a node may start: slots, topology, control plane, Pending pods. Pure."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import assert_never

from navarchos.errors import ConfigError
from navarchos.meta import EPOCH
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.history import node_gone
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission_order import topology_of
from navarchos.operator.replacements.snapshot import ClusterSnapshot, PendingPod
from navarchos.operator.slots import names_of_holders

__all__ = ["AdmissionLimits", "limit_of"]


class AdmissionLimits:
    """Compares candidates with the nodes in flight. Each started node leaves one slot less."""

    def __init__(self, snapshot: ClusterSnapshot, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._slots = _nodes_with_slots(snapshot)
        # A stalled node occupies no slot, but it is cordoned all the same.
        self._in_flight = self._slots | {
            r.spec.node_name for r in snapshot.replacements if r.status.is_stalled
        }
        self._control_plane = {
            name: node for name, node in snapshot.nodes.items() if node.is_control_plane
        }
        self._settled_at = max(map(_settled_at, snapshot.replacements), default=EPOCH)
        # Computed from all pods that were ever evicted, so only if there are Pending pods.
        self._evicted = _evicted_owners(snapshot) if snapshot.pending else {}
        self._recheck: list[datetime] = []

    @property
    def in_flight(self) -> AbstractSet[str]:
        """The nodes in flight, including stalled nodes and started candidates. Not a copy."""
        return self._in_flight

    @property
    def recheck(self) -> tuple[datetime, ...]:
        """The times at which time alone changes an answer that was given."""
        return tuple(self._recheck)

    def start(self, node: str) -> None:
        """Count a node that starts now."""
        self._slots.add(node)
        self._in_flight.add(node)

    def reason(self, candidate: api.NodeReplacement) -> WaitReason | None:
        """Return the limit that keeps a candidate from starting; `None` if none does."""
        limit = limit_of(candidate)
        if limit is None:
            return WaitReason.INVALID_STRATEGY
        if len(self._slots) >= limit:  # mutant: one-node-too-many
            return WaitReason.MAX_CONCURRENT
        if not self._shares_topology(candidate):  # mutant: topology-ignored
            return WaitReason.TOPOLOGY
        if self._weakens_control_plane(candidate):  # mutant: control-plane-not-guarded
            return WaitReason.CONTROL_PLANE
        if self._now < self._settled_at:  # mutant: settling-ignored
            self._recheck.append(self._settled_at)
            return WaitReason.SETTLING
        return WaitReason.PENDING_PODS if self._pods_are_pending(candidate) else None

    def has_expired(self, candidate: api.NodeReplacement) -> bool:
        """Return whether a candidate has waited too long for Pending pods."""
        step = candidate.status.step
        since = self._now
        if (
            step is not None
            and step.reason == WaitReason.PENDING_PODS
            and step.started_at is not None
        ):
            since = step.started_at
        limit = timedelta(seconds=candidate.spec.strategy.pending_pods_timeout_seconds)
        if self._now >= since + limit:
            return True
        self._recheck.append(since + limit)
        return False

    def details_of(self, candidate: api.NodeReplacement, reason: WaitReason) -> str:
        """Return a message that names the objects of other systems; empty without such objects."""
        node, strategy = candidate.spec.node_name, candidate.spec.strategy
        match reason:
            case WaitReason.NODE_NEEDED:
                return self._snapshot.objections[node]
            case WaitReason.NODE_IN_FLIGHT:
                held = self._names({node})
                return f"{held} is working on this node" if held else ""
            case WaitReason.MAX_CONCURRENT:
                used, limit = len(self._slots), limit_of(candidate)
                held = self._names(self._slots, counts_others=True)
                return f"{used} of {limit} nodes in flight: {held}" if held else ""
            case WaitReason.TOPOLOGY:
                own = topology_of(node, strategy.topology_key, self._snapshot)
                held = self._names(
                    name
                    for name in self._in_flight & self._snapshot.nodes.keys()
                    if topology_of(name, strategy.topology_key, self._snapshot) != own
                )
                return f"{reason.message}: {held}" if held else ""
            case WaitReason.CONTROL_PLANE:
                held = self._names(self._in_flight & self._control_plane.keys())
                return f"{reason.message}; in flight: {held}" if held else ""
            case _:
                return ""

    def _names(self, nodes: Iterable[str], *, counts_others: bool = False) -> str:
        """Name the holders of these nodes that are no replacements; empty without any."""
        if not self._snapshot.holders:
            return ""
        among = set(nodes)
        held = [self._snapshot.holders[name] for name in among & self._snapshot.holders.keys()]
        others = len(among) - len(held) if counts_others else 0
        return names_of_holders(held, others) if held else ""

    def _shares_topology(self, candidate: api.NodeReplacement) -> bool:
        key = candidate.spec.strategy.topology_key
        if not key:
            return True
        own = topology_of(candidate.spec.node_name, key, self._snapshot)
        # The topology of a node in flight that does not exist any more is not known.
        present = self._in_flight & self._snapshot.nodes.keys()
        return all(topology_of(name, key, self._snapshot) == own for name in present)

    def _weakens_control_plane(self, candidate: api.NodeReplacement) -> bool:
        if candidate.spec.strategy.control_plane is api.ControlPlanePolicy.IGNORE:
            return False
        name = candidate.spec.node_name
        node = self._snapshot.nodes.get(name)
        if node is None or not node.is_control_plane:
            return False
        others = self._control_plane.keys() - {name}
        return any(
            other in self._in_flight or not self._control_plane[other].is_ready for other in others
        )

    def _pods_are_pending(self, candidate: api.NodeReplacement) -> bool:
        policy = candidate.spec.strategy.pending_pods
        match policy:
            case api.PendingPodsPolicy.IGNORE:
                return False
            case api.PendingPodsPolicy.ANY:
                return bool(self._snapshot.pending)
            case api.PendingPodsPolicy.EVICTED:
                return any(map(self._replaces_an_evicted_pod, self._snapshot.pending))
            case _:
                assert_never(policy)

    def _replaces_an_evicted_pod(self, pod: PendingPod) -> bool:
        since = self._evicted.get(pod.controller_uid)
        return since is not None and pod.created_at >= since


def limit_of(replacement: api.NodeReplacement) -> int | None:
    """Return its `maxConcurrent`; `None` if that is invalid.

    A rollout replaces percentages by numbers in its children, so only replacements that a
    user created have a percentage: a percentage of 1 node.
    """
    value = replacement.spec.strategy.max_concurrent
    try:
        resolved = api.resolve_count(value, 1, round_up=True)
    except ConfigError:
        return None
    return resolved if isinstance(value, int) else max(resolved, 1)


def _nodes_with_slots(snapshot: ClusterSnapshot) -> set[str]:
    """Return the nodes that occupy a slot: two replacements of one node occupy one."""
    occupied = {r.spec.node_name for r in snapshot.replacements if r.status.occupies_slot}
    return occupied | snapshot.orphaned | snapshot.holders.keys()


def _settled_at(replacement: api.NodeReplacement) -> datetime:
    done_at = replacement.status.completion_timestamp
    if replacement.status.current is not api.Step.DONE or done_at is None or node_gone(replacement):
        return EPOCH
    return done_at + timedelta(seconds=replacement.spec.strategy.settle_seconds)


def _evicted_owners(snapshot: ClusterSnapshot) -> dict[str, datetime]:
    """Return the controllers whose pods unfinished rollouts evicted, and since when.

    A pod that was created before the first eviction is Pending for another reason.
    """
    active = {
        snapshot.owner_uid(replacement)
        for replacement in snapshot.replacements
        if not replacement.status.current.is_finished
    }
    owners: dict[str, datetime] = {}
    for replacement in snapshot.replacements:
        started_at = replacement.status.start_timestamp
        if started_at is None or snapshot.owner_uid(replacement) not in active:
            continue
        # API servers write creation times in whole seconds.
        since = started_at.replace(microsecond=0)
        for owner in replacement.status.evicted_owners:
            owners[owner.uid] = min(since, owners.get(owner.uid, since))
    return owners
