"""The status of a drain, computed from an observation. Pure; nothing is written here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, assert_never

from msgspec.structs import replace

from navarchos.drain import DrainPlan, EvictionOutcome, PlannedPod, PodReason
from navarchos.errors import ConfigError
from navarchos.meta import format_time
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains import batch
from navarchos.operator.drains.decide import Report
from navarchos.operator.drains.observation import DrainObservation, owner_key
from navarchos.operator.drains.successors import SuccessorAsked, SuccessorRefused
from navarchos.operator.reasons import ConditionType, CordonReason, PrepareReason, Reason
from navarchos.runtime.conditions import Condition, is_true, set_condition

__all__ = [
    "MAX_BLOCKERS",
    "BlockerExplainer",
    "completed",
    "compute_status",
    "failed",
    "find_blockers",
    "only_counts_changed",
    "paused",
    "refused",
    "resumed",
    "timed_out",
    "with_blockers",
    "with_condition",
    "with_pods",
]

_MAX_NAMED: Final = 3

MAX_BLOCKERS: Final = 50
"""The maximum number of blocked pods that status lists; the others are only counted."""


def compute_status(
    seen: DrainObservation, report: Report, message: str = ""
) -> api.NodeDrainStatus:
    """Return the status after a reconcile.

    Args:
        seen: What the reconcile observed.
        report: What the status says.
        message: The message of the API server, for `Report.CORDON_REFUSED`.
    """
    drain, now = seen.drain, seen.now
    stored = replace(drain.status, observed_generation=drain.metadata.generation)
    match report:
        case Report.NODE_GONE:
            gone = f"node {drain.spec.node_name} with the uid of this drain no longer exists"
            return completed(stored, Reason.NODE_GONE, gone, now=now)
        case Report.INVALID_SPEC:
            return failed(stored, Reason.INVALID_SPEC, str(seen.settings), now=now)
        case Report.PENDING:
            # A drain that is paused while it prepares its node keeps its marks and its phase.
            is_preparing = stored.phase is api.DrainPhase.PREPARING
            phase = api.DrainPhase.PREPARING if is_preparing else api.DrainPhase.PENDING
            return replace(_with_pause(stored, seen), phase=phase)
        case Report.CORDON_REFUSED:
            return _with_refused_cordon(_with_pause(stored, seen), message, now)
        case Report.REOPENED:
            return _reopened(seen)
        case (
            Report.PREPARING
            | Report.PREPARED
            | Report.PREPARE_FAILED
            | Report.CORDON
            | Report.PROGRESS
            | Report.PODS_REFUSED
            | Report.TIMED_OUT
            | Report.DRAINED
        ):
            return _with_work(_with_pause(stored, seen), seen, report)
        case _:
            assert_never(report)


def _with_preparation(
    status: api.NodeDrainStatus, seen: DrainObservation, report: Report
) -> api.NodeDrainStatus:
    found = seen.preparation
    if found is None:
        return status
    # The node may be cordoned already: when only a pod asks for a hook.
    preparing = replace(
        _with_cordon(status, seen) if seen.drain.spec.prepare is None else status,
        phase=api.DrainPhase.PREPARING,
        prepare_timestamp=seen.prepare_started_at or seen.now,
    )
    preparing = with_condition(
        preparing,
        ConditionType.PREPARED,
        is_true=report is Report.PREPARED,
        reason=found.reason,
        message=found.message,
        now=seen.now,
    )
    if report is not Report.PREPARE_FAILED:
        return preparing
    is_removed = found.reason is PrepareReason.MARK_REMOVED_BY_OTHERS
    reason = found.reason if is_removed else Reason.PREPARE_TIMEOUT
    return failed(preparing, reason, found.message, now=seen.now)


def _with_work(
    status: api.NodeDrainStatus, seen: DrainObservation, report: Report
) -> api.NodeDrainStatus:
    if report in {Report.PREPARING, Report.PREPARED, Report.PREPARE_FAILED}:
        return _with_preparation(status, seen, report)
    status = _with_cordon(status, seen)
    plan, settings, now = seen.plan, seen.settings, seen.now
    if plan is None or isinstance(settings, ConfigError):
        return status
    if report is Report.PODS_REFUSED:
        return refused(status, plan, now=now)
    status = with_pods(status, plan, now=now)
    if report is Report.DRAINED:
        reason, message = Reason.NODE_DRAINED, f"{status.evicted} pods were evicted"
        if not seen.drain.spec.evicts:
            reason, message = Reason.CORDONED_ONLY, "spec.evict is false"
        return completed(status, reason, message, now=now)
    explainer = BlockerExplainer(
        attempts=seen.attempts,
        escalation=settings.escalation,
        started_at=status.start_timestamp or now,
        now=now,
    )
    blockers = sorted((*find_blockers(plan, explainer), *_without_successors(seen)), key=_order)
    status = with_blockers(status, blockers, now=now)
    if report is Report.TIMED_OUT:
        return timed_out(status, plan, settings.options.timeout or 0.0, now=now)
    is_holding = seen.is_timed_out
    return with_condition(
        status,
        ConditionType.NODE_DRAINED,
        is_true=False,
        reason=Reason.HOLDING if is_holding else Reason.DRAINING,
        message="the timeout has passed; evictions are still tried"
        if is_holding
        else _waits_for_successors(seen),
        now=now,
    )


def _waits_for_successors(seen: DrainObservation) -> str:
    """Return which pods their Deployments replace first; empty if none."""
    names = sorted(planned.name for planned in seen.waiting_for(SuccessorAsked).values())
    named = ", ".join(names[:_MAX_NAMED])
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"replaced first by their Deployments: {named}{more}" if names else ""


def _without_successors(seen: DrainObservation) -> list[api.Blocker]:
    """Return the pods that cannot be replaced first."""
    blockers = []
    for uid, planned in seen.waiting_for(SuccessorRefused).items():
        successor = seen.successors[uid]
        text = successor.message if isinstance(successor, SuccessorRefused) else ""
        action = "asked again; evicted after half of timeoutSeconds"
        blockers.append(_blocker(planned, EvictionOutcome.FORBIDDEN, text, action))
    return blockers


def _with_pause(status: api.NodeDrainStatus, seen: DrainObservation) -> api.NodeDrainStatus:
    if seen.is_suspended:
        return paused(status, now=seen.now)
    return resumed(status, seen.started_at, now=seen.now)


def _with_cordon(status: api.NodeDrainStatus, seen: DrainObservation) -> api.NodeDrainStatus:
    cordon = seen.cordon
    if cordon is None:
        return status
    return with_condition(
        status,
        ConditionType.NODE_CORDONED,
        is_true=cordon.in_force,
        reason=cordon.reason,
        message=cordon.message,
        now=seen.now,
    )


def _with_refused_cordon(
    status: api.NodeDrainStatus, message: str, now: datetime
) -> api.NodeDrainStatus:
    return with_condition(
        status,
        ConditionType.NODE_CORDONED,
        is_true=False,
        reason=CordonReason.CORDON_FAILED,
        message=message,
        now=now,
    )


def only_counts_changed(stored: api.NodeDrainStatus, status: api.NodeDrainStatus) -> bool:
    """Return whether `status` differs only in the number of evicted pods that still exist."""
    return stored != status and stored == replace(status, remaining=stored.remaining)


# The pods


def with_pods(
    status: api.NodeDrainStatus, plan: DrainPlan, *, now: datetime
) -> api.NodeDrainStatus:
    """Return the status with the pods of the node recorded.

    It must be stored before the first eviction, because the pods that were on the node cannot
    be found out afterwards. The evicted pods are derived from the recorded ones, not counted,
    so they are right after a crash at any point.
    """
    first = not status.has_begun
    leaving = {planned.name for planned in plan.to_go}
    ignored = _notes(plan) if first else status.ignored_pods
    ignored = tuple(note for note in ignored if note.name not in leaving)
    names = sorted(leaving | {note.name for note in ignored})
    known = frozenset(status.node_pods)
    node_pods = (*status.node_pods, *(name for name in names if name not in known))
    evicted = _evicted(node_pods, ignored, plan)
    return replace(
        status,
        phase=api.DrainPhase.DRAINING,
        start_timestamp=status.start_timestamp or now,
        node_pods=node_pods,
        ignored_pods=ignored,
        evicted_pods=evicted,
        evicted_owners=_owners(status.evicted_owners, (*plan.evict, *plan.wait)),
        total=len(node_pods) - len(ignored),
        evicted=len(evicted),
        ignored=len(ignored),
        remaining=len(plan.to_go),
    )


def _notes(plan: DrainPlan) -> tuple[api.PodNote, ...]:
    return tuple(
        api.PodNote(planned.name, str(planned.finding.reason))
        for planned in sorted(plan.ignore, key=lambda planned: planned.name)
        if planned.finding.reason is not PodReason.TERMINATING_TOO_LONG
    )


def _evicted(
    node_pods: Sequence[str], ignored: Iterable[api.PodNote], plan: DrainPlan
) -> tuple[str, ...]:
    staying = {note.name for note in ignored}
    staying.update(planned.name for planned in (*plan.evict, *plan.refuse))
    return tuple(name for name in node_pods if name not in staying)


def _owners(
    known: Sequence[api.OwnerKey], planned: Iterable[PlannedPod]
) -> tuple[api.OwnerKey, ...]:
    found = (owner_key(entry) for entry in planned)
    return tuple(dict.fromkeys((*known, *(owner for owner in found if owner is not None))))


# Blocked pods


@dataclass(frozen=True)
class BlockerExplainer:
    """Explains why a pod that must leave the node is still there.

    Attributes:
        attempts: The last request for each pod, by uid.
        escalation: The escalation of the drain.
        started_at: The time of the first eviction on the node, from which stages count.
        now: The present time.
    """

    attempts: Mapping[str, batch.EvictionAttempt]
    escalation: batch.EscalationPolicy
    started_at: datetime
    now: datetime

    def explain(self, planned: PlannedPod) -> api.Blocker | None:
        """Return why the pod is still there; `None` if its eviction was not refused."""
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

    def _message(self, planned: PlannedPod, attempt: batch.EvictionAttempt) -> str:
        message = attempt.result.message
        if attempt.requires_ready and not planned.pod.is_ready:
            message += (
                "; the pod is not ready: a budget with unhealthyPodEvictionPolicy AlwaysAllow "
                "would allow its eviction"
            )
        disrupted = next(
            (c for c in planned.pod.status.conditions if c.type == "DisruptionTarget"), None
        )
        if disrupted is not None and disrupted.status == "True":
            message += f"; marked for disruption ({disrupted.reason})"
        return message

    def _next(self, planned: PlannedPod, outcome: EvictionOutcome) -> str:
        elapsed = max(0.0, (self.now - self.started_at).total_seconds())
        stage = self.escalation.upcoming(planned.pod, elapsed)
        if stage is None:
            return _next_action(outcome)
        at = format_time(self.started_at + timedelta(seconds=stage.after))
        return f"{_next_action(outcome)}; stage {stage.number} {stage.verb} the pod at {at}"


def _next_action(outcome: EvictionOutcome) -> str:  # noqa: PLR0911 - one sentence per outcome
    match outcome:
        case EvictionOutcome.BLOCKED_BY_BUDGET:
            return "evicted as soon as the budget allows it"
        case EvictionOutcome.IN_PROGRESS:
            return "retried when the server is ready"
        case EvictionOutcome.MULTIPLE_BUDGETS:
            return "retried; make sure that only one budget selects this pod"
        case EvictionOutcome.WEBHOOK_DENIED:
            return "retried; the webhook may move the pod itself"
        case EvictionOutcome.WEBHOOK_FAILED:
            return "retried; check the webhook that did not respond"
        case EvictionOutcome.NAMESPACE_TERMINATING:
            return "deleted together with its namespace"
        case EvictionOutcome.FORBIDDEN:
            return "retried; grant the missing permission to the manager"
        case EvictionOutcome.REFUSED | EvictionOutcome.RETRY:
            return "retried"
        case EvictionOutcome.EVICTED | EvictionOutcome.DELETED | EvictionOutcome.GONE:
            return "terminates"
        case _:
            assert_never(outcome)


def find_blockers(plan: DrainPlan, explainer: BlockerExplainer) -> tuple[api.Blocker, ...]:
    """Return all blocked pods, by namespace and name, without the time first seen."""
    blocked = [explainer.explain(planned) for planned in plan.evict]
    overdue = [_overdue(planned, explainer.now) for planned in plan.wait]
    found = (b for b in (*blocked, *overdue, *_refusals(plan)) if b is not None)
    return tuple(sorted(found, key=_order))


def with_blockers(
    status: api.NodeDrainStatus, blockers: Sequence[api.Blocker], *, now: datetime
) -> api.NodeDrainStatus:
    """Return the status with these blocked pods, in the given order.

    A pod that was listed before keeps the time at which it was first seen.
    """
    first_seen = {blocker.uid: blocker.first_seen for blocker in status.blockers}
    listed = tuple(
        replace(blocker, first_seen=first_seen.get(blocker.uid) or now)
        for blocker in blockers[:MAX_BLOCKERS]
    )
    return replace(status, blockers=listed, blocked=len(blockers))


def _refusals(plan: DrainPlan) -> list[api.Blocker]:
    return [
        _blocker(planned, planned.finding.reason, planned.finding.message, "waits for a user")
        for planned in plan.refuse
    ]


def _overdue(planned: PlannedPod, now: datetime) -> api.Blocker | None:
    overdue = planned.pod.overdue(now)
    if overdue is None or overdue < batch.TERMINATING_TOO_LONG_AFTER:
        return None
    return _blocker(
        planned,
        "StuckTerminating",
        "its grace period is over, but its kubelet has not confirmed the termination, or a "
        "finalizer delays the deletion",
        "waits",
    )


def _blocker(
    planned: PlannedPod, reason: str, message: str, next_action: str, *, budget: str = ""
) -> api.Blocker:
    meta = planned.pod.metadata
    return api.Blocker(
        namespace=meta.namespace,
        pod=meta.name,
        uid=meta.uid,
        reason=str(reason),
        message=message,
        budget=budget,
        next_action=next_action,
    )


def _order(blocker: api.Blocker) -> tuple[str, str]:
    return (blocker.namespace, blocker.pod)


# Phases


def refused(status: api.NodeDrainStatus, plan: DrainPlan, *, now: datetime) -> api.NodeDrainStatus:
    """Return the status of a drain that its options do not allow. No eviction was sent."""
    blockers = sorted(_refusals(plan), key=_order)
    message = (
        f"the options do not allow {len(blockers)} pods to be evicted, so no pod was evicted. "
        f"First: {blockers[0].namespace}/{blockers[0].pod}: {blockers[0].message}"
    )
    listed = with_blockers(status, blockers, now=now)
    notes = [api.PodNote(f"{b.namespace}/{b.pod}", f"{b.reason}: {b.message}") for b in blockers]
    noted = replace(
        listed,
        failed_pods=tuple(notes),
        ignored_pods=_notes(plan),
        ignored=len(_notes(plan)),
        total=len(plan.to_go),
        remaining=len(plan.to_go),
    )
    return failed(noted, Reason.PODS_REFUSED, message, now=now)


def timed_out(
    status: api.NodeDrainStatus, plan: DrainPlan, timeout: float, *, now: datetime
) -> api.NodeDrainStatus:
    """Return the status of a drain whose timeout has passed. Its blockers are kept."""
    reasons = {f"{b.namespace}/{b.pod}": f"{b.reason}: {b.message}" for b in status.blockers}
    notes = [
        api.PodNote(planned.name, reasons.get(planned.name, str(planned.finding.reason)))
        for planned in sorted(plan.to_go, key=lambda planned: planned.name)
    ]
    message = f"{len(notes)} pods remain {timeout:g} s after the first eviction"
    listed = replace(status, failed_pods=tuple(notes))
    return failed(listed, Reason.TIMEOUT, message, now=now)


def failed(
    status: api.NodeDrainStatus, reason: Reason | PrepareReason, message: str, *, now: datetime
) -> api.NodeDrainStatus:
    """Return the status of a drain that has failed."""
    ended = replace(status, phase=api.DrainPhase.FAILED, reason=str(reason), message=message)
    return with_condition(
        ended, ConditionType.NODE_DRAINED, is_true=False, reason=reason, message=message, now=now
    )


def completed(
    status: api.NodeDrainStatus, reason: Reason, message: str, *, now: datetime
) -> api.NodeDrainStatus:
    """Return the status of a drain that has completed. A node that is only cordoned has pods."""
    is_empty = reason is not Reason.CORDONED_ONLY
    ended = replace(
        status,
        phase=api.DrainPhase.COMPLETED,
        reason=str(reason),
        message=message,
        completion_timestamp=status.completion_timestamp or now,
        remaining=0,
        blocked=0,
        blockers=(),
    )
    return with_condition(
        ended, ConditionType.NODE_DRAINED, is_true=is_empty, reason=reason, message=message, now=now
    )


def _reopened(seen: DrainObservation) -> api.NodeDrainStatus:
    """Return the status of a completed drain on whose node late pods were found.

    Its timeout starts again: the late pods must not fail because of the time that the first
    pods took.
    """
    late = len(seen.plan.evict) + len(seen.plan.wait) if seen.plan is not None else 0
    draining = replace(
        (seen.live_drain or seen.drain).status,
        phase=api.DrainPhase.DRAINING,
        reason="",
        message="",
        start_timestamp=seen.now,
        completion_timestamp=None,
    )
    return with_condition(
        draining,
        ConditionType.NODE_DRAINED,
        is_true=False,
        reason=Reason.PODS_CAME_LATE,
        message=f"{late} pods were bound to the node after it had been drained",
        now=seen.now,
    )


def paused(status: api.NodeDrainStatus, *, now: datetime) -> api.NodeDrainStatus:
    """Return the status of a drain that a user has paused; its phase does not change."""
    return with_condition(
        status,
        ConditionType.PAUSED,
        is_true=True,
        reason=Reason.PAUSED,
        message="no further eviction is sent",
        now=now,
    )


def resumed(
    status: api.NodeDrainStatus, started_at: datetime | None, *, now: datetime
) -> api.NodeDrainStatus:
    """Return the status of a drain that is not paused.

    Args:
        status: The status so far.
        started_at: The start, moved by the duration of the pause that ends.
        now: The present time.
    """
    if not is_true(status.conditions, ConditionType.PAUSED):
        return status
    return with_condition(
        replace(status, start_timestamp=started_at),
        ConditionType.PAUSED,
        is_true=False,
        reason=Reason.RESUMED,
        message="",
        now=now,
    )


def with_condition(
    status: api.NodeDrainStatus,
    type_: ConditionType,
    *,
    is_true: bool,
    reason: Reason | CordonReason | PrepareReason,
    message: str,
    now: datetime,
) -> api.NodeDrainStatus:
    """Return the status with one condition set."""
    condition = Condition(
        type=str(type_),
        status="True" if is_true else "False",
        reason=str(reason),
        message=message,
        observed_generation=status.observed_generation,
    )
    return replace(status, conditions=set_condition(status.conditions, condition, now=now))
