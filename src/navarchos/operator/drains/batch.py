"""Which pods of a node are evicted next, which are deleted instead, and when. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Final, assert_never

from navarchos.client.selectors import Selector
from navarchos.drain import DrainPlan, EvictionOutcome, EvictionResult, PlannedPod, Pod
from navarchos.operator.api import v1alpha1 as api

__all__ = [
    "TERMINATING_TOO_LONG_AFTER",
    "Batch",
    "EscalationPolicy",
    "EvictionAttempt",
    "EvictionRequest",
    "ParsedStage",
    "RemovalMethod",
    "eligible_pods",
    "may_escalate",
    "next_batch",
]

TERMINATING_TOO_LONG_AFTER: Final = 60.0
"""Seconds past its grace period after which a terminating pod is reported as blocked.

A healthy kubelet needs a few seconds. A dead kubelet or a finalizer can hold a pod for ever.
"""


def may_escalate(outcome: EvictionOutcome) -> bool:
    """Return whether an escalation stage may delete a pod after this response to its eviction.

    Only after a refusal that a deletion overcomes. A deletion does not help against a missing
    permission or in a namespace that terminates, and a server or webhook that did not respond
    has not refused the eviction.
    """
    match outcome:
        case (
            EvictionOutcome.BLOCKED_BY_BUDGET
            | EvictionOutcome.IN_PROGRESS
            | EvictionOutcome.MULTIPLE_BUDGETS
            | EvictionOutcome.WEBHOOK_DENIED
            | EvictionOutcome.REFUSED
        ):
            return True
        case (
            EvictionOutcome.EVICTED
            | EvictionOutcome.DELETED
            | EvictionOutcome.GONE
            | EvictionOutcome.WEBHOOK_FAILED
            | EvictionOutcome.NAMESPACE_TERMINATING
            | EvictionOutcome.FORBIDDEN
            | EvictionOutcome.RETRY
        ):
            return False
        case _:
            assert_never(outcome)


@dataclass(frozen=True, slots=True)
class ParsedStage:
    """One stage of the escalation, with its selector parsed.

    Attributes:
        number: The position in the spec, from 1.
        after: Seconds since the first eviction on the node.
        action: What the stage does to a pod.
        namespaces: Only pods of these namespaces; of all namespaces if empty.
        selector: Only pods with these labels.
    """

    number: int
    after: float
    action: api.EscalationAction
    namespaces: frozenset[str]
    selector: Selector

    @property
    def verb(self) -> str:
        """What the stage does, for messages: "stage 1 deletes the pod"."""
        match self.action:
            case api.EscalationAction.DELETE | api.EscalationAction.DELETE_UNHEALTHY:
                return "deletes"
            case _:
                assert_never(self.action)

    def applies_to(self, pod: Pod) -> bool:
        """Return whether the stage acts on the pod once its time has come."""
        if self.namespaces and pod.metadata.namespace not in self.namespaces:
            return False
        if not self.selector.matches(pod.metadata.labels):
            return False
        match self.action:
            case api.EscalationAction.DELETE:
                return True
            case api.EscalationAction.DELETE_UNHEALTHY:
                return not pod.is_ready
            case _:
                assert_never(self.action)


@dataclass(frozen=True, slots=True)
class EscalationPolicy:
    """All stages of a drain.

    Attributes:
        stages: The stages, sorted by `after`.
        ends_at: Seconds since the first eviction from which on no stage acts: the timeout under
            `onTimeout: Hold`, which never bypasses a budget.
    """

    stages: tuple[ParsedStage, ...] = ()
    ends_at: float | None = None

    def due(self, pod: Pod, elapsed: float) -> ParsedStage | None:
        """Return the latest stage that acts on the pod now; `None` if no stage does.

        The caller must make sure that the pod's eviction was tried and refused.
        """
        if self.ends_at is not None and elapsed >= self.ends_at:
            return None
        reached = [s for s in self.stages if s.after <= elapsed and s.applies_to(pod)]
        return reached[-1] if reached else None

    def upcoming(self, pod: Pod, elapsed: float) -> ParsedStage | None:
        """Return the next stage that will act on the pod if the pod does not change."""
        for stage in self.stages:
            in_time = self.ends_at is None or stage.after < self.ends_at
            if stage.after > elapsed and in_time and stage.applies_to(pod):
                return stage
        return None


@dataclass(frozen=True, slots=True)
class EvictionAttempt:
    """The last request for a pod.

    Attributes:
        result: The response.
        due_at: The time of the next request, on the monotonic clock.
        failures: Consecutive responses that did not evict the pod, including this one.
        budgets: The budgets that prevented the eviction, as `namespace/name`.
        requires_ready: Whether one of these budgets treats pods that are not ready like others.
        stage: The number of the escalation stage that acted; 0 for an ordinary request.
    """

    result: EvictionResult
    due_at: float
    failures: int = 0
    budgets: tuple[str, ...] = ()
    requires_ready: bool = False
    stage: int = 0

    @property
    def is_escalatable(self) -> bool:
        """Whether an escalation stage may act on the pod: its eviction was refused."""
        return self.stage > 0 or may_escalate(self.result.outcome)


class RemovalMethod(Enum):
    """How a pod is removed from its node."""

    EVICT = auto()
    DELETE = auto()


@dataclass(frozen=True, slots=True)
class EvictionRequest:
    """One pod to remove from the node now.

    Attributes:
        planned: The pod.
        stage: The escalation stage that acts; `None` for an ordinary request.
    """

    planned: PlannedPod
    stage: ParsedStage | None = None

    def method(self, *, disable_eviction: bool) -> RemovalMethod:
        """Return how to remove the pod. A deletion bypasses budgets."""
        if self.stage is None:
            return RemovalMethod.DELETE if disable_eviction else RemovalMethod.EVICT
        match self.stage.action:
            case api.EscalationAction.DELETE | api.EscalationAction.DELETE_UNHEALTHY:
                return RemovalMethod.DELETE
            case _:
                assert_never(self.stage.action)


@dataclass(frozen=True, slots=True)
class Batch:
    """The requests to send now.

    Attributes:
        requests: In the order of the plan, at most the limit of one reconcile.
        next_in: Seconds until the next request is due; `None` if no pod waits for one.
    """

    requests: tuple[EvictionRequest, ...] = ()
    next_in: float | None = None


def eligible_pods(
    plan: DrainPlan, attempts: Mapping[str, EvictionAttempt], now: datetime
) -> tuple[PlannedPod, ...]:
    """Return the pods that may be evicted: system-critical pods only after all others.

    Ordinary pods may need system-critical ones, such as name resolution, until they have
    terminated. Within a group all pods are evicted at once. A system-critical pod waits only
    for ordinary pods that terminate or that were not yet asked to: a refused pod, or one that
    terminates for too long, does not delay it.

    Args:
        plan: The pods of the node.
        attempts: The last request for each pod, by uid.
        now: The present time.
    """
    if any(_is_leaving(planned, attempts, now) for planned in (*plan.evict, *plan.wait)):
        return tuple(planned for planned in plan.evict if not planned.pod.is_critical)
    return plan.evict


def _is_leaving(
    planned: PlannedPod, attempts: Mapping[str, EvictionAttempt], now: datetime
) -> bool:
    if planned.pod.is_critical:
        return False
    overdue = planned.pod.overdue(now)
    if overdue is not None:
        return overdue < TERMINATING_TOO_LONG_AFTER
    attempt = attempts.get(planned.uid)
    return attempt is None or attempt.result.outcome.is_done


def next_batch(
    evict: Iterable[PlannedPod],
    attempts: Mapping[str, EvictionAttempt],
    escalation: EscalationPolicy,
    *,
    elapsed: float,
    monotonic: float,
    limit: int,
) -> Batch:
    """Return the requests to send now.

    Args:
        evict: The pods that may be evicted.
        attempts: The last request for each pod, by uid.
        escalation: The escalation of the drain.
        elapsed: Seconds since the first eviction on the node.
        monotonic: The present time, on the clock of `EvictionAttempt.due_at`.
        limit: The maximum number of requests.
    """
    now: list[EvictionRequest] = []
    later: list[float] = []
    for planned in evict:
        attempt = attempts.get(planned.uid)
        if attempt is None:
            now.append(EvictionRequest(planned))
            continue
        stage = escalation.due(planned.pod, elapsed) if attempt.is_escalatable else None
        # A stage acts as soon as its time has come; if it fails, it is retried like an eviction.
        is_new_stage = stage is not None and attempt.stage != stage.number
        if attempt.due_at <= monotonic or is_new_stage:
            now.append(EvictionRequest(planned, stage))
            continue
        later.append(attempt.due_at - monotonic)
        upcoming = escalation.upcoming(planned.pod, elapsed)
        if upcoming is not None:
            later.append(upcoming.after - elapsed)
    if len(now) > limit:
        later.append(0.0)
    return Batch(tuple(now[:limit]), min(later, default=None))
