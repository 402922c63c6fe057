"""What the status says about blocked pods."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import pytest

from navarchos.drain import (
    Budget,
    DrainPlan,
    EvictionOutcome,
    EvictionResult,
    PlannedPod,
    PodAction,
)
from navarchos.operator.api.v1alpha1 import (
    Blocker,
    DrainSpec,
    EscalationAction,
    EscalationStage,
    NodeDrainStatus,
)
from navarchos.operator.drains.batch import EscalationPolicy, EvictionAttempt
from navarchos.operator.drains.memory import budget_names
from navarchos.operator.drains.settings import parse_escalation
from navarchos.operator.drains.status import (
    MAX_BLOCKERS,
    BlockerExplainer,
    find_blockers,
    refused,
    with_blockers,
)

PlanPod = Callable[..., PlannedPod]


def explainer(
    now: datetime,
    attempts: dict[str, EvictionAttempt],
    escalation: EscalationPolicy | None = None,
) -> BlockerExplainer:
    return BlockerExplainer(attempts, escalation or EscalationPolicy(), now, now)


def refusal(
    answer: EvictionOutcome = EvictionOutcome.BLOCKED_BY_BUDGET, *budgets: str
) -> EvictionAttempt:
    return EvictionAttempt(EvictionResult(answer, "needs 3 and has 3"), 0.0, 1, budgets)


@pytest.mark.rule("OP-47")
def test_blockers_name_pod_reason_and_budget_in_a_stable_order(
    plan_pod: PlanPod, now: datetime
) -> None:
    evict = (plan_pod("b", "x"), plan_pod("a", "x"), plan_pod("c", "a"), plan_pod("new", "a"))
    attempts = {f"uid-{n}": refusal(EvictionOutcome.BLOCKED_BY_BUDGET, "x/web") for n in "abc"}
    blockers = find_blockers(DrainPlan(evict=evict), explainer(now, attempts))
    assert [(b.namespace, b.pod) for b in blockers] == [("a", "c"), ("x", "a"), ("x", "b")]
    assert {(b.reason, b.budget, b.uid) for b in blockers[1:]} == {
        ("BlockedByBudget", "x/web", "uid-a"),
        ("BlockedByBudget", "x/web", "uid-b"),
    }


def test_a_pod_that_was_evicted_is_not_blocked(plan_pod: PlanPod, now: datetime) -> None:
    attempts = {"uid-a": EvictionAttempt(EvictionResult(EvictionOutcome.EVICTED), 5.0)}
    assert find_blockers(DrainPlan(evict=(plan_pod("a"),)), explainer(now, attempts)) == ()


@pytest.mark.rule("OP-47")
def test_the_same_facts_make_the_same_status_and_keep_the_time_first_seen(
    plan_pod: PlanPod, now: datetime
) -> None:
    plan = DrainPlan(evict=(plan_pod("a"),))
    facts = explainer(now, {"uid-a": refusal()})
    first = with_blockers(NodeDrainStatus(), find_blockers(plan, facts), now=now)
    later = with_blockers(first, find_blockers(plan, facts), now=now + timedelta(seconds=30))
    assert later == first
    assert first.blockers[0].first_seen == now


@pytest.mark.rule("OP-47")
def test_at_most_fifty_are_listed_and_all_are_counted(plan_pod: PlanPod, now: datetime) -> None:
    pods = tuple(plan_pod(f"p{n:03}") for n in range(70))
    attempts = {pod.uid: refusal() for pod in pods}
    blockers = find_blockers(DrainPlan(evict=pods), explainer(now, attempts))
    status = with_blockers(NodeDrainStatus(), blockers, now=now)
    assert (len(status.blockers), status.blocked) == (MAX_BLOCKERS, 70)


@pytest.mark.rule("OP-46")
def test_a_blocked_pod_names_the_next_stage_and_its_time(plan_pod: PlanPod, now: datetime) -> None:
    stage = EscalationStage(after_seconds=600, action=EscalationAction.DELETE)
    escalation = parse_escalation(DrainSpec(escalation=(stage,)))
    facts = explainer(now, {"uid-a": refusal()}, escalation)
    (blocker,) = find_blockers(DrainPlan(evict=(plan_pod("a"),)), facts)
    assert "stage 1 deletes the pod at 2026-01-01T12:10:00Z" in blocker.next_action


@pytest.mark.rule("OP-48")
def test_a_pod_that_is_not_ready_names_the_policy_that_would_allow_its_eviction(
    plan_pod: PlanPod, now: datetime
) -> None:
    pod = plan_pod("a", ready=False)
    attempt = replace(refusal(), requires_ready=True)
    facts = explainer(now, {"uid-a": attempt})
    (blocker,) = find_blockers(DrainPlan(evict=(pod,)), facts)
    assert "AlwaysAllow" in blocker.message


def test_a_pod_that_terminates_for_too_long_is_blocked_after_a_minute(
    plan_pod: PlanPod, now: datetime
) -> None:
    late = plan_pod("late", action=PodAction.WAIT, terminating_at="2026-01-01T11:58:00Z")
    soon = plan_pod("soon", action=PodAction.WAIT, terminating_at="2026-01-01T11:59:30Z")
    (blocker,) = find_blockers(DrainPlan(wait=(late, soon)), explainer(now, {}))
    assert (blocker.pod, blocker.reason) == ("late", "StuckTerminating")


def test_the_budgets_of_a_pod_include_the_one_that_the_server_named(
    plan_pod: PlanPod,
) -> None:
    budget = msgspec.convert({"metadata": {"name": "a", "namespace": "default"}}, Budget)
    pod = plan_pod("p").pod
    blocked = EvictionResult(EvictionOutcome.BLOCKED_BY_BUDGET, "no", "b")
    assert budget_names(pod, blocked, (budget,)) == ("default/a", "default/b")
    assert budget_names(pod, EvictionResult(EvictionOutcome.WEBHOOK_DENIED), (budget,)) == ()


@pytest.mark.rule("OP-42")
def test_a_refused_drain_lists_each_pod_with_the_fix(plan_pod: PlanPod, now: datetime) -> None:
    plan = DrainPlan(
        evict=(plan_pod("a"),),
        refuse=(plan_pod("z", action=PodAction.REFUSE), plan_pod("y", action=PodAction.REFUSE)),
    )
    status = refused(NodeDrainStatus(), plan, now=now)
    assert (status.phase, status.reason) == ("Failed", "PodsRefused")
    assert [note.name for note in status.failed_pods] == ["default/y", "default/z"]
    assert [blocker.pod for blocker in status.blockers] == ["y", "z"]
    assert "a message" in status.message
    assert status.start_timestamp is None


def test_a_new_blocked_pod_is_first_seen_now(now: datetime) -> None:
    status = with_blockers(NodeDrainStatus(), [Blocker(namespace="a", pod="b", uid="c")], now=now)
    assert status.blockers[0].first_seen == now
