"""Which nodes are stuck and give their slot to others (OP-25). Pure.

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
from navarchos.operator.api.v1alpha1 import DrainPhase, NodeDrain, NodeReplacement, NodeRollout
from navarchos.operator.drains.status import NODE_DRAINED, DrainReason
from navarchos.operator.replacements.durations import mean, spans
from navarchos.operator.replacements.failures import max_failures, tally
from navarchos.operator.replacements.world import World, owning_rollout
from navarchos.runtime.conditions import find_condition

__all__ = ["SHORTEST", "Stuck", "find_stuck", "is_on_hold", "is_refused"]

SHORTEST: Final = timedelta(seconds=60)
"""A drain is not called stuck sooner, however quick the others were."""

_TIMES_THE_USUAL: Final = 2
"""A drain whose pods are refused is stuck when it took so many times what others took."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """What was found.

    Attributes:
        names: Replacements that give their slot away now, sorted.
        recheck: The instants at which another one may be stuck.
    """

    names: tuple[str, ...] = ()
    recheck: tuple[datetime, ...] = ()


def is_on_hold(drain: NodeDrain) -> bool:
    """Tell whether the time of a drain is up, and it keeps trying."""
    drained = find_condition(drain.status.conditions, NODE_DRAINED)
    return drained is not None and drained.reason == DrainReason.HOLDING


def is_refused(drain: NodeDrain) -> bool:
    """Tell whether no pod is left on the node but those that do not go."""
    status = drain.status
    return status.phase is DrainPhase.DRAINING and 0 < status.remaining == status.blocked


def find_stuck(world: World, now: datetime, going: Iterable[NodeReplacement]) -> Stuck:
    """Return which nodes give their slot away.

    One does so when its drain is on hold, or when only pods are left that are refused, and
    it has taken twice as long as the drained nodes of its rollout did on average. Of a
    rollout, no more do so than `maxFailures` leaves room for beside those that failed;
    without a rollout none does.

    Args:
        world: What is known.
        now: The present time.
        going: The replacements that nobody has paused, nor their rollouts.
    """
    candidates: dict[str, list[NodeReplacement]] = {}
    for replacement in going:
        drain = world.drains.get(replacement.metadata.name)
        if drain is None or not replacement.status.takes_slot:
            continue
        if is_on_hold(drain) or is_refused(drain):
            candidates.setdefault(owning_rollout(replacement), []).append(replacement)
    names: list[str] = []
    recheck: list[datetime] = []
    for uid, found in candidates.items():
        rollout = world.rollouts.get(uid)
        children = [r for r in world.replacements if owning_rollout(r) == uid]
        room = _room(rollout, children) if rollout is not None else 0
        if room <= 0:
            continue
        patience = _patience(children)
        since = sorted((_stuck_at(r, world, patience), r.metadata.name) for r in found)
        names += [name for at, name in since[:room] if at <= now]
        recheck += [at for at, _ in since[:room] if at > now]
    return Stuck(tuple(sorted(names)), tuple(recheck))


def _room(rollout: NodeRollout, children: Sequence[NodeReplacement]) -> int:
    """Return how many more nodes the rollout may do without."""
    try:
        allowed = max_failures(rollout)
    except ConfigError:
        return 0
    failed = tally(children, resumed=rollout.status.resumed).failed
    return allowed - failed - sum(child.status.is_stuck for child in children)


def _patience(children: Sequence[NodeReplacement]) -> timedelta:
    usual = mean(spans(children))
    return SHORTEST if usual is None else max(SHORTEST, _TIMES_THE_USUAL * usual)


def _stuck_at(replacement: NodeReplacement, world: World, patience: timedelta) -> datetime:
    drain = world.drains[replacement.metadata.name]
    begun = drain.status.start_timestamp
    if begun is None or is_on_hold(drain):
        return EPOCH
    return begun + patience
