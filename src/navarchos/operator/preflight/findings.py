"""What about a pod would hold up the drain of its node. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from navarchos.drain import Action, Budget, DrainPlan, PlannedPod, Pod, budgets_of
from navarchos.drain import Reason as PodReason
from navarchos.operator.drains.blockers import STUCK_AFTER
from navarchos.operator.drains.rules import Rules

__all__ = ["Finding", "Reason", "Severity", "find"]

_LOSSES: Final = frozenset(
    {PodReason.LOCAL_STORAGE, PodReason.UNMANAGED, PodReason.DAEMON_SET_GONE}
)
_BEFORE_ALL: Final = -1.0
"""Seconds since the first eviction: stages after 0 seconds are still to come."""


class Severity(StrEnum):
    """What a finding means for the rollout."""

    BLOCKS = "Blocks"
    """The node will not be drained unless a person changes something."""
    DELAYS = "Delays"
    """The drain waits for something that may come by itself."""
    NOTE = "Note"
    """It goes on, at a price worth knowing."""


class Reason(StrEnum):
    """What was found, beside the drain library's own reasons."""

    MULTIPLE_BUDGETS = "MultipleBudgets"
    BUDGET_NEVER_ALLOWS = "BudgetNeverAllows"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    BUDGET_BYPASSED = "BudgetBypassed"
    STUCK_TERMINATING = "StuckTerminating"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    NODE_NOT_FOUND = "NodeNotFound"
    NO_NODES_MATCHED = "NoNodesMatched"
    INVALID_SPEC = "InvalidSpec"


class Finding(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Something that a person should know before the rollout begins."""

    severity: Severity
    reason: str
    message: str
    pod: str = ""
    budgets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Case:
    """A pod with a budget in its way."""

    planned: PlannedPod
    budgets: tuple[Budget, ...]

    def report(self, severity: Severity, reason: Reason, message: str) -> Finding:
        return Finding(
            severity=severity,
            reason=reason,
            message=message,
            pod=self.planned.name,
            budgets=tuple(f"{b.metadata.namespace}/{b.metadata.name}" for b in self.budgets),
        )


def find(
    plan: DrainPlan,
    rules: Rules,
    budgets: Mapping[str, Sequence[Budget]],
    terminating: frozenset[str],
    now: datetime,
) -> Iterator[Finding]:
    """Yield what is to be said of the pods of a node, what blocks first.

    Args:
        plan: The node's pods, classified.
        rules: How the node is to be emptied.
        budgets: All budgets, by namespace.
        terminating: Namespaces that are being deleted: nothing can be evicted there.
        now: The present time.
    """
    found = [
        *(_verdict(planned, Severity.BLOCKS) for planned in plan.refuse),
        *(f for planned in plan.evict for f in _about(planned, rules, budgets, terminating)),
        *(_stuck(planned) for planned in plan.wait if _is_stuck(planned.pod, now)),
    ]
    rank = list(Severity)
    yield from sorted(found, key=lambda finding: (rank.index(finding.severity), finding.pod))


def _verdict(planned: PlannedPod, severity: Severity) -> Finding:
    finding = planned.finding
    return Finding(
        severity=severity, reason=finding.reason, message=finding.message, pod=planned.name
    )


def _about(
    planned: PlannedPod,
    rules: Rules,
    budgets: Mapping[str, Sequence[Budget]],
    terminating: frozenset[str],
) -> Iterable[Finding]:
    namespace = planned.pod.metadata.namespace
    if planned.finding.action is Action.EVICT and planned.finding.reason in _LOSSES:
        yield _verdict(planned, Severity.NOTE)
    if namespace in terminating:
        yield _Case(planned, ()).report(
            Severity.DELAYS, Reason.NAMESPACE_TERMINATING, "waits for the end of its namespace"
        )
        return
    if not rules.options.disable_eviction:
        case = _Case(planned, budgets_of(planned.pod, budgets.get(namespace, ())))
        yield from _held_up(case, rules)


def _held_up(case: _Case, rules: Rules) -> Iterable[Finding]:
    refusal = _refusal(case)
    if refusal is None:
        return
    stage = rules.ladder.upcoming(case.planned.pod, _BEFORE_ALL)
    if stage is not None and refusal.severity is Severity.BLOCKS:
        yield case.report(
            Severity.NOTE,
            Reason.BUDGET_BYPASSED,
            f"{refusal.message}; stage {stage.number} deletes it {stage.after:g} s after the "
            "first eviction",
        )
    else:
        yield refusal


def _refusal(case: _Case) -> Finding | None:
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
            Reason.MULTIPLE_BUDGETS,
            "the server evicts no pod that several budgets select; let only one select it",
        )
    budget = budgets[0]
    if _lets_unready_go(budget, pod) or budget.allows_one:
        return None
    status = budget.status
    if budget.can_never_allow:
        return case.report(
            Severity.BLOCKS,
            Reason.BUDGET_NEVER_ALLOWS,
            f"the budget wants {status.desired_healthy} of {status.expected_pods} pods; let it "
            "allow one disruption, or add a replica",
        )
    return case.report(
        Severity.DELAYS,
        Reason.BUDGET_EXHAUSTED,
        f"{status.current_healthy} pods are healthy and the budget wants {status.desired_healthy}",
    )


def _lets_unready_go(budget: Budget, pod: Pod) -> bool:
    if pod.is_ready:
        return False
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    status = budget.status
    return 0 < status.desired_healthy <= status.current_healthy


def _is_stuck(pod: Pod, now: datetime) -> bool:
    overdue = pod.overdue(now)
    return overdue is not None and overdue >= STUCK_AFTER


def _stuck(planned: PlannedPod) -> Finding:
    return _Case(planned, ()).report(
        Severity.DELAYS,
        Reason.STUCK_TERMINATING,
        "its grace period is over: its kubelet does not confirm the end, or a finalizer holds it",
    )
