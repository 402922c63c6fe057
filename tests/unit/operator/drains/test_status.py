"""The status as a function of what a reconcile observes."""

import dataclasses
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.drains.conftest import observation, planned

from navarchos.drain import DrainPlan, PlannedPod, PodAction
from navarchos.operator.api.v1alpha1 import (
    NodeDrainStatus,
)
from navarchos.operator.drains import status as statuses
from navarchos.operator.drains.decide import Report
from navarchos.operator.nodes import Node
from navarchos.operator.reasons import Reason
from navarchos.runtime.conditions import find_condition

PlanPod = Callable[..., PlannedPod]


def first_plan(plan_pod: PlanPod, now: datetime) -> NodeDrainStatus:
    plan = DrainPlan(
        evict=(plan_pod("b"), plan_pod("a", owner="db")),
        ignore=(plan_pod("agent", action=PodAction.IGNORE),),
    )
    return statuses.with_pods(NodeDrainStatus(), plan, now=now)


def test_the_first_plan_records_the_pods_of_the_node(plan_pod: PlanPod, now: datetime) -> None:
    status = first_plan(plan_pod, now)
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
    status = statuses.with_pods(NodeDrainStatus(), both, now=now)
    assert (status.node_pods, status.total) == (("one/db-0", "two/db-0"), 2)
    left = statuses.with_pods(status, DrainPlan(evict=(in_namespace("two"),)), now=now)
    assert left.evicted_pods == ("one/db-0",)
    late = statuses.timed_out(left, DrainPlan(evict=(in_namespace("two"),)), 5, now=now)
    assert [note.name for note in late.failed_pods] == ["two/db-0"]


def test_evicted_pods_are_derived_and_not_counted(plan_pod: PlanPod, now: datetime) -> None:
    status = first_plan(plan_pod, now)
    plan = DrainPlan(wait=(plan_pod("a", action=PodAction.WAIT),))
    moved = statuses.with_pods(status, plan, now=now + timedelta(seconds=5))
    assert moved.evicted_pods == ("default/a", "default/b")
    assert (moved.total, moved.evicted, moved.remaining) == (2, 2, 1)
    assert moved.start_timestamp == now
    assert statuses.with_pods(moved, plan, now=now + timedelta(seconds=9)) == moved


@pytest.mark.rule("OP-44")
def test_pods_that_arrive_late_are_recorded_before_they_are_evicted(
    plan_pod: PlanPod, now: datetime
) -> None:
    status = first_plan(plan_pod, now)
    late = statuses.with_pods(status, DrainPlan(evict=(plan_pod("late", owner="x"),)), now=now)
    assert late.node_pods == (*status.node_pods, "default/late")
    arrived = DrainPlan(evict=(plan_pod("late", owner="x"),))
    assert observation(status, now, plan=arrived).must_store_first
    assert not observation(late, now, plan=arrived).must_store_first
    assert (late.total, late.evicted, late.remaining) == (3, 2, 1)


@given(
    groupings=st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(list(PodAction))), max_size=6
    )
)
def test_counts_always_add_up(
    plan_pod: PlanPod, now: datetime, groupings: list[dict[str, PodAction]]
) -> None:
    status = NodeDrainStatus()
    for grouping in groupings:
        groups = {
            action: tuple(plan_pod(n, action=a) for n, a in sorted(grouping.items()) if a is action)
            for action in PodAction
        }
        plan = DrainPlan(
            groups[PodAction.EVICT],
            groups[PodAction.WAIT],
            groups[PodAction.IGNORE],
            groups[PodAction.REFUSE],
        )
        before, status = status, statuses.with_pods(status, plan, now=now)
        assert set(before.node_pods) <= set(status.node_pods)
        assert len(set(status.node_pods)) == len(status.node_pods)
        assert status.total + status.ignored == len(status.node_pods)
        assert status.evicted == len(status.evicted_pods) <= status.total
        assert statuses.with_pods(status, plan, now=now) == status


def test_the_time_of_a_pause_does_not_count_towards_timeouts(
    plan_pod: PlanPod, now: datetime
) -> None:
    status = statuses.paused(first_plan(plan_pod, now), now=now + timedelta(seconds=10))
    assert statuses.paused(status, now=now + timedelta(seconds=60)) == status
    later = observation(status, now + timedelta(seconds=110))
    resumed = statuses.compute_status(later, Report.CORDON)
    assert resumed.start_timestamp == now + timedelta(seconds=100)
    assert later.elapsed == 10
    much_later = observation(resumed, now + timedelta(seconds=500))
    assert statuses.compute_status(much_later, Report.CORDON) == resumed
    assert not much_later.must_store_first
    condition = find_condition(resumed.conditions, "Paused")
    assert condition is not None
    assert condition.status == "False"


def test_a_drain_that_was_never_paused_has_no_condition_about_it(now: datetime) -> None:
    empty = NodeDrainStatus()
    assert statuses.compute_status(observation(empty, now), Report.CORDON) == empty


@pytest.mark.parametrize("report", Report)
def test_every_report_changes_the_status(now: datetime, report: Report) -> None:
    """Each report computes a status that differs from the stored one."""
    seen = observation(NodeDrainStatus(), now, plan=DrainPlan())
    if report is Report.CORDON:
        return
    if report is Report.PODS_REFUSED:
        plan = DrainPlan(refuse=(planned("bare", action=PodAction.REFUSE),))
        seen = observation(NodeDrainStatus(), now, plan=plan)
    if report in {Report.PREPARING, Report.PREPARED, Report.PREPARE_FAILED}:
        seen = observation(NodeDrainStatus(), now, plan=DrainPlan(), prepare={"hooks": ["f5"]})
        seen = dataclasses.replace(seen, node=Node())
    assert statuses.compute_status(seen, report, "message") != seen.drain.status


@pytest.mark.rule("OP-46")
def test_a_timeout_keeps_its_blockers_and_names_the_remaining_pods(
    plan_pod: PlanPod, now: datetime
) -> None:
    status = first_plan(plan_pod, now)
    plan = DrainPlan(evict=(plan_pod("b"),), wait=(plan_pod("a", action=PodAction.WAIT),))
    ended = statuses.timed_out(status, plan, 900.0, now=now)
    assert (ended.phase, ended.reason) == ("Failed", "Timeout")
    assert [note.name for note in ended.failed_pods] == ["default/a", "default/b"]
    assert ended.completion_timestamp is None


def test_a_completed_drain_has_no_remaining_and_no_blocked_pods(
    plan_pod: PlanPod, now: datetime
) -> None:
    status = statuses.with_pods(first_plan(plan_pod, now), DrainPlan(), now=now)
    ended = statuses.completed(status, Reason.NODE_DRAINED, "done", now=now)
    assert (ended.phase, ended.completion_timestamp, ended.remaining) == ("Completed", now, 0)
    assert ended.is_final
    condition = find_condition(ended.conditions, "NodeDrained")
    assert condition is not None
    assert condition.status == "True"
