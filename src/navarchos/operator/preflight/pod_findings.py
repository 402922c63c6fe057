"""Findings about the pods of a node: why the drain of the node would block or wait. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, assert_never

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
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains.batch import TERMINATING_TOO_LONG_AFTER
from navarchos.operator.drains.settings import DrainSettings
from navarchos.operator.drains.successors import may_have_successor
from navarchos.operator.preflight.findings import FindingReason, PlanFinding, Severity
from navarchos.operator.preflight.kinds import PlanPod
from navarchos.operator.preflight.placement import PlacementFailure, UnplaceablePod

__all__ = ["PodContext", "find_for_pods", "find_unready_pods", "finding_of_unplaceable"]

_LOSSES: Final = frozenset(
    {PodReason.LOCAL_STORAGE, PodReason.UNMANAGED, PodReason.DAEMON_SET_GONE}
)
_BEFORE_ALL: Final = -1.0
"""Seconds since the first eviction. Before it, so that a stage after 0 s is still ahead."""

_DEFAULT_GRACE: Final = 30
_LONG_GRACE: Final = 3600.0
"""Seconds. A longer grace period is reported even if the drain has no timeout."""

_HARMLESS_FINALIZERS: Final = frozenset(
    {"batch.kubernetes.io/job-tracking", "foregroundDeletion", "orphan"}
)
"""The controllers of Kubernetes remove these finalizers quickly."""

_DO_NOT_EVICT_ANNOTATIONS: Final[Mapping[str, str]] = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
    "karpenter.sh/do-not-evict": "true",
}
"""Annotations that forbid other tools to evict a pod."""


@dataclass(frozen=True, kw_only=True)
class PodContext:
    """The state of the cluster on which the findings about pods depend.

    Attributes:
        now: The current time.
        budgets: All budgets, by namespace.
        terminating: Namespaces that are being deleted. No pod can be evicted there.
        refusals: The refused dry-run evictions, by pod uid.
        replaced_first: The namespaces and names of the ReplicaSets whose Deployments can start a
            new pod first.
    """

    now: datetime
    budgets: Mapping[str, Sequence[Budget]] = field(default_factory=dict)
    terminating: frozenset[str] = frozenset()
    refusals: Mapping[str, EvictionResult] = field(default_factory=dict)
    replaced_first: frozenset[tuple[str, str]] = frozenset()

    def is_replaced_first(self, planned: PlannedPod) -> bool:
        """Return whether the Deployment of a pod can start its new pod first."""
        owner = planned.pod.controller
        if owner is None or not may_have_successor(planned):
            return False
        return (planned.pod.metadata.namespace, owner.name) in self.replaced_first


@dataclass(frozen=True, slots=True)
class _Case:
    """A pod, and the budgets that select it."""

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


def find_for_pods(
    plan: DrainPlan, settings: DrainSettings, context: PodContext
) -> Iterator[PlanFinding]:
    """Yield the findings about the pods of a node.

    Args:
        plan: The pods of the node, classified.
        settings: The drain options of the rollout.
        context: The state of the cluster.
    """
    for planned in plan.refuse:
        yield _of_plan(planned, Severity.BLOCKS)
    for planned in plan.evict:
        yield from _of_evicted(planned, settings, context)
    for planned in plan.wait:
        if planned.finding.reason is PodReason.LEAVES_BY_ITSELF:
            yield _of_hook(planned)
        elif _terminates_too_long(planned.pod, context.now):
            yield _stuck_terminating(planned)
        else:
            yield from _held_by_finalizers(planned)


def find_unready_pods(
    pods: Iterable[PlanPod], gate: str, context: PodContext
) -> Iterator[PlanFinding]:
    """Yield which pods of a node become unready before its cordon, and which ones a budget keeps.

    Args:
        pods: All pods of the node; the pods of DaemonSets become unready as well.
        gate: The condition that `drain.prepare.readinessGate` names.
        context: The state of the cluster.
    """
    for pod in pods:
        if pod.is_finished or pod.is_terminating:
            continue
        if all(each.condition_type != gate for each in pod.spec.readiness_gates):
            continue
        budgets = budgets_of(pod, context.budgets.get(pod.metadata.namespace, ()))
        names = tuple(full_name(budget.metadata) for budget in budgets)
        yield PlanFinding(
            severity=Severity.NOTE,
            reason=FindingReason.MADE_UNREADY,
            message=f"stays ready until its eviction, because a budget covers it: {names[0]}"
            if names
            else f"becomes unready before the cordon of its node, by its readiness gate {gate}",
            pod=full_name(pod.metadata),
            budgets=names,
        )


def _of_hook(planned: PlannedPod) -> PlanFinding:
    return PlanFinding(
        severity=Severity.NOTE,
        reason=FindingReason.DRAIN_HOOK,
        message=f"the pod is not evicted: {planned.finding.message}",
        next_action="check that a controller answers this hook and removes the pod",
        pod=planned.name,
    )


def finding_of_unplaceable(unplaceable: UnplaceablePod) -> PlanFinding:
    """Return the finding about a pod that fits on no other node."""
    detail = unplaceable.detail
    reason, action = FindingReason.NO_OTHER_NODE, "add a matching node, or change the pod's rules"
    match unplaceable.failure:
        case PlacementFailure.UNSCHEDULABLE:
            message = "no other node is Ready and schedulable"
            action = "add a node, or uncordon one"
        case PlacementFailure.LABELS:
            message = f"no other schedulable node has the labels that the pod requires: {detail}"
        case PlacementFailure.TAINTS:
            message = f"the pod does not tolerate the taints of the other nodes: {detail}"
        case PlacementFailure.AFFINITY:
            message = "the affinity or anti-affinity between pods excludes all other nodes"
        case PlacementFailure.VOLUME:
            reason = FindingReason.VOLUME_BOUND
            message = f"no other schedulable node can attach the pod's volume {detail}"
            action = "add a node where the volume is, or move its data"
        case PlacementFailure.CAPACITY:
            reason = FindingReason.NO_CAPACITY
            message = f"no other matching node has enough capacity: insufficient {detail}"
            action = "add a node, or lower the pod's requests"
        case PlacementFailure.CAPACITY_COMBINED:
            reason = FindingReason.NO_CAPACITY
            message = (
                f"{unplaceable.count} pods of this node cannot be rescheduled together: "
                f"insufficient {detail}"
            )
            action = "add a node, or lower the pods' requests"
        case _:
            assert_never(unplaceable.failure)
    return PlanFinding(
        severity=Severity.BLOCKS if unplaceable.pinned else Severity.DELAYS,
        reason=reason,
        message=message,
        next_action=action,
        pod=full_name(unplaceable.pod.metadata),
    )


def _of_plan(planned: PlannedPod, severity: Severity) -> PlanFinding:
    finding = planned.finding
    why, _, action = finding.message.partition("; ")
    return PlanFinding(
        severity=severity,
        reason=finding.reason,
        message=why,
        next_action=action,
        pod=planned.name,
    )


def _of_evicted(
    planned: PlannedPod, settings: DrainSettings, context: PodContext
) -> Iterable[PlanFinding]:
    namespace = planned.pod.metadata.namespace
    if planned.finding.action is PodAction.EVICT and planned.finding.reason in _LOSSES:
        yield _of_plan(planned, Severity.NOTE)
    if namespace in context.terminating:
        yield _Case(planned).report(
            Severity.DELAYS,
            FindingReason.NAMESPACE_TERMINATING,
            "the namespace of the pod is being deleted, and the pod with it",
            "check the conditions of the namespace",
        )
        return
    if settings.replaces_first and context.is_replaced_first(planned):
        yield _Case(planned).report(
            Severity.NOTE,
            FindingReason.REPLACED_FIRST,
            "its Deployment starts the new pod first, so no budget delays it; after half of "
            "drain.timeoutSeconds the pod is evicted",
            "check that the new pod can start while the old one runs",
        )
    elif not settings.options.disable_eviction:
        case = _Case(planned, budgets_of(planned.pod, context.budgets.get(namespace, ())))
        yield from _blocked_by_budget(case, settings)
        yield from _denied(planned, context.refusals.get(planned.uid))
    if not planned.pod.is_finished:
        yield from _slow_to_end(planned, settings)
        yield from _asked_to_stay(planned)
    yield from _held_by_finalizers(planned)


def _blocked_by_budget(case: _Case, settings: DrainSettings) -> Iterable[PlanFinding]:
    refusal = _refusal(case)
    if refusal is None:
        return
    stage = settings.escalation.upcoming(case.planned.pod, _BEFORE_ALL)
    if stage is not None and refusal.severity is Severity.BLOCKS:
        yield case.report(
            Severity.NOTE,
            FindingReason.BUDGET_BYPASSED,
            f"{refusal.message}; escalation stage {stage.number} {_effect(stage.action)} "
            f"{stage.after:g} s after the first eviction",
            "check that this is intended",
        )
    else:
        yield refusal


def _refusal(case: _Case) -> PlanFinding | None:
    """Return why the server would refuse an eviction now; `None` if it would grant it.

    Upstream ignores budgets for pods that do not run (`canIgnorePDB` in the registry's
    eviction).
    """
    pod, budgets = case.planned.pod, case.budgets
    if not budgets or pod.is_finished or pod.status.phase == "Pending":
        return None
    if len(budgets) > 1:
        return case.report(
            Severity.BLOCKS,
            FindingReason.MULTIPLE_BUDGETS,
            "several budgets select the pod; the server does not evict such a pod",
            "change the budgets so that only one selects the pod",
        )
    budget = budgets[0]
    if _allows_unready(budget, pod) or budget.allows_one:
        return None
    return _exhausted(case, budget)


def _exhausted(case: _Case, budget: Budget) -> PlanFinding:
    status = budget.status
    if not budget.is_current:
        return case.report(
            Severity.DELAYS,
            FindingReason.BUDGET_NOT_OBSERVED,
            "the disruption controller has not processed the changed budget yet",
            "check that kube-controller-manager is running",
        )
    if budget.can_never_allow:
        return case.report(
            Severity.BLOCKS,
            FindingReason.BUDGET_NEVER_ALLOWS,
            f"the budget requires {status.desired_healthy} healthy pods of {status.expected_pods}",
            "change the budget to allow one disruption, or add a replica",
        )
    healthy = f"{status.current_healthy} pods are healthy, and the budget requires"
    if not case.planned.pod.is_ready:
        return case.report(
            Severity.DELAYS,
            FindingReason.UNHEALTHY_POD_HELD,
            f"the pod is not ready, but the budget protects it: {healthy} {status.desired_healthy}",
            "fix the pod, or set unhealthyPodEvictionPolicy: AlwaysAllow",
        )
    return case.report(
        Severity.DELAYS,
        FindingReason.BUDGET_EXHAUSTED,
        f"{healthy} {status.desired_healthy}",
        "fix the unhealthy pods of the budget",
    )


def _effect(action: api.EscalationAction) -> str:
    match action:
        case api.EscalationAction.DELETE | api.EscalationAction.DELETE_UNHEALTHY:
            return "deletes the pod"
        case _:
            assert_never(action)


def _allows_unready(budget: Budget, pod: Pod) -> bool:
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
            f"a webhook refused the eviction in a dry run: {answer.message}",
            "ask the owner of the webhook; some webhooks move the pod themselves",
        )


def _slow_to_end(planned: PlannedPod, settings: DrainSettings) -> Iterable[PlanFinding]:
    own = planned.pod.spec.termination_grace_period_seconds
    grace = settings.options.grace
    if grace is None:
        grace = _DEFAULT_GRACE if own is None else own
    timeout = settings.options.timeout
    limit = _LONG_GRACE if timeout is None else timeout
    if grace >= limit:
        until = "" if timeout is None else f", but the drain fails after {timeout:g} s"
        yield _Case(planned).report(
            Severity.DELAYS,
            FindingReason.LONG_GRACE_PERIOD,
            f"the pod may take {grace} s to terminate{until}",
            "raise drain.timeoutSeconds, or set drain.gracePeriodSeconds",
        )


def _held_by_finalizers(planned: PlannedPod) -> Iterable[PlanFinding]:
    names = sorted(set(planned.pod.metadata.finalizers) - _HARMLESS_FINALIZERS)
    if names:
        yield _Case(planned).report(
            Severity.DELAYS,
            FindingReason.POD_FINALIZER,
            f"the pod stays on the node until its finalizers are removed: {', '.join(names)}",
            "check that the controller of each finalizer is running",
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
            f"the annotation {asked[0]} asks not to evict the pod; it is evicted anyway",
            "exclude the pod with drain.podSelector, or protect it with a budget",
        )


def _terminates_too_long(pod: Pod, now: datetime) -> bool:
    overdue = pod.overdue(now)
    return overdue is not None and overdue >= TERMINATING_TOO_LONG_AFTER


def _stuck_terminating(planned: PlannedPod) -> PlanFinding:
    return _Case(planned).report(
        Severity.DELAYS,
        FindingReason.STUCK_TERMINATING,
        "the pod still exists after its grace period: its kubelet does not confirm the "
        "termination, or the pod has a finalizer",
        "check the finalizers of the pod and the kubelet of its node",
    )
