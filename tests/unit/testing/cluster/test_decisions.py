"""The decisions of the workload controllers."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from navarchos.testing.cluster.budgets import is_urgent
from navarchos.testing.cluster.controllers import (
    daemonsets,
    deployments,
    jobs,
    replicasets,
    statefulsets,
)
from navarchos.testing.cluster.controllers.jobs import JobBackoff, JobResult
from navarchos.testing.cluster.controllers.statefulsets import stateful_pod
from navarchos.testing.cluster.kinds import (
    BudgetStatus,
    DeploymentSpec,
    Job,
    Node,
    Pod,
    ReplicaSet,
    WorkloadStatus,
)
from navarchos.testing.cluster.pods import Owner, from_template, mirror_pod

MakePod = Callable[..., Pod]
MakeNode = Callable[..., Node]

OWNER = Owner("apps/v1", "ReplicaSet", "web", "uid-web")
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "web", "image": "web:1"}], "hostname": "old"},
}


def names(pods: tuple[Pod, ...]) -> list[str]:
    return [pod.metadata.name for pod in pods]


def test_a_terminating_or_finished_pod_is_replaced_at_once(make_pod: MakePod) -> None:
    pods = [make_pod("a"), make_pod("b", terminating=True), make_pod("c", phase="Failed")]
    assert replicasets.next_step(pods, 3) == replicasets.ReplicaStep(create=2)


def test_the_least_useful_pods_are_taken_away_first(make_pod: MakePod) -> None:
    pods = [
        make_pod("old", created="2026-01-01T00:00:00Z"),
        make_pod("young", created="2026-01-02T00:00:00Z"),
        make_pod("unready", ready=False),
        make_pod("unbound", node="", ready=False),
    ]
    assert names(replicasets.next_step(pods, 1).delete) == ["unbound", "unready", "young"]


def test_counts_are_of_active_pods(make_pod: MakePod) -> None:
    pods = [make_pod("a"), make_pod("b", ready=False), make_pod("c", terminating=True)]
    expected = WorkloadStatus(
        observed_generation=2, replicas=2, ready_replicas=1, available_replicas=1
    )
    assert replicasets.status_of(pods, 2) == expected


def test_a_replica_sets_template_is_its_deployments_but_for_the_hash() -> None:
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    made = replicasets.with_hash(spec, replicasets.template_hash(TEMPLATE))
    assert made["template"] != TEMPLATE
    assert made["selector"]["matchLabels"].keys() == {"app", replicasets.HASH_LABEL}
    assert replicasets.same_template(TEMPLATE, made["template"])
    other = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "hostname": "new"}}
    assert not replicasets.same_template(other, made["template"])


def test_a_pod_has_its_templates_fields_and_one_owner() -> None:
    pod = from_template(TEMPLATE, OWNER, "shop", labels={"x": "y"}, spec={"nodeName": "n"})
    assert pod["metadata"]["labels"] == {"app": "web", "x": "y"}
    assert pod["metadata"]["generateName"] == "web-"
    assert [o["uid"] for o in pod["metadata"]["ownerReferences"]] == ["uid-web"]
    assert pod["spec"] == {**TEMPLATE["spec"], "nodeName": "n"}
    assert TEMPLATE["metadata"] == {"labels": {"app": "web"}}, "the template is left alone"


def test_a_mirror_pod_says_that_it_is_one() -> None:
    pod = mirror_pod("node-1", "uid")
    assert "kubernetes.io/config.mirror" in pod["metadata"]["annotations"]
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert pod["spec"]["nodeName"] == "node-1"


def test_a_stateful_pod_comes_back_under_its_name_once_the_old_one_is_gone(
    make_pod: MakePod,
) -> None:
    going = [make_pod("db-0"), make_pod("db-1", terminating=True), make_pod("db-2")]
    assert statefulsets.next_step("db", going, 3) == statefulsets.StatefulSetStep()
    gone = [make_pod("db-0"), make_pod("db-2")]
    assert statefulsets.next_step("db", gone, 3) == statefulsets.StatefulSetStep(create=(1,))


def test_ordered_pods_wait_for_those_before_them(make_pod: MakePod) -> None:
    assert statefulsets.next_step("db", [], 3) == statefulsets.StatefulSetStep(create=(0,))
    starting = [make_pod("db-0", ready=False)]
    assert statefulsets.next_step("db", starting, 3) == statefulsets.StatefulSetStep()
    started = [make_pod("db-0")]
    assert statefulsets.next_step("db", started, 3) == statefulsets.StatefulSetStep(create=(1,))


def test_parallel_pods_do_not_wait(make_pod: MakePod) -> None:
    pods = [make_pod("db-1", ready=False)]
    assert statefulsets.next_step("db", pods, 3, ordered=False).create == (0, 2)


def test_a_stateful_set_shrinks_from_its_end(make_pod: MakePod) -> None:
    pods = [make_pod(f"db-{n}") for n in range(11)]
    assert names(statefulsets.next_step("db", pods, 9).delete) == ["db-10"]


def test_a_finished_stateful_pod_makes_room(make_pod: MakePod) -> None:
    pods = [make_pod("db-0", phase="Failed")]
    assert names(statefulsets.next_step("db", pods, 1).delete) == ["db-0"]


def test_a_stateful_pod_knows_its_number() -> None:
    pod = stateful_pod(Owner("apps/v1", "StatefulSet", "db", "u"), "shop", TEMPLATE, 2)
    assert pod["metadata"]["name"] == "db-2"
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "2"
    assert pod["spec"]["hostname"] == "db-2"


def test_every_node_that_is_tolerated_gets_a_daemon_cordoned_or_not(make_node: MakeNode) -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    nodes = [
        make_node("plain"),
        make_node("cordoned", unschedulable=True, taints=[cordon]),
        make_node("tainted", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
    ]
    assert daemonsets.plan(TEMPLATE, nodes, []).create == ("plain", "cordoned")


def test_a_terminating_daemon_keeps_its_place_until_it_is_gone(
    make_pod: MakePod, make_node: MakeNode
) -> None:
    pods = [make_pod("d", terminating=True)]
    step = daemonsets.plan(TEMPLATE, [make_node()], pods)
    assert (step.create, step.delete) == ((), ())
    assert (step.status.desired_number_scheduled, step.status.number_ready) == (1, 0)


def test_surplus_and_finished_daemons_are_deleted(make_pod: MakePod, make_node: MakeNode) -> None:
    pods = [make_pod("a", ready=False), make_pod("b"), make_pod("c", phase="Failed")]
    assert names(daemonsets.plan(TEMPLATE, [make_node()], pods).delete) == ["c", "a"]


def test_daemons_on_a_node_that_is_gone_are_left_to_the_collector(make_pod: MakePod) -> None:
    step = daemonsets.plan(TEMPLATE, [], [make_pod("a")])
    assert (step.create, step.delete) == ((), ())


def job(
    *,
    parallelism: int = 1,
    completions: int | None = 1,
    status: dict[str, Any] | None = None,
    **spec: object,
) -> Job:
    wanted = {"parallelism": parallelism, "completions": completions, **spec}
    return msgspec.convert({"spec": wanted, "status": status or {}}, Job)


def test_a_job_runs_as_many_pods_as_are_still_missing(make_pod: MakePod) -> None:
    pods = [make_pod("a", phase="Succeeded"), make_pod("b")]
    step = jobs.plan(job(parallelism=3, completions=3), pods, ())
    assert (step.create, step.counts.active, step.counts.ready, step.counts.succeeded) == (
        1,
        1,
        1,
        1,
    )


def test_a_success_is_counted_once(make_pod: MakePod) -> None:
    pods = [make_pod("a", phase="Succeeded")]
    wanted = job(parallelism=2, completions=2, status={"succeeded": 1})
    step = jobs.plan(wanted, pods, {"uid-a"})
    assert (step.create, step.counts.succeeded, step.successes) == (1, 1, frozenset())


def test_a_job_that_is_done_creates_nothing_and_says_so_in_the_order_that_servers_want() -> None:
    step = jobs.plan(job(parallelism=2, completions=2, status={"succeeded": 2}), [], ())
    assert (step.create, step.result) == (0, JobResult.COMPLETE)
    assert step.conditions == ("SuccessCriteriaMet", "Complete")


def test_a_job_is_not_complete_before_its_last_pod_is_gone(make_pod: MakePod) -> None:
    pods = [make_pod("a"), make_pod("b", terminating=True)]
    step = jobs.plan(job(completions=1, status={"succeeded": 1}), pods, {"uid-b"})
    assert names(step.delete) == ["a"]
    assert step.conditions == ("SuccessCriteriaMet",)


def test_an_evicted_pod_of_a_job_is_run_again_and_counts_as_failed(make_pod: MakePod) -> None:
    pods = [make_pod("a"), make_pod("b", terminating=True)]
    step = jobs.plan(job(parallelism=2, completions=2), pods, ())
    assert (step.create, step.counts.failed, step.counts.terminating) == (1, 1, 1)


def test_a_job_that_replaces_failed_pods_only_waits_until_one_has_ended(make_pod: MakePod) -> None:
    wanted = job(parallelism=2, completions=2, podReplacementPolicy="Failed")
    going = [make_pod("a"), make_pod("b", terminating=True)]
    step = jobs.plan(wanted, going, ())
    assert (step.create, step.counts.failed) == (0, 0)
    gone = [make_pod("a"), make_pod("b", phase="Failed", terminating=True)]
    step = jobs.plan(wanted, gone, ())
    assert (step.create, step.counts.failed) == (1, 1)


def test_a_job_fails_when_more_pods_have_failed_than_it_allows(make_pod: MakePod) -> None:
    pods = [make_pod("a", phase="Failed"), make_pod("b", phase="Failed"), make_pod("c")]
    allowed = jobs.plan(job(completions=3, backoffLimit=2), pods, ())
    assert (allowed.result, allowed.counts.failed) == (None, 2)
    step = jobs.plan(job(completions=3, backoffLimit=1), pods, ())
    assert (step.result, step.create, names(step.delete)) == (JobResult.FAILED, 0, ["c"])
    assert step.conditions == ("FailureTarget",)
    last = jobs.plan(job(completions=3, backoffLimit=1), pods[:2], ())
    assert last.conditions == ("FailureTarget", "Failed")


def test_a_verdict_stays_though_the_counts_would_say_otherwise(make_pod: MakePod) -> None:
    conditions = [{"type": "FailureTarget", "status": "True"}]
    failing = job(completions=1, status={"conditions": conditions})
    assert jobs.plan(failing, [make_pod("a")], ()).result is JobResult.FAILED


def test_without_completions_one_success_is_enough_once_the_others_have_ended(
    make_pod: MakePod,
) -> None:
    queue = job(parallelism=3, completions=None)
    assert jobs.plan(queue, [], ()).create == 3
    pods = [make_pod("a", phase="Succeeded"), make_pod("b")]
    running = jobs.plan(queue, pods, ())
    assert (running.create, running.delete, running.result) == (0, (), None)
    assert jobs.plan(queue, pods[:1], ()).result is JobResult.COMPLETE


def test_a_job_that_wants_fewer_pods_at_once_takes_some_away(make_pod: MakePod) -> None:
    pods = [make_pod("a"), make_pod("b"), make_pod("c", ready=False)]
    step = jobs.plan(job(parallelism=1, completions=9), pods, ())
    assert names(step.delete) == ["c", "a"]


def test_each_further_failure_doubles_the_wait_and_a_success_ends_it(make_pod: MakePod) -> None:
    backoff, wanted = JobBackoff(), job(completions=9)
    assert backoff.remaining(0.0, speed=1.0) == 0.0
    waits = []
    for number in range(8):
        step = jobs.plan(wanted, [make_pod(f"pod-{number}", phase="Failed")], ())
        backoff.note(step, 100.0)
        backoff.note(step, 105.0)  # a recorded end counts once
        waits.append(backoff.remaining(100.0, speed=1.0))
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]
    assert backoff.remaining(130.0, speed=10.0) == 30.0
    backoff.note(jobs.plan(wanted, [make_pod("good", phase="Succeeded")], ()), 140.0)
    assert backoff.remaining(140.0, speed=1.0) == 0.0


@pytest.mark.parametrize(
    ("change", "urgent"),
    [
        ({}, False),
        ({"disrupted_pods": {"a": datetime(2026, 1, 1)}}, False),  # noqa: DTZ001 - compared only
        ({"expected_pods": 4}, False),
        ({"disruptions_allowed": 1}, True),
        ({"observed_generation": 2}, True),
        ({"current_healthy": 2}, True),
    ],
)
def test_a_budgets_status_is_urgent_when_the_server_would_decide_otherwise(
    change: dict[str, Any], urgent: bool
) -> None:
    old = BudgetStatus(observed_generation=1, current_healthy=3, desired_healthy=3)
    assert is_urgent(old, msgspec.structs.replace(old, **change)) is urgent


@pytest.mark.parametrize(
    ("strategy", "replicas", "current", "available", "old", "expected"),
    [
        # A surge without unavailable pods: the new pod is available before the old one ends.
        ({}, 1, 0, 0, [1], [1, 1]),
        ({}, 1, 1, 0, [1], [1, 1]),
        ({}, 1, 1, 1, [1], [1, 0]),
        # No surge: a pod ends first.
        ({"maxSurge": 0, "maxUnavailable": 1}, 1, 0, 0, [1], [0, 0]),
        ({"maxSurge": 0, "maxUnavailable": 1}, 1, 0, 0, [0], [1, 0]),
        # Ten pods: three more than ten, and at least eight of them available.
        ({}, 10, 0, 0, [10], [3, 8]),
        ({}, 10, 3, 1, [8], [5, 7]),
        ({"maxSurge": 2, "maxUnavailable": 0}, 10, 2, 2, [5, 5], [2, 3, 5]),
        ({}, 2, 4, 4, [], [2]),
    ],
)
def test_a_rolling_update_keeps_within_its_limits(
    strategy: dict[str, Any],
    replicas: int,
    current: int,
    available: int,
    old: list[int],
    expected: list[int],
) -> None:
    wire = {"replicas": replicas, "strategy": {"rollingUpdate": strategy}}
    spec = msgspec.convert(wire, DeploymentSpec)
    status = {"availableReplicas": available}
    made = msgspec.convert({"spec": {"replicas": current}, "status": status}, ReplicaSet)
    others = [msgspec.convert({"spec": {"replicas": size}}, ReplicaSet) for size in old]
    assert deployments.rolling_sizes(spec, made, others) == expected
