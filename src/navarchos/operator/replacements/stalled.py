"""Decides which nodes are stalled and release their slot (OP-25). Pure.

A node that cannot be drained occupies its slot until the drain times out, and with
`onTimeout: Hold` for ever. So it continues without a slot, within `strategy.maxFailures`:
that is how many nodes the user has agreed to lose.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from navarchos.errors import ConfigError
from navarchos.meta import EPOCH
from navarchos.operator.api.v1alpha1 import DrainPhase, NodeDrain, NodeReplacement, NodeRollout
from navarchos.operator.history import count_failures, drain_spans, max_failures, mean_duration
from navarchos.operator.reasons import ConditionType, Reason
from navarchos.operator.replacements.snapshot import ClusterSnapshot
from navarchos.runtime.conditions import find_condition

__all__ = ["MIN_STALL_TIME", "StalledNodes", "find_stalled", "is_on_hold", "is_refused"]

MIN_STALL_TIME: Final = timedelta(seconds=60)
"""A drain is not stalled sooner, however quick the other drains were."""

_MEAN_FACTOR: Final = 2
"""A drain with refused pods is stalled after this multiple of the mean duration."""


@dataclass(frozen=True, slots=True)
class StalledNodes:
    """The result of `find_stalled`.

    Attributes:
        names: Replacements that release their slot now, sorted.
        recheck: The times at which another replacement may become stalled.
    """

    names: tuple[str, ...] = ()
    recheck: tuple[datetime, ...] = ()


def is_on_hold(drain: NodeDrain) -> bool:
    """Return whether a drain has timed out and keeps trying."""
    drained = find_condition(drain.status.conditions, ConditionType.NODE_DRAINED)
    return drained is not None and drained.reason == Reason.HOLDING


def is_refused(drain: NodeDrain) -> bool:
    """Return whether all remaining pods of the node are blocked."""
    status = drain.status
    return status.phase is DrainPhase.DRAINING and 0 < status.remaining == status.blocked


def find_stalled(
    snapshot: ClusterSnapshot, now: datetime, active: Iterable[NodeReplacement]
) -> StalledNodes:
    """Return which replacements release their slot.

    A replacement does so when its drain is on hold; or when all remaining pods are blocked and
    the drain has taken twice the mean time of the drained nodes of its rollout. Stalled and
    failed nodes of a rollout together are at most `maxFailures`. Without a rollout no node is
    stalled.

    Args:
        snapshot: The objects that decide.
        now: The present time.
        active: The replacements in flight that are not paused, and whose rollouts are not.
    """
    candidates: dict[str, list[NodeReplacement]] = {}
    for replacement in active:
        drain = snapshot.drains.get(replacement.metadata.name)
        if drain is None or not replacement.status.occupies_slot:
            continue
        if is_on_hold(drain) or is_refused(drain):
            candidates.setdefault(snapshot.owner_uid(replacement), []).append(replacement)
    names: list[str] = []
    recheck: list[datetime] = []
    for uid, found in candidates.items():
        rollout = snapshot.rollouts.get(uid)
        if rollout is None:
            continue
        children = [r for r in snapshot.replacements if snapshot.owner_uid(r) == uid]
        allowed = _allowed(rollout, children)  # mutant: any-number-of-nodes-stalled
        if allowed <= 0:
            continue
        threshold = _stall_time(children)
        stalled_at = sorted((_stalled_at(r, snapshot, threshold), r.metadata.name) for r in found)
        names += [name for at, name in stalled_at[:allowed] if at <= now]
        recheck += [at for at, _ in stalled_at[:allowed] if at > now]
    return StalledNodes(tuple(sorted(names)), tuple(recheck))


def _allowed(rollout: NodeRollout, children: Sequence[NodeReplacement]) -> int:
    """Return how many more nodes of the rollout may become stalled."""
    try:
        allowed = max_failures(rollout)
    except ConfigError:
        return 0
    failed = count_failures(children, resumed=rollout.status.resumed).failed
    return allowed - failed - sum(child.status.is_stalled for child in children)


def _stall_time(children: Sequence[NodeReplacement]) -> timedelta:
    mean = mean_duration(drain_spans(children))
    return MIN_STALL_TIME if mean is None else max(MIN_STALL_TIME, _MEAN_FACTOR * mean)


def _stalled_at(
    replacement: NodeReplacement, snapshot: ClusterSnapshot, threshold: timedelta
) -> datetime:
    drain = snapshot.drains[replacement.metadata.name]
    started_at = drain.status.start_timestamp
    if started_at is None or is_on_hold(drain):
        return EPOCH
    return started_at + threshold
