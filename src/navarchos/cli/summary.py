"""Summaries of rollouts and drains, as `-o json` and as text. Pure.

The structs are the documented JSON of `status` and `drain`. Their fields keep name, type
and meaning; fields can be added. A missing time is null. An empty list is present.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec

from navarchos.meta import controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.reasons import ConditionType, Reason, WaitReason
from navarchos.operator.slots import is_of_replacement
from navarchos.runtime.conditions import find_condition
from navarchos.runtime.durations import format_duration

__all__ = [
    "FINAL_PHASES",
    "MAX_LINES",
    "BlockedPodSummary",
    "DrainSummary",
    "FailedNode",
    "GateSummary",
    "InFlightNode",
    "RolloutSummary",
    "Summary",
    "WaitingNode",
    "WaveSummary",
    "drain_lines",
    "remaining_time",
    "rollout_lines",
    "summarize",
    "summarize_drain",
    "summarize_rollout",
    "summary_lines",
    "wave_line",
]

OUT_OF_DATE: Final = "this may be out of date"
_NEEDED: Final = WaitReason.NODE_NEEDED
_NOTHING: Final = "no rollouts, and no drains outside of rollouts"

_ACTION_STEPS: Final = frozenset(
    {
        api.Step.ACTING,
        api.Step.TERMINATING,
        api.Step.AWAITING_REPLACEMENT,
        api.Step.RELEASING,
    }
)
"""The steps in which an action runs, or is being ended."""

FINAL_PHASES: Final = frozenset({api.RolloutPhase.COMPLETED, api.RolloutPhase.HALTED})
"""Phases that a rollout leaves only when a user changes it."""


class InFlightNode(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A node in flight. It occupies a slot, unless it is stalled."""

    node: str
    step: api.Step
    since: datetime | None
    deadline: datetime | None
    stalled_since: datetime | None
    pods_left: int
    message: str
    """What the preparation, an action or a verification waits for."""


