"""Which nodes may start now: one pure function of the objects (OP-21)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from navarchos.errors import ConfigError
from navarchos.meta import EPOCH
from navarchos.operator.api.v1alpha1 import (
    ControlPlanePolicy,
    NodeReplacement,
    NodeRollout,
    PendingPodsPolicy,
    RolloutPhase,
    Step,
    resolve_count,
)
from navarchos.operator.history import count_failures, halt_reason, node_gone
from navarchos.operator.replacements.snapshot import ClusterSnapshot, PendingPod, rollout_uid
from navarchos.operator.replacements.stalled import StalledNodes, find_stalled
from navarchos.operator.replacements.waiting import WaitReason

__all__ = ["MAX_TIE_CANDIDATES", "Decisions", "admit", "admit_with_budgets"]

MAX_TIE_CANDIDATES: Final = 8
"""Nodes next in line that are compared when one of them may start."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """What `admit` decided.

    Each replacement that has not started is in exactly one of the first three,
    except one that is being deleted or whose node's uid is not known yet.
    """

    start: tuple[str, ...] = ()
    """Names of replacements to start, in this order. All of them may start."""
    expired: tuple[str, ...] = ()
    """Names that waited for Pending pods for too long: the attempt has failed."""
    stalled: tuple[str, ...] = ()
    """Names in flight that give their slot away; they still have it in this decision."""
    waiting: Mapping[str, WaitReason] = field(default_factory=dict)
    recheck_after: float | None = None
    """Seconds until time alone changes a decision; `None` when it never does."""
    tie_candidates: tuple[str, ...] = ()
    """Nodes whose budgets would decide which of them starts beside those in flight."""
    busy_nodes: tuple[str, ...] = ()
    """The nodes in flight and stalled, those that were started included; empty if none was
    compared."""


def admit(snapshot: ClusterSnapshot, now: datetime) -> Decisions:
    """Decide which waiting replacements may start, and why the others may not.

    Priorities hold across rollouts (OP-05): only the highest priority that is
    unfinished may start nodes. Within it the order is OP-09, after the number of
    failed attempts. A node that may not start holds up those of its own rollout
    that come after it, and no others; one that waits for its own sake holds up
    nobody. Of several that may start, those next in line, the one whose pods share
    the fewest budgets with nodes in flight goes first.

    Promises: the same objects and time give the same answer, in whatever order
    they come; nodes in flight and started ones together stay within the limit of
    each node that is started, not counting those that are stalled; of these each rollout has
    no more than its `maxFailures`; a node of the control plane starts only while the others
    of it are well, unless its strategy says otherwise; nothing is changed.
    """
    frozen = _suspended_rollouts(snapshot)
    waiting: dict[str, WaitReason] = {}
    eligible: list[NodeReplacement] = []
    active: list[NodeReplacement] = []
    unfinished: list[int] = []
    for replacement in snapshot.replacements:
        line = rollout_uid(replacement)
        if _is_excluded(replacement, line, snapshot):
            continue
        reason = WaitReason.PAUSED if replacement.spec.paused else frozen.get(line)
        if reason is None or reason is WaitReason.ROLLOUT_NOT_READY:
            unfinished.append(replacement.spec.replacement.priority)
        if replacement.status.current is not Step.WAITING:
            if reason is None:
                active.append(replacement)
            continue
        if reason is not None:
            waiting[replacement.metadata.name] = reason
        elif replacement.spec.node_uid:
            eligible.append(replacement)
    top = max(unfinished, default=0)
    candidates = []
    for replacement in eligible:
        if replacement.spec.replacement.priority == top:
            candidates.append(replacement)
        else:
            waiting[replacement.metadata.name] = WaitReason.HIGHER_PRIORITY
    candidates.sort(key=lambda candidate: _order(candidate, snapshot))
    return _Admitter(snapshot, now, waiting).run(candidates, find_stalled(snapshot, now, active))


def admit_with_budgets(
    snapshot: ClusterSnapshot,
    now: datetime,
    look: Callable[[Sequence[str], Sequence[str]], Mapping[str, frozenset[str]]],
) -> Decisions:
    """Decide as `admit` does, and find out about budgets where they make a difference.

    Args:
        snapshot: The objects that decide.
        now: The present time.
        look: Given nodes that wait and nodes in flight, returns the budgets over their
            pods by node; one that it leaves out shares none.
    """
    decisions = admit(snapshot, now)
    if not decisions.tie_candidates:
        return decisions
    budgets = look(decisions.tie_candidates, decisions.busy_nodes)
    return admit(replace(snapshot, budgets=budgets), now) if budgets else decisions


class _Place(NamedTuple):
    """OP-09, with retries after all others."""

    attempts: int
    topology: str
    created_at: datetime
    node: str
    name: str


def _order(replacement: NodeReplacement, snapshot: ClusterSnapshot) -> _Place:
    node = snapshot.nodes.get(replacement.spec.node_name)
    created = node.metadata.creation_timestamp if node is not None else None
    return _Place(
        replacement.status.counted_attempts,
        _topology(replacement.spec.node_name, replacement.spec.strategy.topology_key, snapshot),
        created or EPOCH,
        replacement.spec.node_name,
        replacement.metadata.name,
    )


def _topology(node_name: str, key: str, snapshot: ClusterSnapshot) -> str:
    node = snapshot.nodes.get(node_name)
    return node.metadata.labels.get(key, "") if key and node is not None else ""


def _is_excluded(replacement: NodeReplacement, line: str, snapshot: ClusterSnapshot) -> bool:
    """Tell those that neither start nor hold up others; their slots count elsewhere."""
    if replacement.status.current.is_finished:
        return True
    if replacement.metadata.deletion_timestamp is not None:
        return True
    if not line:
        return False
    rollout = snapshot.rollouts.get(line)
    return rollout is None or rollout.metadata.deletion_timestamp is not None


def _suspended_rollouts(snapshot: ClusterSnapshot) -> dict[str, WaitReason]:
    children: dict[str, list[NodeReplacement]] = {uid: [] for uid in snapshot.rollouts}
    for replacement in snapshot.replacements:
        uid = rollout_uid(replacement)
        if uid in children:
            children[uid].append(replacement)
    reasons = {uid: _rollout_reason(snapshot.rollouts[uid], children[uid]) for uid in children}
    return {uid: reason for uid, reason in reasons.items() if reason is not None}


def _rollout_reason(rollout: NodeRollout, children: Iterable[NodeReplacement]) -> WaitReason | None:
    if rollout.spec.paused:
        return WaitReason.ROLLOUT_PAUSED
    if rollout.status.phase is RolloutPhase.HALTED:
        return WaitReason.ROLLOUT_HALTED
    # Children are created in order, but one of them may have failed: none may
    # start before those that go first exist.
    if rollout.status.phase in {None, RolloutPhase.NEW}:
        return WaitReason.ROLLOUT_NOT_READY
    # The rollout's own controller may not have written Halted yet.
    try:
        halted = halt_reason(rollout, count_failures(children, resumed=rollout.status.resumed))
    except ConfigError:
        return WaitReason.INVALID_STRATEGY
    return WaitReason.ROLLOUT_HALTED if halted else None


class _Admitter:
    """One walk along the line; each node that starts takes a slot from the next."""

    def __init__(
        self, snapshot: ClusterSnapshot, now: datetime, waiting: dict[str, WaitReason]
    ) -> None:
        self._snapshot = snapshot
        self._now = now
        self._waiting = waiting
        self._busy = _nodes_with_slots(snapshot)
        # Who is stalled takes no slot, and its node is closed all the same.
        self._closed = self._busy | {
            r.spec.node_name for r in snapshot.replacements if r.status.is_stalled
        }
        self._control_plane = {
            name: node for name, node in snapshot.nodes.items() if node.is_control_plane
        }
        self._settled_at = max(map(_settled_at, snapshot.replacements), default=EPOCH)
        # Of all pods that were ever evicted: only where somebody asks.
        self._evicted = _evicted_owners(snapshot.replacements) if snapshot.pending else {}
        self._budgets_in_use = {
            name for node in self._closed for name in snapshot.budgets.get(node, ())
        }
        self._tie_candidates: dict[str, None] = {}
        self._held_up: set[str] = set()
        self._recheck: list[datetime] = []
        self._start: list[str] = []
        self._expired: list[str] = []

    def run(self, candidates: Sequence[NodeReplacement], stalled: StalledNodes) -> Decisions:
        """Decide on each candidate, first in line first."""
        line = list(reversed(candidates))
        while line:
            if self._is_held_back(line[-1]):
                line.pop()
            else:
                self._begin(line.pop(self._pick(line)))
        soonest = min((*self._recheck, *stalled.recheck), default=None)
        return Decisions(
            start=tuple(self._start),
            expired=tuple(self._expired),
            stalled=stalled.names,
            waiting=self._waiting,
            recheck_after=None
            if soonest is None
            else max((soonest - self._now).total_seconds(), 0.0),
            tie_candidates=tuple(self._tie_candidates),
            busy_nodes=tuple(sorted(self._closed)) if self._tie_candidates else (),
        )

    def _begin(self, candidate: NodeReplacement) -> None:
        self._busy.add(candidate.spec.node_name)
        self._closed.add(candidate.spec.node_name)
        self._budgets_in_use.update(self._budgets_of(candidate))
        self._start.append(candidate.metadata.name)

    def _pick(self, line: Sequence[NodeReplacement]) -> int:
        """Return the place in the line, whose first is its last, of the one to start.

        All of them could start in its stead; the number of nodes that start, and for
        how long the first in line waits, are the same whichever it is.
        """
        first = len(line) - 1
        if not self._closed:
            return first
        next_ones = range(first - 1, max(first - MAX_TIE_CANDIDATES, -1), -1)
        rivals = [n for n in next_ones if self._is_interchangeable(line[n], line[first])]
        if not rivals:
            return first
        rivals.insert(0, first)
        self._tie_candidates.update(dict.fromkeys(line[n].spec.node_name for n in rivals))
        return min(
            rivals, key=lambda n: (len(self._budgets_in_use & self._budgets_of(line[n])), -n)
        )

    def _is_interchangeable(self, candidate: NodeReplacement, first: NodeReplacement) -> bool:
        """Tell whether it differs from the first in line by age and name only."""
        if rollout_uid(candidate) != rollout_uid(first):
            return False
        mine, theirs = _order(candidate, self._snapshot), _order(first, self._snapshot)
        if (mine.attempts, mine.topology) != (theirs.attempts, theirs.topology):
            return False
        return candidate.spec.node_name not in self._closed and self._reason(candidate) is None

    def _budgets_of(self, candidate: NodeReplacement) -> frozenset[str]:
        return self._snapshot.budgets.get(candidate.spec.node_name, frozenset())

    def _is_held_back(self, candidate: NodeReplacement) -> bool:
        """Tell whether it may not start, and note why."""
        name, line = candidate.metadata.name, rollout_uid(candidate)
        if candidate.spec.node_name in self._closed:
            self._waiting[name] = WaitReason.NODE_IN_FLIGHT
            return True
        reason = WaitReason.QUEUED if line in self._held_up else self._reason(candidate)
        if reason is None:
            return False
        if reason is WaitReason.CONTROL_PLANE:
            self._waiting[name] = reason
            return True
        self._held_up.add(line)
        if reason is WaitReason.PENDING_PODS and self._has_expired(candidate):
            self._expired.append(name)
        else:
            self._waiting[name] = reason
        return True

    def _reason(self, candidate: NodeReplacement) -> WaitReason | None:
        limit = _limit(candidate)
        if limit is None:
            return WaitReason.INVALID_STRATEGY
        if len(self._busy) >= limit:
            return WaitReason.MAX_CONCURRENT
        if not self._shares_topology(candidate):
            return WaitReason.TOPOLOGY
        if self._weakens_control_plane(candidate):
            return WaitReason.CONTROL_PLANE
        if self._now < self._settled_at:
            self._recheck.append(self._settled_at)
            return WaitReason.SETTLING
        return WaitReason.PENDING_PODS if self._pods_are_pending(candidate) else None

    def _shares_topology(self, candidate: NodeReplacement) -> bool:
        key = candidate.spec.strategy.topology_key
        if not key:
            return True
        own = _topology(candidate.spec.node_name, key, self._snapshot)
        # A node in flight that is gone says nothing about its place any more.
        present = self._closed & self._snapshot.nodes.keys()
        return all(_topology(name, key, self._snapshot) == own for name in present)

    def _weakens_control_plane(self, candidate: NodeReplacement) -> bool:
        if candidate.spec.strategy.control_plane is ControlPlanePolicy.IGNORE:
            return False
        name = candidate.spec.node_name
        node = self._snapshot.nodes.get(name)
        if node is None or not node.is_control_plane:
            return False
        others = self._control_plane.keys() - {name}
        return any(
            other in self._closed or not self._control_plane[other].is_ready for other in others
        )

    def _pods_are_pending(self, candidate: NodeReplacement) -> bool:
        match candidate.spec.strategy.pending_pods:
            case PendingPodsPolicy.IGNORE:
                return False
            case PendingPodsPolicy.ANY:
                return bool(self._snapshot.pending)
            case PendingPodsPolicy.EVICTED:
                return any(map(self._replaces_an_evicted_pod, self._snapshot.pending))

    def _replaces_an_evicted_pod(self, pod: PendingPod) -> bool:
        since = self._evicted.get(pod.controller_uid)
        return since is not None and pod.created_at >= since

    def _has_expired(self, candidate: NodeReplacement) -> bool:
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


def _limit(replacement: NodeReplacement) -> int | None:
    """Return its maxConcurrent; a rollout has resolved percentages for its children."""
    value = replacement.spec.strategy.max_concurrent
    try:
        resolved = resolve_count(value, 1, round_up=True)
    except ConfigError:
        return None
    return resolved if isinstance(value, int) else max(resolved, 1)


def _nodes_with_slots(snapshot: ClusterSnapshot) -> set[str]:
    """Return the nodes that take a slot: two replacements of one node take one."""
    busy = {r.spec.node_name for r in snapshot.replacements if r.status.occupies_slot}
    return busy | snapshot.orphaned


def _settled_at(replacement: NodeReplacement) -> datetime:
    done_at = replacement.status.completion_timestamp
    if replacement.status.current is not Step.DONE or done_at is None or node_gone(replacement):
        return EPOCH
    return done_at + timedelta(seconds=replacement.spec.strategy.settle_seconds)


def _evicted_owners(replacements: Sequence[NodeReplacement]) -> dict[str, datetime]:
    """Return the controllers whose pods unfinished rollouts evicted, and since when.

    Pods made before the eviction began are Pending for a reason that is not ours.
    """
    active = {
        rollout_uid(replacement)
        for replacement in replacements
        if not replacement.status.current.is_finished
    }
    owners: dict[str, datetime] = {}
    for replacement in replacements:
        started_at = replacement.status.start_timestamp
        if started_at is None or rollout_uid(replacement) not in active:
            continue
        # Servers write creation times in whole seconds.
        since = started_at.replace(microsecond=0)
        for owner in replacement.status.evicted_owners:
            owners[owner.uid] = min(since, owners.get(owner.uid, since))
    return owners
