"""Rollouts and drains in words, for a terminal or a log. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from navarchos.cli.progress.freshness import OUT_OF_DATE
from navarchos.cli.progress.summary import (
    ENDED,
    Blocked,
    DrainSummary,
    InFlight,
    RolloutSummary,
    Summary,
)
from navarchos.runtime.durations import format_duration

__all__ = ["MOST_LINES", "drain_lines", "remaining_time", "rollout_lines", "summary_lines"]

MOST_LINES: Final = 10
"""Of each list so many entries are shown, and the others counted."""

_BAR: Final = 24


def summary_lines(summary: Summary, now: datetime) -> list[str]:
    """Return the lines for everything; one that says so when there is nothing."""
    blocks = [
        *(rollout_lines(rollout, now) for rollout in summary.rollouts),
        *(drain_lines(drain, now) for drain in summary.drains),
    ]
    lines = [line for block in blocks for line in block] or ["no rollout and no drain by hand"]
    return [*lines, f"{OUT_OF_DATE}: {summary.stale}"] if summary.stale else lines


def rollout_lines(rollout: RolloutSummary, now: datetime) -> list[str]:
    """Return a headline, then a line for each thing to know."""
    state = f"{rollout.phase}, paused" if rollout.paused else str(rollout.phase)
    words = [rollout.name, state, _bar(rollout.completed, rollout.nodes)]
    words += [f"{rollout.completed}/{rollout.nodes}", remaining_time(rollout, now)]
    lines = ["  ".join(word for word in words if word)]
    lines += _listed("in flight", (_flight(each, now) for each in rollout.in_flight))
    lines += _blocked_lines(rollout.blocked, rollout.blocked_count, now)
    lines += _listed("failed", (f"{f.node}  {f.reason}: {f.message}" for f in rollout.failed))
    if rollout.waiting is not None:
        first = rollout.waiting
        since = _ago(first.since, now)
        lines.append(_line("waiting", f"{first.node}  {first.reason}{since}: {first.message}"))
    if rollout.message:
        lines.append(_line("because", rollout.message))
    if rollout.next_action:
        lines.append(_line("next", rollout.next_action))
    return lines


def drain_lines(drain: DrainSummary, now: datetime) -> list[str]:
    """Return a headline, then what blocks the drain."""
    state = f"{drain.phase}, paused" if drain.paused else str(drain.phase)
    counts = f"{drain.evicted} of {drain.total} pods evicted, {drain.remaining} left"
    why = f"{drain.reason}: {drain.message}" if drain.message else drain.reason
    head = "  ".join(word for word in (drain.name, drain.node, state, counts, why) if word)
    return [head, *_blocked_lines(drain.blocked, drain.blocked_count, now)]


def remaining_time(rollout: RolloutSummary, now: datetime) -> str:
    """Say in words how long the rollout still takes."""
    if rollout.phase in ENDED:
        return ""
    if rollout.estimated_completion is None:
        return "no estimate yet"
    left = max(rollout.estimated_completion - now, timedelta())
    return f"about {int(left.total_seconds())} s left"


def _bar(done: int, total: int) -> str:
    full = _BAR * done // max(total, 1)
    return f"[{'#' * full}{'.' * (_BAR - full)}]"


def _flight(node: InFlight, now: datetime) -> str:
    pods = f"  {node.pods_left} pods left" if node.pods_left else ""
    stuck = f"  stuck{_ago(node.stuck_since, now)}" if node.stuck_since is not None else ""
    return f"{node.node}  {node.step}{_ago(node.since, now)}{pods}{stuck}"


def _blocked_lines(blocked: Iterable[Blocked], count: int, now: datetime) -> list[str]:
    return _listed("blocked", (_blocked_line(each, now) for each in blocked), count)


def _blocked_line(blocked: Blocked, now: datetime) -> str:
    budget = f" {blocked.budget}" if blocked.budget else ""
    # A budget's name says it all; what a webhook or the server said has to be shown.
    said = "" if blocked.budget else f": {blocked.message}"
    where = f"{blocked.namespace}/{blocked.pod} on {blocked.node}"
    since = _ago(blocked.since, now)
    return f"{where}  {blocked.reason}{budget}{since}{said}; {blocked.next_action}"


def _listed(label: str, entries: Iterable[str], count: int = 0) -> list[str]:
    found = list(entries)
    lines = [_line(label, entry) for entry in found[:MOST_LINES]]
    more = max(count, len(found)) - len(lines)
    return [*lines, _line(label, f"and {more} more")] if more > 0 else lines


def _line(label: str, text: str) -> str:
    return f"  {label:<10} {text}"


def _ago(since: datetime | None, now: datetime) -> str:
    if since is None:
        return ""
    seconds = max((now - since).total_seconds(), 0.0)
    return f" for {format_duration(float(int(seconds)))}"
