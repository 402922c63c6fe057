"""What about a pod would hold up the drain of its node. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from navarchos.drain import (
    Budget,
    DrainPlan,
    EvictionOutcome,
    EvictionResult,
    PlannedPod,
    Pod,
    PodAction,
    PodReason,
    budgets_of,
    full_name,
)
from navarchos.operator.drains.blockers import STUCK_AFTER
from navarchos.operator.drains.rules import Rules
from navarchos.operator.preflight.findings import FindingReason, PlanFinding, Severity
from navarchos.operator.preflight.placement import PlacementFailure, UnplaceablePod

__all__ = ["PodContext", "find_for_pods", "finding_of_unplaceable"]

_LOSSES: Final = frozenset(
    {PodReason.LOCAL_STORAGE, PodReason.UNMANAGED, PodReason.DAEMON_SET_GONE}
)
_BEFORE_ALL: Final = -1.0
"""Seconds since the first eviction: stages after 0 seconds are still to come."""

_USUAL_GRACE: Final = 30
_LONG_GRACE: Final = 3600.0
"""Seconds: a grace period above it is told even where the drain has no timeout."""

_HARMLESS_FINALIZERS: Final = frozenset(
    {"batch.kubernetes.io/job-tracking", "foregroundDeletion", "orphan"}
)
"""Taken off by Kubernetes' own controllers within a moment."""

_DO_NOT_EVICT_ANNOTATIONS: Final[Mapping[str, str]] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
    "karpenter.sh/do-not-evict": "true",
}
"""Annotations by which pods ask other tools to leave them alone."""


