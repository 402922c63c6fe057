"""Status as a function of the facts."""

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from navarchos.drain import DrainPlan, PlannedPod, PodAction
from navarchos.operator.api.v1alpha1 import NodeDrainStatus
from navarchos.operator.drains import status as to
from navarchos.operator.drains.status import DrainReason
from navarchos.runtime.conditions import find_condition

PlanPod = Callable[..., PlannedPod]


def first_look(plan_pod: PlanPod, now: datetime) -> NodeDrainStatus:
    plan = DrainPlan(
        evict=(plan_pod("b"), plan_pod("a", owner="db")),
        ignore=(plan_pod("agent", action=PodAction.IGNORE),),
    )
    return to.recorded(NodeDrainStatus(), plan, now=now)


def test_the_first_look_records_what_is_on_the_node(plan_pod: PlanPod, now: datetime) -> None:
    status = first_look(plan_pod, now)
    assert status.phase == "Draining"
    assert status.start_timestamp == now
    assert status.node_pods == ("default/a", "default/agent", "default/b")
    assert [note.name for note in status.ignored_pods] == ["default/agent"]
    assert (status.total, status.evicted, status.ignored, status.remaining) == (2, 0, 1, 2)
    assert [owner.name for owner in status.evicted_owners] == ["web", "db"]


@pytest.mark.rule("N-17")
def test_pods_of_one_name_in_two_namespaces_are_two_pods(plan_pod: PlanPod, now: datetime) -> None:
    def in_namespace(namespace: str) -> PlannedPod:
        planned = plan_pod("db-0")
        meta = msgspec.structs.replace(planned.pod.metadata, namespace=namespace, uid=namespace)
        return msgspec.structs.replace(
            planned, pod=msgspec.structs.replace(planned.pod, metadata=meta)
        )

    both = DrainPlan(evict=(in_namespace("one"), in_namespace("two")))
    status = to.recorded(NodeDrainStatus(), both, now=now)
    assert (status.node_pods, status.total) == (("one/db-0", "two/db-0"), 2)
    left = to.recorded(status, DrainPlan(evict=(in_namespace("two"),)), now=now)
    assert left.evicted_pods == ("one/db-0",)
    late = to.timed_out(left, DrainPlan(evict=(in_namespace("two"),)), 5, now=now)
    assert [note.name for note in late.failed_pods] == ["two/db-0"]


def test_what_left_is_derived_and_not_counted(plan_pod: PlanPod, now: datetime) -> None:
    status = first_look(plan_pod, now)
    plan = DrainPlan(wait=(plan_pod("a", action=PodAction.WAIT),))
    moved = to.recorded(status, plan, now=now + timedelta(seconds=5))
    assert moved.evicted_pods == ("default/a", "default/b")
    assert (moved.total, moved.evicted, moved.remaining) == (2, 2, 1)
    assert moved.start_timestamp == now
    assert to.recorded(moved, plan, now=now + timedelta(seconds=9)) == moved


@pytest.mark.rule("OP-44")
def test_pods_that_arrive_late_are_recorded_before_they_are_evicted(
    plan_pod: PlanPod, now: datetime
) -> None:
    status = first_look(plan_pod, now)
    late = to.recorded(status, DrainPlan(evict=(plan_pod("late", owner="x"),)), now=now)
    assert late.node_pods == (*status.node_pods, "default/late")
    assert to.reveals(status, late)
    assert not to.reveals(late, to.recorded(late, DrainPlan(), now=now))
    assert (late.total, late.evicted, late.remaining) == (3, 2, 1)


@given(
    looks=st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(list(PodAction))), max_size=6
    )
)
def test_counts_always_add_up(
    plan_pod: PlanPod, now: datetime, looks: list[dict[str, PodAction]]
) -> None:
    status = NodeDrainStatus()
    for look in looks:
        groups = {
            action: tuple(plan_pod(n, action=a) for n, a in sorted(look.items()) if a is action)
            for action in PodAction
        }
        plan = DrainPlan(
            groups[PodAction.EVICT],
            groups[PodAction.WAIT],
            groups[PodAction.IGNORE],
            groups[PodAction.REFUSE],
        )
        before, status = status, to.recorded(status, plan, now=now)
        assert set(before.node_pods) <= set(status.node_pods)
        assert len(set(status.node_pods)) == len(status.node_pods)
        assert status.total + status.ignored == len(status.node_pods)
        assert status.evicted == len(status.evicted_pods) <= status.total
        assert to.recorded(status, plan, now=now) == status


def test_time_spent_paused_does_not_count(plan_pod: PlanPod, now: datetime) -> None:
    status = to.paused(first_look(plan_pod, now), now=now + timedelta(seconds=10))
    assert to.paused(status, now=now + timedelta(seconds=60)) == status
    resumed = to.resumed(status, now=now + timedelta(seconds=110))
    assert resumed.start_timestamp == now + timedelta(seconds=100)
    assert to.resumed(resumed, now=now + timedelta(seconds=500)) == resumed
    condition = find_condition(resumed.conditions, "Paused")
    assert condition is not None
    assert condition.status == "False"


def test_a_drain_that_was_never_paused_says_nothing_about_it(now: datetime) -> None:
    assert to.resumed(NodeDrainStatus(), now=now) == NodeDrainStatus()


@pytest.mark.rule("OP-46")
def test_a_timeout_keeps_its_blockers_and_names_the_pods_that_are_left(
    plan_pod: PlanPod, now: datetime
) -> None:
    status = first_look(plan_pod, now)
    plan = DrainPlan(evict=(plan_pod("b"),), wait=(plan_pod("a", action=PodAction.WAIT),))
    ended = to.timed_out(status, plan, 900.0, now=now)
    assert (ended.phase, ended.reason) == ("Failed", "Timeout")
    assert [note.name for note in ended.failed_pods] == ["default/a", "default/b"]
    assert ended.completion_timestamp is None


def test_a_completed_drain_is_done_with_everything(plan_pod: PlanPod, now: datetime) -> None:
    status = to.recorded(first_look(plan_pod, now), DrainPlan(), now=now)
    ended = to.completed(status, DrainReason.NODE_DRAINED, "done", now=now)
    assert (ended.phase, ended.completion_timestamp, ended.remaining) == ("Completed", now, 0)
    assert to.is_over(ended)
    condition = find_condition(ended.conditions, "NodeDrained")
    assert condition is not None
    assert condition.status == "True"
