"""Waits of whole rollouts: windows and waves, which delay no other rollout. Pure.

Admission asks here before it compares nodes of different rollouts. A node that waits for its
window must not block the nodes of another rollout, however high its priority is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from navarchos.errors import ConfigError
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.history import drain_spans
from navarchos.operator.reasons import WaitReason
from navarchos.operator.waves import has_begun, wave_counts, wave_progress
from navarchos.operator.windows import Blackout, Schedule, Window

__all__ = [
    "NO_WAITS",
    "RolloutWait",
    "RolloutWaits",
    "find_waits",
    "invalid_windows",
    "may_wait",
    "rollout_wait",
    "schedule_of",
    "window_closes_at",
]

_FIT_AFTER: Final = 5
"""Nodes that must have finished before their durations say whether a node fits."""


@dataclass(frozen=True, slots=True)
class RolloutWait:
    """Why none of the nodes that have not started may start now."""

    reason: WaitReason
    message: str
    """In words. It changes only when the wait changes, because each change is one write."""
    until: datetime | None = None
    """When time alone may end the wait; `None` if only a change of an object can."""


@dataclass(frozen=True, slots=True)
class RolloutWaits:
    """The waits of rollouts and of replacements without a rollout."""

    waits: Mapping[str, RolloutWait] = field(default_factory=dict)
    """By uid of the rollout, or by name of a replacement that a user created."""
    new_nodes: Mapping[str, int] = field(default_factory=dict)
    """By uid of a rollout with a wave in progress: how many nodes may still start for the first
    time. 0 if all nodes of the wave have started."""
    beyond: Mapping[str, RolloutWait] = field(default_factory=dict)
    """By uid of a rollout in `new_nodes`: why the nodes beyond the wave wait."""
    recheck: tuple[datetime, ...] = ()
    """When an open window closes, so that the reason of waiting nodes changes."""

    def of(self, replacement: api.NodeReplacement, uid: str) -> RolloutWait | None:
        """Return why a replacement may not start; `None` if it may, or if it does not wait.

        Args:
            replacement: The replacement.
            uid: The uid of its rollout; empty if a user created it.
        """
        if replacement.status.current is not api.Step.WAITING:
            return None
        found = self.waits.get(uid or replacement.metadata.name)
        if found is not None:
            return found
        if self.new_nodes.get(uid) == 0 and not has_begun(replacement):
            return self.beyond[uid]
        return None


NO_WAITS: Final = RolloutWaits()
"""No rollout waits as a whole."""


def may_wait(strategy: api.Strategy) -> bool:
    """Return whether a strategy can make a whole rollout wait."""
    has_waves = isinstance(strategy, api.RolloutStrategy) and bool(strategy.waves)
    return _restricts_time(strategy) or has_waves


def find_waits(
    rollouts: Mapping[str, api.NodeRollout],
    replacements: Mapping[str, Iterable[api.NodeReplacement]],
    now: datetime,
) -> RolloutWaits:
    """Find the waits of all rollouts, and of the replacements that users created.

    Args:
        rollouts: By uid.
        replacements: The children of each rollout by its uid; under "" those without a rollout.
        now: The present time.
    """
    waits: dict[str, RolloutWait] = {}
    new_nodes: dict[str, int] = {}
    beyond: dict[str, RolloutWait] = {}
    recheck: list[datetime] = []
    for uid, rollout in rollouts.items():
        strategy = rollout.spec.strategy
        if not may_wait(strategy):
            continue
        children = tuple(replacements.get(uid, ()))
        if all(child.status.current is not api.Step.WAITING for child in children):
            continue
        wait = rollout_wait(rollout, children, now)
        if wait is not None:
            waits[uid] = wait
            continue
        recheck += _closings(strategy, now)
        progress = wave_progress(rollout, children, now)
        if progress is not None and progress.new_nodes is not None:
            new_nodes[uid] = progress.new_nodes
            beyond[uid] = RolloutWait(WaitReason.WAVE, progress.message, progress.status.until)
    for replacement in replacements.get("", ()):
        strategy_of_node = replacement.spec.strategy
        if replacement.status.current is api.Step.WAITING and _restricts_time(strategy_of_node):
            wait = _window_wait(strategy_of_node, (), now)
            if wait is not None:
                waits[replacement.metadata.name] = wait
            else:
                recheck += _closings(strategy_of_node, now)
    return RolloutWaits(waits, new_nodes, beyond, tuple(recheck))


def rollout_wait(
    rollout: api.NodeRollout, children: Iterable[api.NodeReplacement], now: datetime
) -> RolloutWait | None:
    """Return why none of the waiting nodes of a rollout may start now; `None` if some may."""
    try:
        wave_counts(rollout)
    except ConfigError as error:
        return RolloutWait(WaitReason.INVALID_STRATEGY, str(error))
    return _window_wait(rollout.spec.strategy, children, now)


def schedule_of(strategy: api.Strategy) -> Schedule:
    """Return the windows and blackouts of a strategy.

    Raises:
        ConfigError: A window is invalid. The error names it, and says what is wrong.
    """
    return _schedule(strategy.windows or (), strategy.blackouts or ())


def invalid_windows(strategy: api.Strategy, now: datetime) -> str:
    """Return what is wrong with the windows and blackouts, in words; empty if nothing is."""
    try:
        schedule = schedule_of(strategy)
    except ConfigError as error:
        return str(error)
    return "" if schedule.next_open(now) is not None else _NEVER


_NEVER: Final = (
    "strategy.blackouts leave no time in which a node may start; correct them or strategy.windows"
)


def window_closes_at(strategy: api.Strategy, now: datetime) -> datetime | None:
    """Return when a node in flight must be given back: `now` if it must be now; `None` if never.

    An invalid window gives nothing back: the node started, so the spec was edited since.
    """
    if strategy.on_window_end is not api.WindowEndPolicy.GIVE_BACK:
        return None
    try:
        return schedule_of(strategy).next_close(now)
    except ConfigError:
        return None


@lru_cache(maxsize=256)
def _schedule(
    windows: tuple[api.TimeWindow, ...], blackouts: tuple[api.BlackoutPeriod, ...]
) -> Schedule:
    parsed = []
    for index, window in enumerate(windows):
        try:
            parsed.append(Window.parse(window.days, window.start, window.end, window.time_zone))
        except ConfigError as error:
            name = f"strategy.windows[{index}].{error.name}"
            raise ConfigError(name, error.value, error.rule) from error
    return Schedule(
        tuple(parsed), tuple(Blackout(period.start, period.end) for period in blackouts)
    )


def _restricts_time(strategy: api.Strategy) -> bool:
    return bool(strategy.windows or strategy.blackouts)


def _closings(strategy: api.Strategy, now: datetime) -> list[datetime]:
    """Return when the windows of a strategy close, as a list of at most one."""
    closing = schedule_of(strategy).next_close(now) if _restricts_time(strategy) else None
    return [] if closing is None else [closing]


def _window_wait(
    strategy: api.Strategy, children: Iterable[api.NodeReplacement], now: datetime
) -> RolloutWait | None:
    try:
        schedule = schedule_of(strategy)
    except ConfigError as error:
        return RolloutWait(WaitReason.INVALID_STRATEGY, str(error))
    if schedule.is_always_open:
        return None
    if schedule.is_open(now):  # mutant: windows-ignored
        return _fit_wait(strategy, schedule, children, now) if strategy.fit_window else None
    opening = schedule.next_open(now)
    if opening is None:
        return RolloutWait(WaitReason.INVALID_STRATEGY, _NEVER)
    return RolloutWait(
        WaitReason.OUTSIDE_WINDOW, f"{_opens(strategy)} {schedule.show(opening)}", opening
    )


def _opens(strategy: api.Strategy) -> str:
    return "the next window opens at" if strategy.windows else "the blackout ends at"


def _fit_wait(
    strategy: api.Strategy,
    schedule: Schedule,
    children: Iterable[api.NodeReplacement],
    now: datetime,
) -> RolloutWait | None:
    """Return why a node would not finish in this window (NP-42); `None` if it would."""
    lengths = sorted(end - start for start, end in drain_spans(children))
    closing = schedule.next_close(now)
    if len(lengths) < _FIT_AFTER or closing is None:
        return None
    # The nearest rank: the shortest duration that nine of ten nodes did not exceed.
    usual = lengths[-(-len(lengths) * 9 // 10) - 1]
    if now + usual <= closing:  # mutant: fit-ignored
        return None
    opening = schedule.next_open(closing)
    again = f"; {_opens(strategy)} {schedule.show(opening)}" if opening is not None else ""
    message = (
        f"the window closes at {schedule.show(closing)}, and a node takes {_length(usual)}{again}"
    )
    return RolloutWait(WaitReason.DOES_NOT_FIT, message, opening)


def _length(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    return f"{seconds // 60} min" if seconds >= 600 else f"{seconds} s"
