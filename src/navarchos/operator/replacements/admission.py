"""Admission: decides which nodes may start now. One pure function of the objects (OP-21)."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, assert_never

from navarchos.errors import ConfigError
from navarchos.meta import EPOCH
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates import GateWait, gate_waits, needs_alerts
from navarchos.operator.history import count_failures, halt_reason, node_gone
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.snapshot import ClusterSnapshot, PendingPod
from navarchos.operator.replacements.stalled import StalledNodes, find_stalled
from navarchos.operator.replacements.waits import (
    NO_WAITS,
    RolloutWait,
    RolloutWaits,
    find_waits,
    may_wait,
)
from navarchos.operator.slots import names_of_holders
from navarchos.operator.waves import has_begun

__all__ = [
    "MAX_TIE_CANDIDATES",
    "Decisions",
    "PreparationTurn",
    "admit",
    "admit_with_budgets",
    "to_prepare",
]

MAX_TIE_CANDIDATES: Final = 8
"""The largest number of nodes that are compared by their budgets when one of them may start."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """The result of `admit`.

    Each replacement that has not started is in exactly one of `start`, `cancelled`, `expired`
    and `waiting`, except if it is being deleted or its node's uid is not known yet.
    """

    start: tuple[str, ...] = ()
    """Names of replacements to start, in this order. All of them may start."""
    cancelled: tuple[str, ...] = ()
    """Names that never start, because the replacement or its rollout is cancelled."""
    expired: tuple[str, ...] = ()
    """Names that waited too long for Pending pods: the attempt has failed."""
    stalled: tuple[str, ...] = ()
    """Names in flight that release their slot. They still occupy it in this decision."""
    waiting: Mapping[str, WaitReason] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)
    """Messages of some of `waiting`, by name. The others have the message of their reason."""
    recheck_after: float | None = None
    """Seconds until time alone changes a decision; `None` if it never does."""
    openings: tuple[datetime, ...] = ()
    """When the windows open for which nodes wait: one for each rollout, and for each replacement
    without a rollout."""
    at_gates: tuple[str, ...] = ()
    """The uids of rollouts of which a node could start but for a gate."""
    tie_candidates: tuple[str, ...] = ()
    """Nodes whose budgets would decide which of them starts beside the nodes in flight."""
    busy_nodes: tuple[str, ...] = ()
    """The nodes in flight, including stalled nodes and nodes in `start`; empty without
    `tie_candidates`."""


def admit(snapshot: ClusterSnapshot, now: datetime) -> Decisions:
    """Decide which waiting replacements may start, and why the others must wait.

    Priorities hold across rollouts: only nodes of the highest unfinished priority may start
    (OP-05). Within a priority, nodes with fewer failed attempts come first, then topology, age
    and name decide (OP-09). A blocked node blocks only later nodes of its rollout; a
    control-plane node that waits for its peers, and a node in flight for another replacement,
    block no other node, and neither does a node to which a system objects: it does not count as
    unfinished either. The waiting nodes of a rollout that may start none of them, for example
    outside its windows, delay no other rollout. Of several nodes that may start, the first one
    whose pods share the fewest budgets with the nodes in flight starts.

    Promises: the same objects and time give the same decisions, in whatever order the objects
    are listed. Nodes in flight, for whatever object, and started nodes together stay within the
    limit of each started node, not counting stalled nodes; each rollout has at most `maxFailures`
    stalled nodes. A control-plane node starts only while the other control-plane nodes are Ready,
    unless its strategy says otherwise. Nothing is changed.
    """
    suspended = _suspended_rollouts(snapshot)
    cancelled = _cancelled(snapshot)
    waiting: dict[str, WaitReason] = {}
    eligible: list[api.NodeReplacement] = []
    active: list[api.NodeReplacement] = []
    unfinished: list[int] = []
    waits = _find_waits(snapshot, now)
    held: dict[str, list[api.NodeReplacement]] = {}
    gates = gate_waits(snapshot.rollouts, snapshot.gates, now)
    closed = {uid for uid in gates if gates[uid].is_closed}
    for replacement in snapshot.replacements:
        uid = snapshot.owner_uid(replacement)
        if _is_excluded(replacement, uid, snapshot) or replacement.metadata.name in cancelled:
            continue
        reason = _reason_of_its_own(replacement, suspended.get(uid), snapshot)
        step, node = replacement.status.current, replacement.spec.node_name
        is_held = waits.of(replacement, uid) is not None
        is_needed = step is api.Step.WAITING and node in snapshot.objections
        # A closed gate delays no other rollout.
        is_at_gate = step is api.Step.WAITING and uid in closed
        is_in_line = (reason is None and not is_needed and not is_at_gate) or reason in _SOON
        if is_in_line and not is_held:
            unfinished.append(replacement.spec.replacement.priority)
        if step is not api.Step.WAITING:
            if reason is None:
                active.append(replacement)
            continue
        if reason is not None:
            waiting[replacement.metadata.name] = reason
        elif is_held:
            held.setdefault(uid or replacement.metadata.name, []).append(replacement)
        elif replacement.spec.node_uid:
            eligible.append(replacement)
    top = max(unfinished, default=0)
    candidates = [each for each in eligible if _has_priority(each, top)]
    waiting |= {
        each.metadata.name: WaitReason.HIGHER_PRIORITY
        for each in eligible
        if not _has_priority(each, top)
    }
    candidates.sort(key=lambda candidate: _sort_key(candidate, snapshot))
    if closed:
        # Nodes that may start come first, so that the slots that they leave decide on the rest.
        candidates.sort(key=lambda candidate: snapshot.owner_uid(candidate) in closed)
    stalled = find_stalled(snapshot, now, active)
    admitter = _Admitter(snapshot, now, waiting, waits, gates)
    admitter.hold_back(held)
    decisions = admitter.run(candidates, stalled)
    decisions = _complete(decisions, cancelled, snapshot)
    return _with_owners(decisions, snapshot)


_SOON: Final = frozenset({WaitReason.ROLLOUT_NOT_READY, WaitReason.QUEUED})
"""Reasons that end by themselves soon: such a node delays nodes of lower priorities."""


def _complete(
    decisions: Decisions, cancelled: Iterable[str], snapshot: ClusterSnapshot
) -> Decisions:
    """Add what does not depend on other nodes: cancelled nodes, and messages of actions."""
    messages = {
        name: hold.message
        for name, hold in snapshot.holds.items()
        if hold.message and decisions.waiting.get(name) is hold.reason
    }
    details = {**decisions.details, **messages} if messages else decisions.details
    return replace(decisions, cancelled=tuple(cancelled), details=details)


def _reason_of_its_own(
    replacement: api.NodeReplacement, suspended: WaitReason | None, snapshot: ClusterSnapshot
) -> WaitReason | None:
    """Return why a node may not start whatever the other nodes do."""
    if replacement.spec.paused:
        return WaitReason.PAUSED
    hold = snapshot.holds.get(replacement.metadata.name)
    return hold.reason if suspended is None and hold is not None else suspended


@dataclass(frozen=True, slots=True)
class PreparationTurn:
    """The waiting replacements whose action prepares their node (UP-55)."""

    now: tuple[api.NodeReplacement, ...] = ()
    """In their order; of each rollout at most `maxConcurrent`."""
    later: tuple[str, ...] = ()
    """Names of the others."""


def to_prepare(snapshot: ClusterSnapshot, kinds: Collection[api.ActionKind]) -> PreparationTurn:
    """Decide which nodes may be prepared now, whatever their priority.

    Nodes that are being prepared stay in their turn, so that no more than `maxConcurrent` nodes
    of a rollout have been prepared and not started.
    """
    suspended = _suspended_rollouts(snapshot)
    cancelled = _cancelled(snapshot)
    waiting = [
        replacement
        for replacement in snapshot.replacements
        if replacement.status.current is api.Step.WAITING
        and replacement.spec.action is not None
        and replacement.spec.action.kind in kinds
        and replacement.spec.node_uid
        and not replacement.spec.paused
        and snapshot.owner_uid(replacement) not in suspended
        and replacement.metadata.name not in cancelled
        and not _is_excluded(replacement, snapshot.owner_uid(replacement), snapshot)
    ]
    waiting.sort(key=lambda each: (not _is_preparing(each), _sort_key(each, snapshot)))
    now: list[api.NodeReplacement] = []
    later: list[str] = []
    taken: Counter[str] = Counter()
    for replacement in waiting:
        uid = snapshot.owner_uid(replacement)
        if taken[uid] < (_limit(replacement) or 0):
            taken[uid] += 1
            now.append(replacement)
        else:
            later.append(replacement.metadata.name)
    return PreparationTurn(tuple(now), tuple(later))


def _is_preparing(replacement: api.NodeReplacement) -> bool:
    step = replacement.status.step
    return step is not None and step.reason == WaitReason.PREPARING


def admit_with_budgets(
    snapshot: ClusterSnapshot,
    now: datetime,
    lookup: Callable[[Sequence[str], Sequence[str]], Mapping[str, frozenset[str]]],
) -> Decisions:
    """Decide as `admit` does, and look up budgets if they decide between nodes.

    Args:
        snapshot: The objects that decide.
        now: The present time.
        lookup: Given waiting nodes and nodes in flight, returns the budgets over their pods by
            node; a node that it leaves out shares no budget.
    """
    decisions = admit(snapshot, now)
    if not decisions.tie_candidates:
        return decisions
    budgets = lookup(decisions.tie_candidates, decisions.busy_nodes)
    return admit(replace(snapshot, budgets=budgets), now) if budgets else decisions


def _has_priority(replacement: api.NodeReplacement, top: int) -> bool:
    # Only nodes to which a system objects have a higher priority.
    return replacement.spec.replacement.priority >= top  # mutant: priorities-ignored


class _SortKey(NamedTuple):
    """The order of OP-09, with retries after all other nodes."""

    attempts: int
    topology: str
    created_at: datetime
    node: str
    name: str


def _sort_key(replacement: api.NodeReplacement, snapshot: ClusterSnapshot) -> _SortKey:
    node = snapshot.nodes.get(replacement.spec.node_name)
    created = node.metadata.creation_timestamp if node is not None else None
    return _SortKey(
        replacement.status.counted_attempts,
        _topology(replacement.spec.node_name, replacement.spec.strategy.topology_key, snapshot),
        created or EPOCH,
        replacement.spec.node_name,
        replacement.metadata.name,
    )


def _order(replacement: api.NodeReplacement, snapshot: ClusterSnapshot) -> tuple[int, _SortKey]:
    return -replacement.spec.replacement.priority, _sort_key(replacement, snapshot)


def _topology(node_name: str, key: str, snapshot: ClusterSnapshot) -> str:
    node = snapshot.nodes.get(node_name)
    return node.metadata.labels.get(key, "") if key and node is not None else ""


def _is_excluded(replacement: api.NodeReplacement, uid: str, snapshot: ClusterSnapshot) -> bool:
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


def _cancelled(snapshot: ClusterSnapshot) -> Mapping[str, None]:
    """Return the names of waiting replacements that never start, in their order."""
    rollouts = {uid for uid, rollout in snapshot.rollouts.items() if rollout.spec.cancel}
    return {
        replacement.metadata.name: None
        for replacement in snapshot.replacements
        if replacement.status.current is api.Step.WAITING
        and (replacement.spec.cancel or (rollouts and snapshot.owner_uid(replacement) in rollouts))
        and not _is_excluded(replacement, snapshot.owner_uid(replacement), snapshot)
    }


def _with_owners(decisions: Decisions, snapshot: ClusterSnapshot) -> Decisions:
    """Return decisions whose messages name the owner, where the reason speaks of a rollout."""
    if not snapshot.other_owners:
        return decisions
    details = dict(decisions.details)
    for replacement in snapshot.replacements:
        name = replacement.metadata.name
        owner = snapshot.other_owners.get(snapshot.owner_uid(replacement))
        reason = decisions.waiting.get(name)
        if owner is None or reason is None or name in details:
            continue
        if reason is WaitReason.ROLLOUT_PAUSED:
            details[name] = f"{owner} is paused"
        elif reason is WaitReason.ROLLOUT_HALTED:
            details[name] = f"{owner} is halted after too many failures"
        elif reason is WaitReason.ROLLOUT_NOT_READY:
            details[name] = f"{owner} has not created all of its replacements yet"
    return replace(decisions, details=details)


def _find_waits(snapshot: ClusterSnapshot, now: datetime) -> RolloutWaits:
    """Return the waits of whole rollouts; most clusters have none, which costs little."""
    strategies: list[api.Strategy] = [each.spec.strategy for each in snapshot.rollouts.values()]
    strategies += [replacement.spec.strategy for replacement in snapshot.replacements]
    if not any(map(may_wait, strategies)):
        return NO_WAITS
    return find_waits(snapshot.rollouts, _children(snapshot), now)


def _children(snapshot: ClusterSnapshot) -> dict[str, list[api.NodeReplacement]]:
    """Return the replacements of each rollout by its uid; under "" those without a rollout."""
    children: dict[str, list[api.NodeReplacement]] = {"": []}
    children |= {uid: [] for uid in snapshot.rollouts}
    for replacement in snapshot.replacements:
        uid = snapshot.owner_uid(replacement)
        if uid in children:
            children[uid].append(replacement)
    return children


def _suspended_rollouts(snapshot: ClusterSnapshot) -> dict[str, WaitReason]:
    """Return the rollouts of which no node may start, by uid, and why."""
    children = _children(snapshot)
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


class _Admitter:
    """Admits candidates one after the other. Each started node leaves one slot less."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        now: datetime,
        waiting: dict[str, WaitReason],
        waits: RolloutWaits,
        gates: dict[str, GateWait],
    ) -> None:
        self._snapshot = snapshot
        self._now = now
        self._gates = gates
        self._at_gates: dict[str, None] = {}
        self._waiting = waiting
        self._waits = waits
        self._details: dict[str, str] = {}
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
        self._budgets_in_use = {
            name for node in self._in_flight for name in snapshot.budgets.get(node, ())
        }
        self._tie_candidates: dict[str, None] = {}
        self._blocked_rollouts: set[str] = set()
        self._recheck: list[datetime] = list(waits.recheck)
        self._openings: list[datetime] = []
        self._new_nodes = dict(waits.new_nodes)
        self._full_waves: set[str] = set()
        self._start: list[str] = []
        self._expired: list[str] = []

    def hold_back(self, held: Mapping[str, list[api.NodeReplacement]]) -> None:
        """Record why nodes wait that may not start at all; the first of a rollout says it."""
        for replacements in held.values():
            known = [each for each in replacements if each.spec.node_uid]
            known.sort(key=lambda each: _order(each, self._snapshot))
            for number, replacement in enumerate(known):
                wait = self._waits.of(replacement, self._snapshot.owner_uid(replacement))
                if number or wait is None:
                    self._waiting[replacement.metadata.name] = WaitReason.QUEUED
                else:
                    self._record_wait(replacement, wait)

    def _record_wait(self, replacement: api.NodeReplacement, wait: RolloutWait) -> None:
        name = replacement.metadata.name
        self._waiting[name], self._details[name] = wait.reason, wait.message
        if wait.until is not None:
            self._recheck.append(wait.until)
            if wait.reason.is_for_window:
                self._openings.append(wait.until)

    def run(self, candidates: Sequence[api.NodeReplacement], stalled: StalledNodes) -> Decisions:
        """Decide on each candidate, in order."""
        # The first candidate is the last of this list: `pop` takes it in constant time.
        remaining = list(reversed(candidates))
        while remaining:
            if self._is_blocked(remaining[-1]):
                remaining.pop()
            else:
                self._admit(remaining.pop(self._pick(remaining)))
        soonest = min((*self._recheck, *stalled.recheck), default=None)
        return Decisions(
            start=tuple(self._start),
            expired=tuple(self._expired),
            stalled=stalled.names,
            waiting=self._waiting,
            details=self._details,
            recheck_after=None
            if soonest is None
            else max((soonest - self._now).total_seconds(), 0.0),
            openings=tuple(self._openings),
            at_gates=tuple(self._at_gates),
            tie_candidates=tuple(self._tie_candidates),
            busy_nodes=tuple(sorted(self._in_flight)) if self._tie_candidates else (),
        )

    def _admit(self, candidate: api.NodeReplacement) -> None:
        self._slots.add(candidate.spec.node_name)
        self._in_flight.add(candidate.spec.node_name)
        self._budgets_in_use.update(self._budgets_of(candidate))
        self._start.append(candidate.metadata.name)
        uid = self._snapshot.owner_uid(candidate)
        if uid in self._new_nodes and not has_begun(candidate):
            self._new_nodes[uid] -= 1
        rollout = self._snapshot.rollouts.get(uid)
        if rollout is not None and needs_alerts(rollout.spec.gates):
            # mutant: one-alert-query-for-many-starts
            self._gates[uid] = GateWait("the alerts are queried again after each start", False)

    def _pick(self, remaining: Sequence[api.NodeReplacement]) -> int:
        """Return the index of the candidate to start: the first one, or one like it.

        Each of the compared candidates may start now. The choice changes neither the number of
        nodes that start nor how long the first candidate waits.
        """
        first = len(remaining) - 1
        if not self._in_flight:
            return first
        following = range(first - 1, max(first - MAX_TIE_CANDIDATES, -1), -1)
        ties = [n for n in following if self._is_interchangeable(remaining[n], remaining[first])]
        if not ties:
            return first
        ties.insert(0, first)
        self._tie_candidates.update(dict.fromkeys(remaining[n].spec.node_name for n in ties))

        def shared_budgets(n: int) -> int:
            return len(self._budgets_in_use & self._budgets_of(remaining[n]))

        return min(ties, key=lambda n: (shared_budgets(n), -n))

    def _is_interchangeable(
        self, candidate: api.NodeReplacement, first: api.NodeReplacement
    ) -> bool:
        """Return whether it differs from the first candidate by age and name only."""
        if self._snapshot.owner_uid(candidate) != self._snapshot.owner_uid(first):
            return False
        mine, theirs = _sort_key(candidate, self._snapshot), _sort_key(first, self._snapshot)
        if (mine.attempts, mine.topology) != (theirs.attempts, theirs.topology):
            return False
        node = candidate.spec.node_name
        if node in self._in_flight or node in self._snapshot.objections:
            return False
        if self._is_beyond_wave(candidate):
            return False
        return self._reason(candidate) is None

    def _budgets_of(self, candidate: api.NodeReplacement) -> frozenset[str]:
        return self._snapshot.budgets.get(candidate.spec.node_name, frozenset())

    def _is_blocked(self, candidate: api.NodeReplacement) -> bool:
        """Return whether a candidate may not start, and record why."""
        uid, node = self._snapshot.owner_uid(candidate), candidate.spec.node_name
        if node in self._in_flight:
            self._wait(candidate, WaitReason.NODE_IN_FLIGHT)
            return True
        if uid in self._blocked_rollouts or self._is_beyond_wave(candidate):
            self._wait_in_line(candidate, uid)
            return True
        if node in self._snapshot.objections:  # mutant: objections-ignored
            # Before all other reasons: those would delay the nodes after it.
            self._wait(candidate, WaitReason.NODE_NEEDED)
            return True
        reason = self._reason(candidate)
        if reason is None:
            return False
        if reason is WaitReason.CONTROL_PLANE:
            self._wait(candidate, reason)
            return True
        self._blocked_rollouts.add(uid)
        if reason is WaitReason.GATE:
            self._wait_at_gate(candidate, uid)
        elif reason is WaitReason.PENDING_PODS and self._has_expired(candidate):
            self._expired.append(candidate.metadata.name)
        else:
            self._wait(candidate, reason)
        return True

    def _wait(self, candidate: api.NodeReplacement, reason: WaitReason) -> None:
        self._waiting[candidate.metadata.name] = reason
        details = self._details_of(candidate, reason)
        if details:
            self._details[candidate.metadata.name] = details

    def _details_of(self, candidate: api.NodeReplacement, reason: WaitReason) -> str:
        """Return a message that names the objects of other systems; empty without such objects."""
        node, strategy = candidate.spec.node_name, candidate.spec.strategy
        match reason:
            case WaitReason.NODE_NEEDED:
                return self._snapshot.objections[node]
            case WaitReason.NODE_IN_FLIGHT:
                held = self._names({node})
                return f"{held} is working on this node" if held else ""
            case WaitReason.MAX_CONCURRENT:
                used, limit = len(self._slots), _limit(candidate)
                held = self._names(self._slots, counts_others=True)
                return f"{used} of {limit} nodes in flight: {held}" if held else ""
            case WaitReason.TOPOLOGY:
                own = _topology(node, strategy.topology_key, self._snapshot)
                held = self._names(
                    name
                    for name in self._in_flight & self._snapshot.nodes.keys()
                    if _topology(name, strategy.topology_key, self._snapshot) != own
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

    def _is_beyond_wave(self, candidate: api.NodeReplacement) -> bool:
        """Return whether as many nodes as the wave has have started, without this one."""
        full = self._new_nodes.get(self._snapshot.owner_uid(candidate)) == 0
        return full and not has_begun(candidate)  # mutant: waves-ignored

    def _wait_in_line(self, candidate: api.NodeReplacement, uid: str) -> None:
        """Record that others of its rollout come first, or for the first one, that a wave is full.

        A full wave does not block the rollout: nodes of the wave that are tried again still start.
        """
        if uid in self._blocked_rollouts or uid in self._full_waves:
            self._wait(candidate, WaitReason.QUEUED)
        else:
            self._record_wait(candidate, self._waits.beyond[uid])
            self._full_waves.add(uid)

    def _wait_at_gate(self, candidate: api.NodeReplacement, uid: str) -> None:
        """Record that nothing but a gate keeps a node from starting."""
        wait, name = self._gates[uid], candidate.metadata.name
        self._waiting[name], self._details[name] = WaitReason.GATE, wait.message
        self._at_gates[uid] = None
        if wait.until is not None:
            self._recheck.append(wait.until)

    def _reason(self, candidate: api.NodeReplacement) -> WaitReason | None:
        reason = self._limit_reason(candidate)
        # Gates come last, so that their reason means that the node could otherwise start.
        if reason is None and self._snapshot.owner_uid(candidate) in self._gates:
            return WaitReason.GATE
        return reason

    def _limit_reason(self, candidate: api.NodeReplacement) -> WaitReason | None:
        limit = _limit(candidate)
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

    def _shares_topology(self, candidate: api.NodeReplacement) -> bool:
        key = candidate.spec.strategy.topology_key
        if not key:
            return True
        own = _topology(candidate.spec.node_name, key, self._snapshot)
        # The topology of a node in flight that does not exist any more is not known.
        present = self._in_flight & self._snapshot.nodes.keys()
        return all(_topology(name, key, self._snapshot) == own for name in present)

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

    def _has_expired(self, candidate: api.NodeReplacement) -> bool:
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


def _limit(replacement: api.NodeReplacement) -> int | None:
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
