"""Admission: decides which nodes may start now. One pure function of the objects (OP-21)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates import GateWait, gate_waits, needs_alerts
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission_order import (
    cancelled_replacements,
    children_of_rollouts,
    is_excluded,
    order_across_rollouts,
    sort_key,
    suspended_rollouts,
)
from navarchos.operator.replacements.limits import AdmissionLimits
from navarchos.operator.replacements.snapshot import ClusterSnapshot
from navarchos.operator.replacements.stalled import StalledNodes, find_stalled
from navarchos.operator.replacements.waits import (
    NO_WAITS,
    RolloutWait,
    RolloutWaits,
    find_waits,
    may_wait,
)
from navarchos.operator.waves import has_begun

__all__ = [
    "MAX_TIE_CANDIDATES",
    "Decisions",
    "admit",
    "admit_with_budgets",
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
    suspended = suspended_rollouts(snapshot)
    cancelled = cancelled_replacements(snapshot)
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
        if is_excluded(replacement, uid, snapshot) or replacement.metadata.name in cancelled:
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
    candidates.sort(key=lambda candidate: sort_key(candidate, snapshot))
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
    return find_waits(snapshot.rollouts, children_of_rollouts(snapshot), now)


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
        self._limits = AdmissionLimits(snapshot, now)
        self._budgets_in_use = {
            name for node in self._limits.in_flight for name in snapshot.budgets.get(node, ())
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
            known.sort(key=lambda each: order_across_rollouts(each, self._snapshot))
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
        soonest = min((*self._recheck, *self._limits.recheck, *stalled.recheck), default=None)
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
            busy_nodes=tuple(sorted(self._limits.in_flight)) if self._tie_candidates else (),
        )

    def _admit(self, candidate: api.NodeReplacement) -> None:
        self._limits.start(candidate.spec.node_name)
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
        if not self._limits.in_flight:
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
        mine, theirs = sort_key(candidate, self._snapshot), sort_key(first, self._snapshot)
        if (mine.attempts, mine.topology) != (theirs.attempts, theirs.topology):
            return False
        node = candidate.spec.node_name
        if node in self._limits.in_flight or node in self._snapshot.objections:
            return False
        if self._is_beyond_wave(candidate):
            return False
        return self._reason(candidate) is None

    def _budgets_of(self, candidate: api.NodeReplacement) -> frozenset[str]:
        return self._snapshot.budgets.get(candidate.spec.node_name, frozenset())

    def _is_blocked(self, candidate: api.NodeReplacement) -> bool:
        """Return whether a candidate may not start, and record why."""
        uid, node = self._snapshot.owner_uid(candidate), candidate.spec.node_name
        if node in self._limits.in_flight:
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
        elif reason is WaitReason.PENDING_PODS and self._limits.has_expired(candidate):
            self._expired.append(candidate.metadata.name)
        else:
            self._wait(candidate, reason)
        return True

    def _wait(self, candidate: api.NodeReplacement, reason: WaitReason) -> None:
        self._waiting[candidate.metadata.name] = reason
        details = self._limits.details_of(candidate, reason)
        if details:
            self._details[candidate.metadata.name] = details

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
        reason = self._limits.reason(candidate)
        # Gates come last, so that their reason means that the node could otherwise start.
        if reason is None and self._snapshot.owner_uid(candidate) in self._gates:
            return WaitReason.GATE
        return reason
