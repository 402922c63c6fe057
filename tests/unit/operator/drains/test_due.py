"""Who is asked to go in this pass, and when the next one is due."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from navarchos.drain import DrainPlan, EvictionOutcome, EvictionResult, PlannedPod, PodAction
from navarchos.meta import format_time
from navarchos.operator.api.v1alpha1 import DrainSpec, EscalationAction, EscalationStage
from navarchos.operator.api.v1alpha1 import TimeoutPolicy as On
from navarchos.operator.drains.attempts import Attempt, Attempts
from navarchos.operator.drains.blockers import STUCK_AFTER
from navarchos.operator.drains.due import How, due_requests, whose_turn
from navarchos.operator.drains.escalation import Ladder, ladder_of

PlanPod = Callable[..., PlannedPod]
BLOCKED = EvictionResult(EvictionOutcome.BLOCKED_BY_BUDGET, "no", "web")


def tried(due_at: float, result: EvictionResult = BLOCKED, stage: int = 0) -> Attempt:
    return Attempt(result, due_at, failures=1, budgets=("default/web",), stage=stage)


def delete_after(seconds: int, action: EscalationAction = EscalationAction.DELETE) -> DrainSpec:
    return DrainSpec(escalation=(EscalationStage(after_seconds=seconds, action=action),))


@pytest.mark.rule("OP-40")
def test_pods_that_were_never_asked_are_due_at_once_up_to_the_limit(plan_pod: PlanPod) -> None:
    pods = [plan_pod(f"p{n:02}") for n in range(10)]
    due = due_requests(pods, {}, Ladder(), delete=False, elapsed=0, monotonic=0, limit=4)
    assert [r.planned.name for r in due.requests] == [f"default/p0{n}" for n in range(4)]
    assert {r.how for r in due.requests} == {How.EVICT}
    assert due.next_in == 0.0


@pytest.mark.rule("OP-43")
def test_a_refused_pod_waits_for_its_own_instant(plan_pod: PlanPod) -> None:
    pods = [plan_pod("a"), plan_pod("b")]
    attempts = {"uid-a": tried(105.0), "uid-b": tried(99.0)}
    due = due_requests(pods, attempts, Ladder(), delete=False, elapsed=0, monotonic=100, limit=9)
    assert [r.planned.name for r in due.requests] == ["default/b"]
    assert due.next_in == 5.0


def test_nothing_to_ask_means_nothing_to_wait_for() -> None:
    due = due_requests([], {}, Ladder(), delete=False, elapsed=0, monotonic=0, limit=9)
    assert (due.requests, due.next_in) == ((), None)


@pytest.mark.rule("OP-46")
def test_a_stage_deletes_what_was_refused_as_soon_as_its_time_has_come(plan_pod: PlanPod) -> None:
    ladder = ladder_of(delete_after(60))
    pods, attempts = [plan_pod("a")], {"uid-a": tried(130.0)}
    early = due_requests(pods, attempts, ladder, delete=False, elapsed=50, monotonic=100, limit=9)
    assert (early.requests, early.next_in) == ((), 10.0)
    due = due_requests(pods, attempts, ladder, delete=False, elapsed=60, monotonic=110, limit=9)
    (request,) = due.requests
    assert request.how is How.DELETE
    assert request.stage is not None
    assert request.stage.number == 1


@pytest.mark.rule("OP-46")
def test_a_stage_that_failed_waits_like_any_other_request(plan_pod: PlanPod) -> None:
    ladder = ladder_of(delete_after(60))
    attempts = {
        "uid-a": tried(130.0, EvictionResult(EvictionOutcome.WEBHOOK_DENIED, "no"), stage=1)
    }
    due = due_requests(
        [plan_pod("a")], attempts, ladder, delete=False, elapsed=70, monotonic=110, limit=9
    )
    assert (due.requests, due.next_in) == ((), 20.0)
    later = due_requests(
        [plan_pod("a")], attempts, ladder, delete=False, elapsed=90, monotonic=130, limit=9
    )
    assert [r.how for r in later.requests] == [How.DELETE]


@pytest.mark.rule("OP-46")
def test_a_pod_is_evicted_once_before_any_stage_deletes_it(plan_pod: PlanPod) -> None:
    due = due_requests(
        [plan_pod("a")],
        {},
        ladder_of(delete_after(60)),
        delete=False,
        elapsed=600,
        monotonic=0,
        limit=9,
    )
    assert [r.how for r in due.requests] == [How.EVICT]


@pytest.mark.rule("OP-46")
@pytest.mark.parametrize(
    ("answer", "escalates"),
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
def test_only_what_a_deletion_can_cure_is_escalated(
    plan_pod: PlanPod, answer: EvictionOutcome, escalates: bool
) -> None:
    attempt = tried(0, EvictionResult(answer, "no"))
    stage = ladder_of(delete_after(60)).due(plan_pod("a").pod, attempt, 60)
    assert (stage is not None) is escalates


@pytest.mark.rule("OP-46")
def test_stages_take_only_the_pods_they_name(plan_pod: PlanPod) -> None:
    stage = EscalationStage(
        after_seconds=10, action=EscalationAction.DELETE_UNHEALTHY, namespaces=("dev",)
    )
    ladder = ladder_of(DrainSpec(escalation=(stage,)))
    for namespace, ready, taken in [
        ("dev", False, True),
        ("dev", True, False),
        ("prod", False, False),
    ]:
        pod = plan_pod("a", namespace, ready=ready).pod
        assert (ladder.due(pod, tried(0), 10) is not None) is taken
        assert (ladder.upcoming(pod, 0) is not None) is taken


@pytest.mark.rule("OP-46")
def test_a_drain_that_holds_never_deletes_past_a_budget_once_its_time_is_up(
    plan_pod: PlanPod,
) -> None:
    stages = delete_after(60).escalation + delete_after(200).escalation
    holding = DrainSpec(timeout_seconds=100, on_timeout=On.HOLD, escalation=stages)
    ladder, pod = ladder_of(holding), plan_pod("a").pod
    assert ladder.due(pod, tried(0), 99) is not None
    assert ladder.due(pod, tried(0), 100) is None
    assert ladder.due(pod, tried(0), 500) is None
    assert ladder.upcoming(pod, 60) is None


@pytest.mark.rule("OP-40")
def test_a_freed_budget_wakes_as_many_pods_as_it_allows() -> None:
    attempts = Attempts()
    three = {"u1": tried(90.0), "u2": tried(90.0), "u3": tried(90.0)}
    attempts.record("d1", three, since=attempts.moment(), at=5.0)
    other = {"u4": Attempt(EvictionResult(EvictionOutcome.RETRY), 90.0)}
    attempts.record("d2", other, since=attempts.moment(), at=5.0)
    assert attempts.wake("default/web", at=10.0, pods=2) == {"d1"}
    assert [attempt.due_at for attempt in attempts.of("d1").values()] == [10.0, 10.0, 90.0]
    assert attempts.wake("default/other", at=10.0) == frozenset()
    attempts.keep("d1", {"u3"})
    assert list(attempts.of("d1")) == ["u3"]
    attempts.forget("d1")
    assert attempts.of("d1") == {}


@pytest.mark.rule("OP-40")
def test_a_wake_up_between_the_refusal_and_its_record_is_not_lost() -> None:
    attempts = Attempts()
    before = attempts.moment()
    attempts.wake("default/web", at=10.0)
    attempts.record("d1", {"u1": tried(90.0)}, since=before, at=11.0)
    assert attempts.of("d1")["u1"].due_at == 11.0
    attempts.record("d1", {"u1": tried(90.0)}, since=attempts.moment(), at=12.0)
    assert attempts.of("d1")["u1"].due_at == 90.0


# Order: ordinary pods first, the cluster's own after them


def plan_of(*evict: PlannedPod, wait: tuple[PlannedPod, ...] = ()) -> DrainPlan:
    return DrainPlan(evict=evict, wait=wait)


def names(pods: tuple[PlannedPod, ...]) -> list[str]:
    return [planned.name.partition("/")[2] for planned in pods]


@pytest.mark.rule("OP-40")
def test_system_critical_pods_go_after_all_others_have_left(
    plan_pod: PlanPod, now: datetime
) -> None:
    web, dns = plan_pod("web"), plan_pod("dns", critical=True)
    gone = EvictionResult(EvictionOutcome.EVICTED)
    leaving = plan_pod("web", action=PodAction.WAIT, terminating_at=format_time(now))
    assert names(whose_turn(plan_of(web, dns), {}, now)) == ["web"]
    unseen = {"uid-web": tried(9.0, gone)}  # evicted, which the watch does not show yet
    assert names(whose_turn(plan_of(web, dns), unseen, now)) == ["web"]
    assert names(whose_turn(plan_of(dns, wait=(leaving,)), {}, now)) == []
    assert names(whose_turn(plan_of(dns), {}, now)) == ["dns"]


@pytest.mark.rule("OP-40")
@pytest.mark.parametrize("how", ["refused", "stuck"])
def test_a_pod_that_does_not_go_holds_up_no_system_critical_one(
    plan_pod: PlanPod, now: datetime, how: str
) -> None:
    dns = plan_pod("dns", critical=True)
    if how == "refused":
        plan, attempts = plan_of(plan_pod("web"), dns), {"uid-web": tried(9.0)}
    else:
        long_ago = format_time(now - timedelta(seconds=STUCK_AFTER))
        stuck = plan_pod("web", action=PodAction.WAIT, terminating_at=long_ago)
        plan, attempts = plan_of(dns, wait=(stuck,)), {}
    assert "dns" in names(whose_turn(plan, attempts, now))


@pytest.mark.rule("OP-40")
def test_pods_of_a_group_do_not_wait_for_one_another(plan_pod: PlanPod, now: datetime) -> None:
    pods = [plan_pod(f"p{n}", critical=True) for n in range(3)]
    leaving = plan_pod("q", critical=True, action=PodAction.WAIT, terminating_at=format_time(now))
    assert names(whose_turn(plan_of(*pods, wait=(leaving,)), {}, now)) == ["p0", "p1", "p2"]