@dataclass(frozen=True, kw_only=True)
class PodContext:
    """What matters for pods beside the pods themselves.

    Attributes:
        now: The present time.
        budgets: All budgets, by namespace.
        terminating: Namespaces that are being deleted: nothing can be evicted there.
        answers: By pod uid: what the server said when an eviction was rehearsed.
    """

    now: datetime
    budgets: Mapping[str, Sequence[Budget]] = field(default_factory=dict)
    terminating: frozenset[str] = frozenset()
    answers: Mapping[str, EvictionResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Case:
    """A pod with a budget in its way."""

    planned: PlannedPod
    budgets: tuple[Budget, ...] = ()

    def report(
        self, severity: Severity, reason: FindingReason, message: str, action: str
    ) -> PlanFinding:
        return PlanFinding(
            severity=severity,
            reason=reason,
            message=message,
            next_action=action,
            pod=self.planned.name,
            budgets=tuple(full_name(budget.metadata) for budget in self.budgets),
        )


def find_for_pods(plan: DrainPlan, rules: Rules, around: PodContext) -> Iterator[PlanFinding]:
    """Yield what is to be said of the pods of a node.

    Args:
        plan: The node's pods, classified.
        rules: How the node is to be emptied.
        around: What else matters.
    """
    for planned in plan.refuse:
        yield _verdict(planned, Severity.BLOCKS)
    for planned in plan.evict:
        yield from _about(planned, rules, around)
    for planned in plan.wait:
        if _is_stuck(planned.pod, around.now):
            yield _stuck(planned)
        else:
            yield from _held_by_finalizers(planned)


def finding_of_unplaceable(unplaceable: UnplaceablePod) -> PlanFinding:
    """Return what is to be said of a pod that would find no other place."""
    others = f" {unplaceable.detail}" if unplaceable.detail else ""
    reason, message, action = (
        FindingReason.NO_OTHER_NODE,
        "",
        "add such a node, or change the pod's rules",
    )
    match unplaceable.failure:
        case PlacementFailure.UNSCHEDULABLE:
            message = "no other node is Ready and open to new pods"
            action = "add a node, or open one"
        case PlacementFailure.LABELS:
            message = f"no other node that is Ready and open has the labels it wants:{others}"
        case PlacementFailure.TAINTS:
            message = f"it does not tolerate the taints of the other nodes:{others}"
        case PlacementFailure.AFFINITY:
            message = "its affinity to other pods, or against them, keeps it off all other nodes"
        case PlacementFailure.VOLUME:
            reason = FindingReason.VOLUME_BOUND
            message = f"no other node that is Ready and open can reach its volume{others}"
            action = "add a node where the volume is, or move its data"
        case PlacementFailure.CAPACITY:
            reason = FindingReason.NO_CAPACITY
            message = f"no other node that it may use has enough left of what it requests:{others}"
            action = "add a node, or lower its requests"
        case PlacementFailure.CAPACITY_COMBINED:
            reason = FindingReason.NO_CAPACITY
            message = (
                f"{unplaceable.count} pods of the node find no room beside the others:{others}"
            )
            action = "add a node, or lower requests"
    return PlanFinding(
        severity=Severity.BLOCKS if unplaceable.pinned else Severity.DELAYS,
        reason=reason,
        message=message,
        next_action=action,
        pod=full_name(unplaceable.pod.metadata),
    )


def _verdict(planned: PlannedPod, severity: Severity) -> PlanFinding:
    finding = planned.finding
    why, _, action = finding.message.partition("; ")
    return PlanFinding(
        severity=severity,
        reason=finding.reason,
        message=why,
        next_action=action,
        pod=planned.name,
    )


def _about(planned: PlannedPod, rules: Rules, around: PodContext) -> Iterable[PlanFinding]:
    namespace = planned.pod.metadata.namespace
    if planned.finding.action is PodAction.EVICT and planned.finding.reason in _LOSSES:
        yield _verdict(planned, Severity.NOTE)
    if namespace in around.terminating:
        yield _Case(planned).report(
            Severity.DELAYS,
            FindingReason.NAMESPACE_TERMINATING,
            "its namespace is being deleted and takes it along",
            "see what holds the namespace",
        )
        return
    if not rules.options.disable_eviction:
        case = _Case(planned, budgets_of(planned.pod, around.budgets.get(namespace, ())))
        yield from _held_up(case, rules)
        yield from _denied(planned, around.answers.get(planned.uid))
    if not planned.pod.is_finished:
        yield from _slow_to_end(planned, rules)
        yield from _asked_to_stay(planned)
    yield from _held_by_finalizers(planned)


def _held_up(case: _Case, rules: Rules) -> Iterable[PlanFinding]:
    refusal = _refusal(case)
    if refusal is None:
        return
    stage = rules.ladder.upcoming(case.planned.pod, _BEFORE_ALL)
    if stage is not None and refusal.severity is Severity.BLOCKS:
        yield case.report(
            Severity.NOTE,
            FindingReason.BUDGET_BYPASSED,
            f"{refusal.message}; stage {stage.number} deletes the pod past it {stage.after:g} s "
            "after the first eviction",
            "make sure that this is meant",
        )
    else:
        yield refusal


def _refusal(case: _Case) -> PlanFinding | None:
    """Return what the server would say to an eviction now; `None` if it would grant it.

    Upstream asks no budget about pods that do not run (`canIgnorePDB` of the registry's
    eviction).
    """
    pod, budgets = case.planned.pod, case.budgets
    if not budgets or pod.is_finished or pod.status.phase == "Pending":
        return None
    if len(budgets) > 1:
        return case.report(
            Severity.BLOCKS,
            FindingReason.MULTIPLE_BUDGETS,
            "the server evicts no pod that several budgets select",
            "let only one select it",
        )
    budget = budgets[0]
    if _lets_unready_go(budget, pod) or budget.allows_one:
        return None
    return _exhausted(case, budget)


def _exhausted(case: _Case, budget: Budget) -> PlanFinding:
    status = budget.status
    if not budget.is_current:
        return case.report(
            Severity.DELAYS,
            FindingReason.BUDGET_NOT_OBSERVED,
            "the budget has been changed, and its controller has not looked at it since",
            "see whether kube-controller-manager runs",
        )
    if budget.can_never_allow:
        return case.report(
            Severity.BLOCKS,
            FindingReason.BUDGET_NEVER_ALLOWS,
            f"the budget wants {status.desired_healthy} of {status.expected_pods} pods",
            "let it allow one disruption, or add a replica",
        )
    healthy = f"{status.current_healthy} pods are healthy and the budget wants"
    if not case.planned.pod.is_ready:
        return case.report(
            Severity.DELAYS,
            FindingReason.UNHEALTHY_POD_HELD,
            f"the pod is not ready, and held all the same: {healthy} {status.desired_healthy}",
            "mend the pod, or set unhealthyPodEvictionPolicy: AlwaysAllow",
        )
    return case.report(
        Severity.DELAYS,
        FindingReason.BUDGET_EXHAUSTED,
        f"{healthy} {status.desired_healthy}",
        "bring its pods to health",
    )


def _lets_unready_go(budget: Budget, pod: Pod) -> bool:
    if pod.is_ready:
        return False
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    status = budget.status
    return 0 < status.desired_healthy <= status.current_healthy


def _denied(planned: PlannedPod, answer: EvictionResult | None) -> Iterable[PlanFinding]:
    if answer is not None and answer.outcome is EvictionOutcome.WEBHOOK_DENIED:
        yield _Case(planned).report(
            Severity.BLOCKS,
            FindingReason.WEBHOOK_DENIED,
            f"an eviction that was rehearsed was refused: {answer.message}",
            "see who runs the webhook; some move the pod themselves",
        )


def _slow_to_end(planned: PlannedPod, rules: Rules) -> Iterable[PlanFinding]:
    own = planned.pod.spec.termination_grace_period_seconds
    grace = rules.options.grace
    if grace is None:
        grace = _USUAL_GRACE if own is None else own
    timeout = rules.options.timeout
    limit = _LONG_GRACE if timeout is None else timeout
    if grace >= limit:
        until = "" if timeout is None else f", and the drain is given up after {timeout:g} s"
        yield _Case(planned).report(
            Severity.DELAYS,
            FindingReason.LONG_GRACE_PERIOD,
            f"it may take {grace} s to end{until}",
            "allow more with drain.timeoutSeconds, or less with drain.gracePeriodSeconds",
        )


def _held_by_finalizers(planned: PlannedPod) -> Iterable[PlanFinding]:
    names = sorted(set(planned.pod.metadata.finalizers) - _HARMLESS_FINALIZERS)
    if names:
        yield _Case(planned).report(
            Severity.DELAYS,
            FindingReason.POD_FINALIZER,
            f"it stays on the node until somebody takes its finalizers off: {', '.join(names)}",
            "see that whoever set them is running",
        )


def _asked_to_stay(planned: PlannedPod) -> Iterable[PlanFinding]:
    annotations = planned.pod.metadata.annotations
    asked = [
        key for key, value in _DO_NOT_EVICT_ANNOTATIONS.items() if annotations.get(key) == value
    ]
    if asked:
        yield _Case(planned).report(
            Severity.NOTE,
            FindingReason.DO_NOT_EVICT,
            f"its annotation {asked[0]} asks to leave it alone; it is evicted all the same",
            "leave it out with drain.podSelector, or protect it with a budget",
        )


def _is_stuck(pod: Pod, now: datetime) -> bool:
    overdue = pod.overdue(now)
    return overdue is not None and overdue >= STUCK_AFTER


def _stuck(planned: PlannedPod) -> PlanFinding:
    return _Case(planned).report(
        Severity.DELAYS,
        FindingReason.STUCK_TERMINATING,
        "its grace period is over: its kubelet does not confirm the end, or a finalizer holds it",
        "see its finalizers and its node's kubelet",
    )
