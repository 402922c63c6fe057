"""Which pods are evicted next, and when the next request is due."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from tests.clocks import ManualClock

from navarchos.drain import DrainPlan, EvictionOutcome, EvictionResult, PlannedPod, PodAction
from navarchos.meta import format_time
from navarchos.operator.api.v1alpha1 import (
    DrainSpec,
    EscalationAction,
    EscalationStage,
    TimeoutPolicy,
)
from navarchos.operator.drains.batch import (
    TERMINATING_TOO_LONG_AFTER,
    Batch,
    EscalationPolicy,
    EvictionAttempt,
    RemovalMethod,
    eligible_pods,
    next_batch,
)
from navarchos.operator.drains.memory import DrainMemory
from navarchos.operator.drains.settings import parse_escalation

PlanPod = Callable[..., PlannedPod]
BLOCKED = EvictionResult(EvictionOutcome.BLOCKED_BY_BUDGET, "no", "web")


def tried(due_at: float, result: EvictionResult = BLOCKED, stage: int = 0) -> EvictionAttempt:
    return EvictionAttempt(result, due_at, failures=1, budgets=("default/web",), stage=stage)


def delete_after(seconds: int, action: EscalationAction = EscalationAction.DELETE) -> DrainSpec:
    return DrainSpec(escalation=(EscalationStage(after_seconds=seconds, action=action),))


def batch_of(
    pods: list[PlannedPod],
    attempts: dict[str, EvictionAttempt] | None = None,
    escalation: EscalationPolicy | None = None,
    *,
    elapsed: float = 0,
    monotonic: float = 0,
    limit: int = 9,
) -> Batch:
    return next_batch(
        pods,
        attempts or {},
        escalation or EscalationPolicy(),
        elapsed=elapsed,
        monotonic=monotonic,
        limit=limit,
    )


def methods(batch: Batch) -> list[RemovalMethod]:
    return [request.method(disable_eviction=False) for request in batch.requests]


@pytest.mark.rule("OP-40")
def test_new_pods_are_evicted_at_once_up_to_the_limit(plan_pod: PlanPod) -> None:
    batch = batch_of([plan_pod(f"p{n:02}") for n in range(10)], limit=4)
    assert [r.planned.name for r in batch.requests] == [f"default/p0{n}" for n in range(4)]
    assert set(methods(batch)) == {RemovalMethod.EVICT}
    assert batch.next_in == 0.0


@pytest.mark.rule("OP-43")
def test_a_refused_pod_is_retried_when_its_own_delay_has_passed(plan_pod: PlanPod) -> None:
    attempts = {"uid-a": tried(105.0), "uid-b": tried(99.0)}
    batch = batch_of([plan_pod("a"), plan_pod("b")], attempts, monotonic=100)
    assert [r.planned.name for r in batch.requests] == ["default/b"]
    assert batch.next_in == 5.0


def test_without_pods_no_request_is_due() -> None:
    assert batch_of([]) == Batch((), None)


@pytest.mark.rule("OP-46")
def test_a_stage_deletes_a_refused_pod_as_soon_as_its_time_has_come(plan_pod: PlanPod) -> None:
    escalation = parse_escalation(delete_after(60))
    pods, attempts = [plan_pod("a")], {"uid-a": tried(130.0)}
    early = batch_of(pods, attempts, escalation, elapsed=50, monotonic=100)
    assert early == Batch((), 10.0)
    batch = batch_of(pods, attempts, escalation, elapsed=60, monotonic=110)
    (request,) = batch.requests
    assert methods(batch) == [RemovalMethod.DELETE]
    assert request.stage is not None
    assert request.stage.number == 1


@pytest.mark.rule("OP-46")
def test_a_deletion_that_failed_is_retried_like_an_eviction(plan_pod: PlanPod) -> None:
    escalation = parse_escalation(delete_after(60))
    denied = EvictionResult(EvictionOutcome.WEBHOOK_DENIED, "no")
    attempts = {"uid-a": tried(130.0, denied, stage=1)}
    early = batch_of([plan_pod("a")], attempts, escalation, elapsed=70, monotonic=110)
    assert early == Batch((), 20.0)
    later = batch_of([plan_pod("a")], attempts, escalation, elapsed=90, monotonic=130)
    assert methods(later) == [RemovalMethod.DELETE]


@pytest.mark.rule("OP-46")
def test_a_pod_is_evicted_once_before_any_stage_deletes_it(plan_pod: PlanPod) -> None:
    batch = batch_of([plan_pod("a")], {}, parse_escalation(delete_after(60)), elapsed=600)
    assert methods(batch) == [RemovalMethod.EVICT]


@pytest.mark.rule("OP-46")
@pytest.mark.parametrize("action", EscalationAction)
def test_every_action_of_a_stage_removes_a_pod_that_is_not_ready(
    plan_pod: PlanPod, action: EscalationAction
) -> None:
    escalation = parse_escalation(delete_after(60, action))
    batch = batch_of([plan_pod("a", ready=False)], {"uid-a": tried(0)}, escalation, elapsed=60)
    assert methods(batch) == [RemovalMethod.DELETE]
    assert [request.stage.verb for request in batch.requests if request.stage] == ["deletes"]


@pytest.mark.rule("OP-46")
@pytest.mark.parametrize(
    ("outcome", "escalates"),
    [
        (EvictionOutcome.BLOCKED_BY_BUDGET, True),
        (EvictionOutcome.MULTIPLE_BUDGETS, True),
        (EvictionOutcome.IN_PROGRESS, True),
        (EvictionOutcome.WEBHOOK_DENIED, True),
        (EvictionOutcome.REFUSED, True),
        (EvictionOutcome.FORBIDDEN, False),
        (EvictionOutcome.NAMESPACE_TERMINATING, False),
        (EvictionOutcome.RETRY, False),
        (EvictionOutcome.WEBHOOK_FAILED, False),
        (EvictionOutcome.EVICTED, False),
    ],
)
def test_a_stage_acts_only_on_refusals_that_a_deletion_overcomes(
    plan_pod: PlanPod, outcome: EvictionOutcome, escalates: bool
) -> None:
    attempts = {"uid-a": tried(0, EvictionResult(outcome, "no"))}
    batch = batch_of([plan_pod("a")], attempts, parse_escalation(delete_after(60)), elapsed=60)
    (request,) = batch.requests
    assert (request.stage is not None) is escalates


@pytest.mark.rule("OP-46")
def test_a_stage_applies_only_to_the_pods_that_it_names(plan_pod: PlanPod) -> None:
    stage = EscalationStage(
        after_seconds=10, action=EscalationAction.DELETE_UNHEALTHY, namespaces=("dev",)
    )
    escalation = parse_escalation(DrainSpec(escalation=(stage,)))
    for namespace, ready, applies in [
        ("dev", False, True),
        ("dev", True, False),
        ("prod", False, False),
    ]:
        pod = plan_pod("a", namespace, ready=ready).pod
        assert (escalation.due(pod, 10) is not None) is applies
        assert (escalation.upcoming(pod, 0) is not None) is applies


@pytest.mark.rule("OP-46")
def test_a_drain_with_on_timeout_hold_bypasses_no_budget_after_its_timeout(
    plan_pod: PlanPod,
) -> None:
    stages = delete_after(60).escalation + delete_after(200).escalation
    holding = DrainSpec(timeout_seconds=100, on_timeout=TimeoutPolicy.HOLD, escalation=stages)
    escalation, pod = parse_escalation(holding), plan_pod("a").pod
    assert escalation.due(pod, 99) is not None
    assert escalation.due(pod, 100) is None
    assert escalation.due(pod, 500) is None
    assert escalation.upcoming(pod, 60) is None


# The memory of attempts


@pytest.fixture
def clock(now: datetime) -> ManualClock:
    return ManualClock(now)


@pytest.mark.rule("OP-40")
def test_a_released_budget_makes_as_many_pods_due_as_it_allows(clock: ManualClock) -> None:
    memory, start = DrainMemory(clock), clock.monotonic()
    later = start + 90
    three = {"u1": tried(later), "u2": tried(later), "u3": tried(later)}
    memory.record("d1", three, since=memory.version())
    other = {"u4": EvictionAttempt(EvictionResult(EvictionOutcome.RETRY), later)}
    memory.record("d2", other, since=memory.version())
    clock.advance(10)
    assert memory.release("default/web", pods=2) == {"d1"}
    due = [attempt.due_at - start for attempt in memory.of("d1").attempts.values()]
    assert due == [10.0, 10.0, 90.0]
    assert memory.release("default/other") == frozenset()
    memory.keep("d1", {"u3"})
    assert list(memory.of("d1").attempts) == ["u3"]
    memory.forget("d1")
    assert memory.of("d1").attempts == {}


@pytest.mark.rule("OP-40")
def test_a_release_between_the_refusal_and_its_record_is_not_lost(clock: ManualClock) -> None:
    memory = DrainMemory(clock)
    later = clock.monotonic() + 90
    before = memory.version()
    memory.release("default/web")
    clock.advance(1)
    memory.record("d1", {"u1": tried(later)}, since=before)
    assert memory.of("d1").attempts["u1"].due_at == clock.monotonic()
    memory.record("d1", {"u1": tried(later)}, since=memory.version())
    assert memory.of("d1").attempts["u1"].due_at == later


# Order: ordinary pods first, system-critical pods after them


def plan_of(*evict: PlannedPod, wait: tuple[PlannedPod, ...] = ()) -> DrainPlan:
    return DrainPlan(evict=evict, wait=wait)


def names(pods: tuple[PlannedPod, ...]) -> list[str]:
    return [planned.name.partition("/")[2] for planned in pods]


@pytest.mark.rule("OP-40")
def test_system_critical_pods_are_evicted_after_all_others_have_left(
    plan_pod: PlanPod, now: datetime
) -> None:
    web, dns = plan_pod("web"), plan_pod("dns", critical=True)
    gone = EvictionResult(EvictionOutcome.EVICTED)
    leaving = plan_pod("web", action=PodAction.WAIT, terminating_at=format_time(now))
    assert names(eligible_pods(plan_of(web, dns), {}, now)) == ["web"]
    unseen = {"uid-web": tried(9.0, gone)}  # evicted, which the watch does not show yet
    assert names(eligible_pods(plan_of(web, dns), unseen, now)) == ["web"]
    assert names(eligible_pods(plan_of(dns, wait=(leaving,)), {}, now)) == []
    assert names(eligible_pods(plan_of(dns), {}, now)) == ["dns"]


@pytest.mark.rule("OP-40")
@pytest.mark.parametrize("problem", ["refused", "terminates too long"])
def test_a_pod_that_does_not_leave_delays_no_system_critical_pod(
    plan_pod: PlanPod, now: datetime, problem: str
) -> None:
    dns = plan_pod("dns", critical=True)
    if problem == "refused":
        plan, attempts = plan_of(plan_pod("web"), dns), {"uid-web": tried(9.0)}
    else:
        long_ago = format_time(now - timedelta(seconds=TERMINATING_TOO_LONG_AFTER))
        overdue = plan_pod("web", action=PodAction.WAIT, terminating_at=long_ago)
        plan, attempts = plan_of(dns, wait=(overdue,)), {}
    assert "dns" in names(eligible_pods(plan, attempts, now))


@pytest.mark.rule("OP-40")
def test_pods_of_one_group_do_not_wait_for_each_other(plan_pod: PlanPod, now: datetime) -> None:
    pods = [plan_pod(f"p{n}", critical=True) for n in range(3)]
    leaving = plan_pod("q", critical=True, action=PodAction.WAIT, terminating_at=format_time(now))
    assert names(eligible_pods(plan_of(*pods, wait=(leaving,)), {}, now)) == ["p0", "p1", "p2"]
