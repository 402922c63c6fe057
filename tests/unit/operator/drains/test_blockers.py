"""What status says about the pods that stay."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

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
from navarchos.operator.drains import status as to
from navarchos.operator.drains.attempts import Attempt
from navarchos.operator.drains.blockers import MOST_BLOCKERS, Explainer, find_blockers
from navarchos.operator.drains.budgets import budget_names
from navarchos.operator.drains.escalation import Ladder, ladder_of

PlanPod = Callable[..., PlannedPod]


def explainer(now: datetime, attempts: dict[str, Attempt], **facts: Any) -> Explainer:
    return Explainer(
        **{
            "attempts": attempts,
            "ladder": Ladder(),
            "started_at": now,
            "elapsed": 0.0,
            "now": now,
            **facts,
        }
    )


def refused(answer: EvictionOutcome = EvictionOutcome.BLOCKED_BY_BUDGET, *budgets: str) -> Attempt:
    return Attempt(EvictionResult(answer, "needs 3 and has 3"), 0.0, 1, budgets)


@pytest.mark.rule("OP-47")
def test_blockers_name_pod_reason_and_budget_in_a_stable_order(
    plan_pod: PlanPod, now: datetime
) -> None:
    evict = (plan_pod("b", "x"), plan_pod("a", "x"), plan_pod("c", "a"), plan_pod("new", "a"))
    attempts = {f"uid-{n}": refused(EvictionOutcome.BLOCKED_BY_BUDGET, "x/web") for n in "abc"}
    blockers = find_blockers(DrainPlan(evict=evict), explainer(now, attempts))
    assert [(b.namespace, b.pod) for b in blockers] == [("a", "c"), ("x", "a"), ("x", "b")]
    assert {(b.reason, b.budget, b.uid) for b in blockers[1:]} == {
        ("BlockedByBudget", "x/web", "uid-a"),
        ("BlockedByBudget", "x/web", "uid-b"),
    }


def test_pods_on_their_way_block_nothing(plan_pod: PlanPod, now: datetime) -> None:
    attempts = {"uid-a": Attempt(EvictionResult(EvictionOutcome.EVICTED), 5.0)}
    assert find_blockers(DrainPlan(evict=(plan_pod("a"),)), explainer(now, attempts)) == ()


@pytest.mark.rule("OP-47")
def test_the_same_facts_make_the_same_status_and_keep_the_time_first_seen(
    plan_pod: PlanPod, now: datetime
) -> None:
    plan = DrainPlan(evict=(plan_pod("a"),))
    facts = explainer(now, {"uid-a": refused()})
    first = to.blocked(NodeDrainStatus(), find_blockers(plan, facts), now=now)
    later = to.blocked(first, find_blockers(plan, facts), now=now + timedelta(seconds=30))
    assert later == first
    assert first.blockers[0].first_seen == now


@pytest.mark.rule("OP-47")
def test_at_most_fifty_are_listed_and_all_are_counted(plan_pod: PlanPod, now: datetime) -> None:
    pods = tuple(plan_pod(f"p{n:03}") for n in range(70))
    attempts = {pod.uid: refused() for pod in pods}
    blockers = find_blockers(DrainPlan(evict=pods), explainer(now, attempts))
    status = to.blocked(NodeDrainStatus(), blockers, now=now)
    assert (len(status.blockers), status.blocked) == (MOST_BLOCKERS, 70)


@pytest.mark.rule("OP-46")
def test_the_next_stage_and_its_time_are_announced(plan_pod: PlanPod, now: datetime) -> None:
    stage = EscalationStage(after_seconds=600, action=EscalationAction.DELETE)
    ladder = ladder_of(DrainSpec(escalation=(stage,)))
    facts = explainer(now, {"uid-a": refused()}, ladder=ladder)
    (blocker,) = find_blockers(DrainPlan(evict=(plan_pod("a"),)), facts)
    assert "stage 1 deletes it at 2026-01-01T12:10:00Z" in blocker.next_action


@pytest.mark.rule("OP-48")
def test_a_pod_that_is_not_ready_is_told_which_policy_would_let_it_go(
    plan_pod: PlanPod, now: datetime
) -> None:
    pod = plan_pod("a", ready=False)
    attempt = replace(refused(), wants_ready=True)
    facts = explainer(now, {"uid-a": attempt})
    (blocker,) = find_blockers(DrainPlan(evict=(pod,)), facts)
    assert "AlwaysAllow" in blocker.message


def test_a_pod_that_does_not_end_in_time_is_a_blocker_after_a_minute(
    plan_pod: PlanPod, now: datetime
) -> None:
    late = plan_pod("late", action=PodAction.WAIT, terminating_at="2026-01-01T11:58:00Z")
    soon = plan_pod("soon", action=PodAction.WAIT, terminating_at="2026-01-01T11:59:30Z")
    (blocker,) = find_blockers(DrainPlan(wait=(late, soon)), explainer(now, {}))
    assert (blocker.pod, blocker.reason) == ("late", "StuckTerminating")


def test_budgets_are_those_that_cover_the_pod_and_the_one_the_server_named(
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
    status = to.refused(NodeDrainStatus(), plan, now=now)
    assert (status.phase, status.reason) == ("Failed", "PodsRefused")
    assert [note.name for note in status.failed_pods] == ["default/y", "default/z"]
    assert [blocker.pod for blocker in status.blockers] == ["y", "z"]
    assert "a message" in status.message
    assert status.start_timestamp is None


def test_blockers_without_a_past_begin_now(now: datetime) -> None:
    status = to.blocked(NodeDrainStatus(), [Blocker(namespace="a", pod="b", uid="c")], now=now)
    assert status.blockers[0].first_seen == now