class BlockedPodSummary(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A pod that cannot be evicted, or does not terminate."""

    node: str
    namespace: str
    pod: str
    reason: str
    budget: str
    message: str
    since: datetime | None
    next_action: str


class FailedNode(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A failed node, with the reason of its last attempt."""

    node: str
    reason: str
    message: str


class WaitingNode(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The first waiting node, and why it has not started."""

    node: str
    reason: str
    message: str
    since: datetime | None


class GateSummary(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A gate, as it was when its state changed last."""

    name: str
    state: api.GateState
    since: datetime | None
    message: str


class WaveSummary(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The current wave of a rollout. `until` is the end of its soak time."""

    number: int
    of: int
    up_to: int
    state: api.WaveState
    since: datetime | None
    until: datetime | None
    approvals: tuple[api.WaveApproval, ...] = ()


class RolloutSummary(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A rollout. `blocked` lists at most 50 pods of a node; `blocked_count` counts all."""

    name: str
    phase: api.RolloutPhase
    paused: bool
    nodes: int
    completed: int
    failed: tuple[FailedNode, ...]
    cancelled: int
    wave: WaveSummary | None
    in_flight: tuple[InFlightNode, ...]
    waiting: WaitingNode | None
    gates: tuple[GateSummary, ...]
    blocked: tuple[BlockedPodSummary, ...]
    blocked_count: int
    started: datetime | None
    ended: datetime | None
    estimated_completion: datetime | None
    message: str
    next_action: str


class DrainSummary(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A drain. `owner` is kind and name of the object that controls it; empty for a user's."""

    name: str
    node: str
    phase: api.DrainPhase
    paused: bool
    reason: str
    message: str
    total: int
    evicted: int
    remaining: int
    blocked: tuple[BlockedPodSummary, ...]
    blocked_count: int
    started: datetime | None
    ended: datetime | None
    owner: str = ""


class Summary(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Rollouts, and the drains that belong to no rollout."""

    rollouts: tuple[RolloutSummary, ...]
    drains: tuple[DrainSummary, ...]
    out_of_date_because: str = ""
    """Why the summary may be out of date; empty if it is current."""
    systems: Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET
    """What other systems report, by name; absent if none is installed."""


def summarize(
    rollouts: Iterable[api.NodeRollout],
    replacements: Sequence[api.NodeReplacement],
    drains: Sequence[api.NodeDrain],
) -> Summary:
    """Return the summary of all rollouts and drains, sorted by name."""
    return Summary(
        rollouts=tuple(
            summarize_rollout(rollout, replacements, drains)
            for rollout in sorted(rollouts, key=lambda rollout: rollout.metadata.name)
        ),
        drains=tuple(
            summarize_drain(drain)
            for drain in sorted(drains, key=lambda drain: drain.metadata.name)
            if not is_of_replacement(drain)
        ),
    )


def summarize_rollout(
    rollout: api.NodeRollout,
    replacements: Iterable[api.NodeReplacement],
    drains: Iterable[api.NodeDrain],
) -> RolloutSummary:
    """Return the summary of a rollout. Replacements and drains of other rollouts are ignored."""
    children = _owned(rollout.metadata.uid, replacements)
    own = {r.metadata.uid: r for r in children if r.status.current.in_flight}
    active = [drain for drain in drains if _owner_uid(drain) in own]
    status = rollout.status
    blocked = tuple(b for drain in active for b in _blocked(drain))
    waiting = _first_in_line(rollout, children)
    return RolloutSummary(
        name=rollout.metadata.name,
        phase=status.phase or api.RolloutPhase.NEW,
        paused=rollout.spec.paused,
        nodes=len(status.nodes),
        completed=status.replacements_completed_count,
        failed=tuple(_failed(c) for c in children if c.status.current is api.Step.FAILED),
        cancelled=status.replacements_cancelled_count or 0,
        wave=_wave(status.wave),
        in_flight=tuple(
            _in_flight(child, active) for child in children if child.status.current.in_flight
        ),
        waiting=waiting,
        gates=tuple(
            GateSummary(name=gate.name, state=gate.state, since=gate.since, message=gate.message)
            for gate in status.gates
        ),
        blocked=blocked,
        blocked_count=sum(drain.status.blocked for drain in active),
        started=status.start_timestamp,
        ended=status.completion_timestamp,
        estimated_completion=status.estimated_completion,
        message=_message(rollout),
        next_action=_next_action(rollout, waiting, blocked),
    )


def summarize_drain(drain: api.NodeDrain) -> DrainSummary:
    """Return the summary of a drain."""
    status, owner = drain.status, controller_of(drain.metadata)
    return DrainSummary(
        name=drain.metadata.name,
        node=drain.spec.node_name,
        phase=status.phase or api.DrainPhase.PENDING,
        paused=drain.spec.paused,
        reason=status.reason,
        message=status.message or _drain_waits_for(drain),
        total=status.total,
        evicted=status.evicted,
        remaining=status.remaining,
        blocked=tuple(_blocked(drain)),
        blocked_count=status.blocked,
        started=status.start_timestamp,
        ended=status.completion_timestamp,
        owner=f"{owner.kind} {owner.name}" if owner is not None else "",
    )


def _wave(wave: api.WaveStatus | None) -> WaveSummary | None:
    if wave is None:
        return None
    return WaveSummary(
        number=wave.number,
        of=wave.of,
        up_to=wave.up_to,
        state=wave.state,
        since=wave.since,
        until=wave.until,
        approvals=wave.approvals,
    )


def _owned(uid: str, replacements: Iterable[api.NodeReplacement]) -> list[api.NodeReplacement]:
    owned = [r for r in replacements if _owner_uid(r) == uid]
    return sorted(owned, key=lambda r: (-r.spec.replacement.priority, r.spec.node_name))


def _owner_uid(obj: api.NodeReplacement | api.NodeDrain) -> str:
    owner = controller_of(obj.metadata)
    return owner.uid if owner is not None else ""


def _in_flight(replacement: api.NodeReplacement, drains: Iterable[api.NodeDrain]) -> InFlightNode:
    step = replacement.status.step
    mine = [drain for drain in drains if _owner_uid(drain) == replacement.metadata.uid]
    return InFlightNode(
        node=replacement.spec.node_name,
        step=replacement.status.current,
        since=step.started_at if step is not None else None,
        deadline=step.deadline if step is not None else None,
        stalled_since=replacement.status.stalled_since,
        pods_left=sum(drain.status.remaining for drain in mine),
        message="; ".join(filter(None, [_waits_for(replacement), *map(_drain_waits_for, mine)])),
    )


def _drain_waits_for(drain: api.NodeDrain) -> str:
    """Return what a preparation waits for, or which pods are replaced first; empty if nothing."""
    is_preparing = drain.status.phase is api.DrainPhase.PREPARING
    type_ = ConditionType.PREPARED if is_preparing else ConditionType.NODE_DRAINED
    found = find_condition(drain.status.conditions, type_)
    if found is None or not (is_preparing or found.reason == Reason.DRAINING):
        return ""
    return found.message


def _waits_for(replacement: api.NodeReplacement) -> str:
    """Return what the action of a node, or the verification after it, waits for."""
    step = replacement.status.current
    if step is not api.Step.VERIFYING and step not in _ACTION_STEPS:
        return ""
    is_verified = step is api.Step.VERIFYING
    type_ = ConditionType.NODE_VERIFIED if is_verified else ConditionType.ACTION_COMPLETED
    found = find_condition(replacement.status.conditions, type_)
    return found.message if found is not None else ""


def _blocked(drain: api.NodeDrain) -> Iterable[BlockedPodSummary]:
    return (_blocked_pod(drain.spec.node_name, blocker) for blocker in drain.status.blockers)


def _blocked_pod(node: str, blocker: api.Blocker) -> BlockedPodSummary:
    return BlockedPodSummary(
        node=node,
        namespace=blocker.namespace,
        pod=blocker.pod,
        reason=blocker.reason,
        budget=blocker.budget,
        message=blocker.message,
        since=blocker.first_seen,
        next_action=blocker.next_action,
    )


def _failed(replacement: api.NodeReplacement) -> FailedNode:
    failures = replacement.status.failures
    return FailedNode(
        node=replacement.spec.node_name,
        reason=failures[-1].reason if failures else "",
        message=failures[-1].message if failures else "",
    )


def _first_in_line(
    rollout: api.NodeRollout, children: Iterable[api.NodeReplacement]
) -> WaitingNode | None:
    """Return the first node that waits for another reason than its place in the queue."""
    if rollout.status.phase in FINAL_PHASES:
        return None
    waiting = [c for c in children if c.status.current is api.Step.WAITING]
    # A needed node delays no other, so the reason of another node says more about the rollout.
    waiting.sort(key=lambda c: c.status.step is not None and c.status.step.reason == _NEEDED)
    for child in waiting:
        step = child.status.step
        if step is not None and step.reason and step.reason != WaitReason.QUEUED:
            found = find_condition(child.status.conditions, "Waiting")
            return WaitingNode(
                node=child.spec.node_name,
                reason=step.reason,
                message=found.message if found is not None else "",
                since=step.started_at,
            )
    return None


def _message(rollout: api.NodeRollout) -> str:
    for type_, wanted in _EXPLAINING.items():
        found = find_condition(rollout.status.conditions, type_)
        if found is not None and wanted in {"", found.status} and found.message:
            return found.message
    return ""


_EXPLAINING: Final = {
    ConditionType.HALTED: "True",
    ConditionType.STRATEGY_INVALID: "True",
    ConditionType.APPROVAL_REFUSED: "True",
    ConditionType.REPLACEMENTS_CREATED: "False",
    ConditionType.NODES_FOUND: "",
}
"""The conditions whose message a summary shows, with their status; the first one counts."""


def _next_action(
    rollout: api.NodeRollout, waiting: WaitingNode | None, blocked: Sequence[BlockedPodSummary]
) -> str:
    """Return what happens next, or what the user must do."""
    name, paused = rollout.metadata.name, rollout.spec.paused
    if rollout.metadata.deletion_timestamp is not None:
        return "the rollout is being deleted; nodes that are not drained will be uncordoned"
    match rollout.status.phase:
        case api.RolloutPhase.HALTED:
            return f"fix the failures, then run: navarchos resume {name}"
        case api.RolloutPhase.COMPLETED:
            return ""
        case None if not paused:
            return "not picked up by any manager yet; is navarchos manager running?"
        case api.RolloutPhase.NEW | api.RolloutPhase.IN_PROGRESS | None:
            return f"navarchos resume {name}" if paused else _hint(rollout, waiting, blocked)
        case phase:
            assert_never(phase)


def _hint(
    rollout: api.NodeRollout, waiting: WaitingNode | None, blocked: Sequence[BlockedPodSummary]
) -> str:
    if blocked:
        return f"{blocked[0].namespace}/{blocked[0].pod}: {blocked[0].next_action}"
    if rollout.spec.cancel:
        return "the rollout is cancelled; it completes when its nodes in flight have finished"
    wave = rollout.status.wave
    if wave is not None and wave.state is api.WaveState.AWAITING_APPROVAL:
        return f"navarchos approve {rollout.metadata.name}"
    return waiting.message if waiting is not None and not rollout.status.in_flight else ""


MAX_LINES: Final = 10
"""The number of entries of a list that are shown. The others are counted."""

_BAR: Final = 24


def summary_lines(summary: Summary, now: datetime, more: Iterable[str] = ()) -> list[str]:
    """Return the lines for all rollouts and drains, then more lines."""
    blocks = [
        *(rollout_lines(rollout, now) for rollout in summary.rollouts),
        *(drain_lines(drain, now) for drain in summary.drains),
    ]
    lines = [line for block in blocks for line in block] or [
        "no rollouts, and no drains outside of rollouts"
    ]
    lines += more
    return (
        [*lines, f"{OUT_OF_DATE}: {summary.out_of_date_because}"]
        if summary.out_of_date_because
        else lines
    )


def rollout_lines(rollout: RolloutSummary, now: datetime) -> list[str]:
    """Return a headline, then a line for each node in flight, blocked pod and failure."""
    state = f"{rollout.phase}, paused" if rollout.paused else str(rollout.phase)
    words = [rollout.name, state, _bar(rollout.completed, rollout.nodes)]
    words += [f"{rollout.completed}/{rollout.nodes}", remaining_time(rollout, now)]
    words += [f"{rollout.cancelled} cancelled"] if rollout.cancelled else []
    lines = ["  ".join(word for word in words if word)]
    if rollout.wave is not None and rollout.phase is not api.RolloutPhase.COMPLETED:
        lines.append(_line("wave", wave_line(rollout.wave, now)))
    lines += _listed("in flight", (_flight(each, now) for each in rollout.in_flight))
    lines += _blocked_lines(rollout.blocked, rollout.blocked_count, now)
    lines += _listed("failed", (f"{f.node}  {f.reason}: {f.message}" for f in rollout.failed))
    if rollout.waiting is not None:
        first = rollout.waiting
        since = _ago(first.since, now)
        lines.append(_line("waiting", f"{first.node}  {first.reason}{since}: {first.message}"))
    lines += _listed("gates", (_gate_line(gate, now) for gate in rollout.gates))
    if rollout.message:
        lines.append(_line("because", rollout.message))
    if rollout.next_action:
        lines.append(_line("next", rollout.next_action))
    return lines


def _gate_line(gate: GateSummary, now: datetime) -> str:
    text = f"{gate.name}  {gate.state}{_ago(gate.since, now)}"
    return f"{text}: {gate.message}" if gate.message else text


def wave_line(wave: WaveSummary, now: datetime) -> str:
    """Return the current wave of a rollout as text."""
    size = f"{wave.up_to} nodes" if wave.up_to > 1 else "1 node"
    left = max((wave.until - now).total_seconds(), 0.0) if wave.until is not None else None
    more = f", {int(left)} s left" if left is not None else ""
    waits = wave.state is api.WaveState.AWAITING_APPROVAL
    since = _ago(wave.since, now) if waits else ""
    return f"{wave.number} of {wave.of}, up to {size}  {wave.state}{since}{more}"


def drain_lines(drain: DrainSummary, now: datetime) -> list[str]:
    """Return a headline, then a line for each blocked pod."""
    state = f"{drain.phase}, paused" if drain.paused else str(drain.phase)
    counts = f"{drain.evicted} of {drain.total} pods evicted, {drain.remaining} left"
    why = f"{drain.reason}: {drain.message}" if drain.message else drain.reason
    head = "  ".join(word for word in (drain.name, drain.node, state, counts, why) if word)
    return [head, *_blocked_lines(drain.blocked, drain.blocked_count, now)]


def remaining_time(rollout: RolloutSummary, now: datetime) -> str:
    """Return the remaining time of the rollout, as text."""
    if rollout.phase in FINAL_PHASES:
        return ""
    if rollout.estimated_completion is None:
        return "no estimate yet"
    left = max(rollout.estimated_completion - now, timedelta())
    return f"about {int(left.total_seconds())} s left"


def _bar(done: int, total: int) -> str:
    full = _BAR * done // max(total, 1)
    return f"[{'#' * full}{'.' * (_BAR - full)}]"


def _flight(node: InFlightNode, now: datetime) -> str:
    pods = f"  {node.pods_left} pods left" if node.pods_left else ""
    stalled = f"  stalled{_ago(node.stalled_since, now)}" if node.stalled_since is not None else ""
    message = f": {node.message}" if node.message else ""
    return f"{node.node}  {node.step}{_ago(node.since, now)}{pods}{stalled}{message}"


def _blocked_lines(blocked: Iterable[BlockedPodSummary], count: int, now: datetime) -> list[str]:
    return _listed("blocked", (_blocked_line(each, now) for each in blocked), count)


def _blocked_line(blocked: BlockedPodSummary, now: datetime) -> str:
    budget = f" {blocked.budget}" if blocked.budget else ""
    # The name of a budget is enough. The answer of a webhook or of the server is shown.
    message = "" if blocked.budget else f": {blocked.message}"
    where = f"{blocked.namespace}/{blocked.pod} on {blocked.node}"
    since = _ago(blocked.since, now)
    return f"{where}  {blocked.reason}{budget}{since}{message}; {blocked.next_action}"


def _listed(label: str, entries: Iterable[str], count: int = 0) -> list[str]:
    found = list(entries)
    lines = [_line(label, entry) for entry in found[:MAX_LINES]]
    more = max(count, len(found)) - len(lines)
    return [*lines, _line(label, f"and {more} more")] if more > 0 else lines


def _line(label: str, text: str) -> str:
    return f"  {label:<10} {text}"


def _ago(since: datetime | None, now: datetime) -> str:
    if since is None:
        return ""
    seconds = max((now - since).total_seconds(), 0.0)
    return f" for {format_duration(float(int(seconds)))}"
