"""Which nodes are stalled and give their slot to others (OP-25). Pure.

A node that cannot be emptied holds its slot until its time is up, and on
`onTimeout: Hold` for ever. So it goes on without one, as far as its rollout allows nodes
to fail: `strategy.maxFailures` is how many nodes their owner does without.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from navarchos.errors import ConfigError
from navarchos.meta import EPOCH
from navarchos.operator.api.v1alpha1 import (
    DrainCondition,
    DrainPhase,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
)
from navarchos.operator.drains.status import DrainReason
from navarchos.operator.history import count_failures, drain_spans, max_failures, mean_duration
from navarchos.operator.replacements.snapshot import ClusterSnapshot, rollout_uid
from navarchos.runtime.conditions import find_condition

__all__ = ["MIN_STALL_TIME", "StalledNodes", "find_stalled", "is_on_hold", "is_refused"]

MIN_STALL_TIME: Final = timedelta(seconds=60)
"""A drain is not called stalled sooner, however quick the others were."""

_MEAN_FACTOR: Final = 2
"""A drain whose pods are refused is stalled when it took so many times what others took."""


@dataclass(frozen=True, slots=True)
class StalledNodes:
    """What was found.

    Attributes:
        names: Replacements that give their slot away now, sorted.
        recheck: The instants at which another one may be stalled.
    """

    names: tuple[str, ...] = ()
    recheck: tuple[datetime, ...] = ()


def is_on_hold(drain: NodeDrain) -> bool:
    """Tell whether the time of a drain is up, and it keeps trying."""
    drained = find_condition(drain.status.conditions, DrainCondition.NODE_DRAINED)
    return drained is not None and drained.reason == DrainReason.HOLDING


def is_refused(drain: NodeDrain) -> bool:
    """Tell whether no pod is left on the node but those that do not go."""
    status = drain.status
    return status.phase is DrainPhase.DRAINING and 0 < status.remaining == status.blocked


def find_stalled(
    snapshot: ClusterSnapshot, now: datetime, active: Iterable[NodeReplacement]
) -> StalledNodes:
    """Return which nodes give their slot away.

    One does so when its drain is on hold, or when only pods are left that are refused, and
    it has taken twice as long as the drained nodes of its rollout did on average. Of a
    rollout, no more do so than `maxFailures` leaves room for beside those that failed;
    without a rollout none does.

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
            candidates.setdefault(rollout_uid(replacement), []).append(replacement)
    names: list[str] = []
    recheck: list[datetime] = []
    for uid, found in candidates.items():
        rollout = snapshot.rollouts.get(uid)
        children = [r for r in snapshot.replacements if rollout_uid(r) == uid]
        room = _room(rollout, children) if rollout is not None else 0
        if room <= 0:
            continue
        report_delay = _stall_threshold(children)
        since = sorted((_stalled_at(r, snapshot, report_delay), r.metadata.name) for r in found)
        names += [name for at, name in since[:room] if at <= now]
        recheck += [at for at, _ in since[:room] if at > now]
    return StalledNodes(tuple(sorted(names)), tuple(recheck))


def _room(rollout: NodeRollout, children: Sequence[NodeReplacement]) -> int:
    """Return how many more nodes the rollout may do without."""
    try:
        allowed = max_failures(rollout)
    except ConfigError:
        return 0
    failed = count_failures(children, resumed=rollout.status.resumed).failed
    return allowed - failed - sum(child.status.is_stalled for child in children)


def _stall_threshold(children: Sequence[NodeReplacement]) -> timedelta:
    usual = mean_duration(drain_spans(children))
    return MIN_STALL_TIME if usual is None else max(MIN_STALL_TIME, _MEAN_FACTOR * usual)


def _stalled_at(
    replacement: NodeReplacement, snapshot: ClusterSnapshot, report_delay: timedelta
) -> datetime:
    drain = snapshot.drains[replacement.metadata.name]
    begun = drain.status.start_timestamp
    if begun is None or is_on_hold(drain):
        return EPOCH
    return begun + report_delay
