"""Pods that have to go and do not, with the reason and what comes next (OP-47)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from navarchos.drain import DrainPlan, EvictionOutcome, PlannedPod
from navarchos.meta import format_time
from navarchos.operator.api.v1alpha1 import Blocker
from navarchos.operator.drains.attempts import Attempt
from navarchos.operator.drains.escalation import Ladder

__all__ = ["MOST_BLOCKERS", "STUCK_AFTER", "Explainer", "find_blockers", "refusals", "since"]

MOST_BLOCKERS: Final = 50
"""As many are listed in status; the others are counted."""

STUCK_AFTER: Final = 60.0
"""Seconds past its grace period after which a terminating pod is worth a line.

A kubelet takes a few seconds; one that is dead, or a finalizer, takes for ever.
"""

_NEXT: Final[Mapping[EvictionOutcome, str]] = {
    EvictionOutcome.BLOCKED_BY_BUDGET: "evicted as soon as the budget allows it",
    EvictionOutcome.IN_PROGRESS: "tried again when the server is ready",
    EvictionOutcome.MULTIPLE_BUDGETS: "tried again; let only one budget select this pod",
    EvictionOutcome.WEBHOOK_DENIED: "tried again; the webhook may move the pod itself",
    EvictionOutcome.WEBHOOK_FAILED: "tried again; see who runs the webhook that does not answer",
    EvictionOutcome.REFUSED: "tried again",
    EvictionOutcome.NAMESPACE_TERMINATING: "waits for the deletion of its namespace",
    EvictionOutcome.FORBIDDEN: "tried again; grant the missing right to the manager",
    EvictionOutcome.RETRY: "tried again",
}


@dataclass(frozen=True)
class Explainer:
    """What it takes to say why a pod stays.

    Attributes:
        attempts: What was heard, by pod uid.
        ladder: The escalation.
        started_at: The first eviction on the node; stages count from here.
        elapsed: Seconds since then.
        now: The present time.
    """

    attempts: Mapping[str, Attempt]
    ladder: Ladder
    started_at: datetime
    elapsed: float
    now: datetime

    def explain(self, planned: PlannedPod) -> Blocker | None:
        """Return why a pod that ought to go stays; `None` if it has not been refused."""
        attempt = self.attempts.get(planned.uid)
        if attempt is None or attempt.result.outcome.is_done:
            return None
        return _blocker(
            planned,
            attempt.result.outcome,
            self._message(planned, attempt),
            self._next(planned, attempt.result.outcome),
            budget=",".join(attempt.budgets),
        )

    def _message(self, planned: PlannedPod, attempt: Attempt) -> str:
        message = attempt.result.message
        if attempt.wants_ready and not planned.pod.is_ready:
            message += "; the pod is not ready: unhealthyPodEvictionPolicy AlwaysAllow lets it go"
        disrupted = next(
            (c for c in planned.pod.status.conditions if c.type == "DisruptionTarget"), None
        )
        if disrupted is not None and disrupted.status == "True":
            message += f"; marked for disruption ({disrupted.reason})"
        return message

    def _next(self, planned: PlannedPod, answer: EvictionOutcome) -> str:
        stage = self.ladder.upcoming(planned.pod, self.elapsed)
        if stage is None:
            return _NEXT[answer]
        at = format_time(self.started_at + timedelta(seconds=stage.after))
        return f"{_NEXT[answer]}; stage {stage.number} deletes it at {at}"


def find_blockers(plan: DrainPlan, explainer: Explainer) -> tuple[Blocker, ...]:
    """Return all blockers, by namespace and name, without the time first seen."""
    blocked = [explainer.explain(planned) for planned in plan.evict]
    stuck = [_stuck(planned, explainer.now) for planned in plan.wait]
    refused = refusals(plan.refuse)
    return tuple(sorted((b for b in (*blocked, *stuck, *refused) if b is not None), key=_place))


def refusals(refused: Iterable[PlannedPod]) -> list[Blocker]:
    """Return the pods that the options do not allow to be removed, with the fix."""
    return [
        _blocker(planned, planned.finding.reason, planned.finding.message, "waits for a person")
        for planned in refused
    ]


def since(
    previous: Iterable[Blocker], blockers: Iterable[Blocker], *, now: datetime
) -> tuple[Blocker, ...]:
    """Return the blockers with the time first seen kept, or set to `now`."""
    seen = {blocker.uid: blocker.first_seen for blocker in previous}
    return tuple(
        msgspec.structs.replace(blocker, first_seen=seen.get(blocker.uid) or now)
        for blocker in blockers
    )


def _stuck(planned: PlannedPod, now: datetime) -> Blocker | None:
    overdue = planned.pod.overdue(now)
    if overdue is None or overdue < STUCK_AFTER:
        return None
    return _blocker(
        planned,
        "StuckTerminating",
        "its grace period is over: its kubelet does not confirm the end, or a finalizer holds it",
        "waits",
    )


def _blocker(
    planned: PlannedPod, reason: str, message: str, next_action: str, *, budget: str = ""
) -> Blocker:
    meta = planned.pod.metadata
    return Blocker(
        namespace=meta.namespace,
        pod=meta.name,
        uid=meta.uid,
        reason=str(reason),
        message=message,
        budget=budget,
        next_action=next_action,
    )


def _place(blocker: Blocker) -> tuple[str, str]:
    return (blocker.namespace, blocker.pod)
