"""The status of a drain as a function of its facts. Pure; nothing is written here."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from navarchos.drain import DrainPlan, PlannedPod, PodReason
from navarchos.operator.api.v1alpha1 import (
    Blocker,
    DrainPhase,
    NodeDrainStatus,
    OwnerKey,
    PodNote,
)
from navarchos.operator.drains.blockers import MOST_BLOCKERS, refusals, since
from navarchos.runtime.conditions import Condition, find_condition, is_true, set_condition
from navarchos.structs import differs_only_in

__all__ = [
    "NODE_CORDONED",
    "NODE_DRAINED",
    "PAUSED",
    "DrainReason",
    "blocked",
    "completed",
    "failed",
    "has_begun",
    "is_over",
    "is_progress",
    "paused",
    "recorded",
    "refused",
    "reopened",
    "resumed",
    "reveals",
    "timed_out",
    "with_condition",
]

NODE_CORDONED: Final = "NodeCordoned"
NODE_DRAINED: Final = "NodeDrained"
PAUSED: Final = "Paused"


class DrainReason(StrEnum):
    """Why a drain is in its phase, or a condition in its status. A closed set."""

    PAUSED = "Paused"
    RESUMED = "Resumed"
    DRAINING = "Draining"
    HOLDING = "TimeoutHold"
    NODE_DRAINED = "NodeDrained"
    NODE_GONE = "NodeGone"
    PODS_REFUSED = "PodsRefused"
    TIMEOUT = "Timeout"
    INVALID_SPEC = "InvalidSpec"
    CORDONED = "NodeCordoned"
    CORDONED_BEFORE = "CordonedBefore"
    CORDONED_AGAIN = "CordonedAgain"
    CORDON_FAILED = "ErrorCordoningNode"
    PODS_CAME_LATE = "PodsCameLate"
    UNCORDONED_BY_OTHERS = "UncordonedByOthers"


def is_over(status: NodeDrainStatus) -> bool:
    """Tell whether the drain has come to its end, good or bad."""
    return status.phase in {DrainPhase.COMPLETED, DrainPhase.FAILED}


def has_begun(status: NodeDrainStatus) -> bool:
    """Tell whether the pods have been recorded, so that evictions may have been sent."""
    return status.start_timestamp is not None


def recorded(status: NodeDrainStatus, plan: DrainPlan, *, now: datetime) -> NodeDrainStatus:
    """Return the status with the pods of the node written down.

    To be written before the first eviction: what was on the node cannot be found
    out afterwards. What has been evicted is derived from it, not counted, so that
    it is right after a crash at any point.
    """
    first = not has_begun(status)
    going = [*plan.evict, *plan.wait, *plan.refuse]
    leaving = {planned.name for planned in going}
    ignored = _notes(plan) if first else status.ignored_pods
    ignored = tuple(note for note in ignored if note.name not in leaving)
    names = sorted(leaving | {note.name for note in ignored})
    known = frozenset(status.node_pods)
    node_pods = (*status.node_pods, *(name for name in names if name not in known))
    evicted = _evicted(node_pods, ignored, plan)
    return replace(
        status,
        phase=DrainPhase.DRAINING,
        start_timestamp=status.start_timestamp or now,
        node_pods=node_pods,
        ignored_pods=ignored,
        evicted_pods=evicted,
        evicted_owners=_owners(status.evicted_owners, (*plan.evict, *plan.wait)),
        total=len(node_pods) - len(ignored),
        evicted=len(evicted),
        ignored=len(ignored),
        remaining=len(going),
    )


def reveals(stored: NodeDrainStatus, status: NodeDrainStatus) -> bool:
    """Tell whether `status` records something that must be stored before evictions."""
    return (
        stored.start_timestamp != status.start_timestamp
        or stored.node_pods != status.node_pods
        or stored.evicted_owners != status.evicted_owners
    )


def is_progress(stored: NodeDrainStatus, status: NodeDrainStatus) -> bool:
    """Tell whether `status` differs, and only by how many of the evicted pods are still there."""
    return differs_only_in(stored, status, "remaining")


def _notes(plan: DrainPlan) -> tuple[PodNote, ...]:
    return tuple(
        PodNote(planned.name, str(planned.finding.reason))
        for planned in sorted(plan.ignore, key=lambda planned: planned.name)
        if planned.finding.reason is not PodReason.TERMINATING_TOO_LONG
    )


def _evicted(
    node_pods: Sequence[str], ignored: Iterable[PodNote], plan: DrainPlan
) -> tuple[str, ...]:
    staying = {note.name for note in ignored}
    staying.update(planned.name for planned in (*plan.evict, *plan.refuse))
    return tuple(name for name in node_pods if name not in staying)


def _owners(known: Sequence[OwnerKey], planned: Iterable[PlannedPod]) -> tuple[OwnerKey, ...]:
    owners = dict.fromkeys(known)
    for entry in planned:
        owner = entry.pod.controller
        if owner is not None:
            key = OwnerKey(entry.pod.metadata.namespace, owner.kind, owner.name, owner.uid)
            owners.setdefault(key)
    return tuple(owners)


def blocked(
    status: NodeDrainStatus, blockers: Sequence[Blocker], *, now: datetime
) -> NodeDrainStatus:
    """Return the status with these blockers, sorted as they come."""
    listed = since(status.blockers, blockers[:MOST_BLOCKERS], now=now)
    return replace(status, blockers=listed, blocked=len(blockers))


def refused(status: NodeDrainStatus, plan: DrainPlan, *, now: datetime) -> NodeDrainStatus:
    """Return the status of a drain that its options forbid. No eviction was sent."""
    blockers = sorted(refusals(plan.refuse), key=lambda b: (b.namespace, b.pod))
    message = (
        f"{len(blockers)} pods may not be removed with these options; nothing was evicted. "
        f"First: {blockers[0].namespace}/{blockers[0].pod}: {blockers[0].message}"
    )
    listed = blocked(status, blockers, now=now)
    notes = [PodNote(f"{b.namespace}/{b.pod}", f"{b.reason}: {b.message}") for b in blockers]
    noted = replace(
        listed,
        failed_pods=tuple(notes),
        ignored_pods=_notes(plan),
        ignored=len(_notes(plan)),
        total=len(plan.to_go),
        remaining=len(plan.to_go),
    )
    return failed(noted, DrainReason.PODS_REFUSED, message, now=now)


def timed_out(
    status: NodeDrainStatus, plan: DrainPlan, timeout: float, *, now: datetime
) -> NodeDrainStatus:
    """Return the status of a drain whose time is up. Its blockers are kept."""
    why = {f"{b.namespace}/{b.pod}": f"{b.reason}: {b.message}" for b in status.blockers}
    notes = [
        PodNote(planned.name, why.get(planned.name, str(planned.finding.reason)))
        for planned in sorted(plan.to_go, key=lambda planned: planned.name)
    ]
    message = f"{len(notes)} pods are left {timeout:g} s after the first eviction"
    listed = replace(status, failed_pods=tuple(notes))
    return failed(listed, DrainReason.TIMEOUT, message, now=now)


def failed(
    status: NodeDrainStatus, reason: DrainReason, message: str, *, now: datetime
) -> NodeDrainStatus:
    """Return the status of a drain that is given up."""
    ended = replace(status, phase=DrainPhase.FAILED, reason=str(reason), message=message)
    return with_condition(ended, NODE_DRAINED, "False", reason, message, now=now)


def completed(
    status: NodeDrainStatus, reason: DrainReason, message: str, *, now: datetime
) -> NodeDrainStatus:
    """Return the status of a drain that has nothing left to do."""
    ended = replace(
        status,
        phase=DrainPhase.COMPLETED,
        reason=str(reason),
        message=message,
        completion_timestamp=status.completion_timestamp or now,
        remaining=0,
        blocked=0,
        blockers=(),
    )
    return with_condition(ended, NODE_DRAINED, "True", reason, message, now=now)


def reopened(status: NodeDrainStatus, late: int, *, now: datetime) -> NodeDrainStatus:
    """Return the status of a completed drain whose node is not empty after all.

    Its time counts anew: what was allowed for the first pods is not the late ones' fault.
    """
    again = replace(
        status,
        phase=DrainPhase.DRAINING,
        reason="",
        message="",
        start_timestamp=now,
        completion_timestamp=None,
    )
    message = f"{late} pods came after the node had been empty"
    return with_condition(
        again, NODE_DRAINED, "False", DrainReason.PODS_CAME_LATE, message, now=now
    )


def paused(status: NodeDrainStatus, *, now: datetime) -> NodeDrainStatus:
    """Return the status of a drain that a person has paused; its phase stays."""
    return with_condition(
        status, PAUSED, "True", DrainReason.PAUSED, "no further eviction is sent", now=now
    )


def resumed(status: NodeDrainStatus, *, now: datetime) -> NodeDrainStatus:
    """Return the status of a drain that goes on, or was never paused.

    The time of the pause does not count towards timeouts: the instant from which
    they count moves by as much.
    """
    if not is_true(status.conditions, PAUSED):
        return status
    condition = find_condition(status.conditions, PAUSED)
    since_ = condition.last_transition_time if condition is not None else None
    start = status.start_timestamp
    if start is not None and since_ is not None:
        status = replace(status, start_timestamp=start + (now - max(start, since_)))
    return with_condition(status, PAUSED, "False", DrainReason.RESUMED, "", now=now)


def with_condition(
    status: NodeDrainStatus,
    type_: str,
    state: str,
    reason: DrainReason,
    message: str,
    *,
    now: datetime,
) -> NodeDrainStatus:
    """Return the status with one condition set."""
    condition = Condition(
        type=type_,
        status=state,
        reason=str(reason),
        message=message,
        observed_generation=status.observed_generation,
    )
    return replace(status, conditions=set_condition(status.conditions, condition, now=now))
