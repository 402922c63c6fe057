"""Which pods are asked to go in this pass, and when the next pass is due."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from navarchos.drain import DrainPlan, PlannedPod
from navarchos.operator.drains.attempts import Attempt
from navarchos.operator.drains.blockers import STUCK_AFTER
from navarchos.operator.drains.escalation import Ladder, Stage

__all__ = ["Due", "How", "Request", "due_requests", "whose_turn"]


class How(Enum):
    """How a pod is asked to go."""

    EVICT = auto()
    DELETE = auto()


@dataclass(frozen=True, slots=True)
class Request:
    """One pod to be asked now.

    Attributes:
        planned: The pod.
        how: By eviction, or by deletion, which passes over budgets.
        stage: The stage of the escalation that deletes it past its budget.
    """

    planned: PlannedPod
    how: How
    stage: Stage | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be sent now.

    Attributes:
        requests: In order of the plan, no more than the pass's limit.
        next_in: Seconds until the next request is due; `None` if none is waiting.
    """

    requests: tuple[Request, ...] = ()
    next_in: float | None = None


def whose_turn(
    plan: DrainPlan, attempts: Mapping[str, Attempt], now: datetime
) -> tuple[PlannedPod, ...]:
    """Return the pods that may be asked to go: the cluster's own after all others.

    What the others need to end well, such as name resolution, is there until they have
    gone. Within a group all go at once. A pod that is refused, or whose end does not
    come, stops nobody: only those that are on their way are waited for. Pure.

    Args:
        plan: The pods of the node.
        attempts: What was heard so far, by pod uid.
        now: The present time.
    """
    if any(_is_leaving(planned, attempts, now) for planned in (*plan.evict, *plan.wait)):
        return tuple(planned for planned in plan.evict if not planned.pod.is_critical)
    return plan.evict


def _is_leaving(planned: PlannedPod, attempts: Mapping[str, Attempt], now: datetime) -> bool:
    """Tell whether an ordinary pod is on its way, or is to be asked for the first time."""
    if planned.pod.is_critical:
        return False
    overdue = planned.pod.overdue(now)
    if overdue is not None:
        return overdue < STUCK_AFTER
    attempt = attempts.get(planned.uid)
    return attempt is None or attempt.result.outcome.is_done


def due_requests(
    evict: Iterable[PlannedPod],
    attempts: Mapping[str, Attempt],
    ladder: Ladder,
    *,
    delete: bool,
    elapsed: float,
    monotonic: float,
    limit: int,
) -> Due:
    """Decide which pods are asked to go now. Pure.

    Args:
        evict: The pods that have to go and are not going.
        attempts: What was heard so far, by pod uid.
        ladder: The escalation.
        delete: Delete instead of evicting, as the drain's spec asks.
        elapsed: Seconds since the first eviction on the node.
        monotonic: The present instant, on the scale of `Attempt.due_at`.
        limit: Most requests in one pass.
    """
    now: list[Request] = []
    later: list[float] = []
    for planned in evict:
        attempt = attempts.get(planned.uid)
        stage = ladder.due(planned.pod, attempt, elapsed) if attempt is not None else None
        # A stage acts as soon as its time has come; when it fails, it waits as others do.
        is_new_stage = stage is not None and attempt is not None and attempt.stage != stage.number
        if attempt is None or attempt.due_at <= monotonic or is_new_stage:
            how = How.DELETE if delete or stage is not None else How.EVICT
            now.append(Request(planned, how, stage))
            continue
        later.append(attempt.due_at - monotonic)
        upcoming = ladder.upcoming(planned.pod, elapsed)
        if upcoming is not None:
            later.append(upcoming.after - elapsed)
    if len(now) > limit:
        later.append(0.0)
    return Due(tuple(now[:limit]), min(later, default=None))
