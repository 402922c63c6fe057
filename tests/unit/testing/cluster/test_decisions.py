"""What the workload controllers decide."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from navarchos.testing.cluster import daemonpods, jobpods, replicas, statefulpods
from navarchos.testing.cluster.budgets import is_urgent
from navarchos.testing.cluster.kinds import BudgetStatus, Job, Node, Pod, WorkloadStatus
from navarchos.testing.cluster.pods import Owner, from_template, mirror_pod
from navarchos.testing.cluster.statefulpods import stateful_pod

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
    assert replicas.next_step(pods, 3) == replicas.Step(create=2)


def test_the_least_useful_pods_are_taken_away_first(make_pod: MakePod) -> None:
    pods = [
        make_pod("old", created="2026-01-01T00:00:00Z"),
        make_pod("young", created="2026-01-02T00:00:00Z"),
        make_pod("unready", ready=False),
        make_pod("unbound", node="", ready=False),
    ]
    assert names(replicas.next_step(pods, 1).delete) == ["unbound", "unready", "young"]


def test_counts_are_of_active_pods(make_pod: MakePod) -> None:
    pods = [make_pod("a"), make_pod("b", ready=False), make_pod("c", terminating=True)]
    expected = WorkloadStatus(
        observed_generation=2, replicas=2, ready_replicas=1, available_replicas=1
    )
    assert replicas.status_of(pods, 2) == expected


def test_a_replica_sets_template_is_its_deployments_but_for_the_hash() -> None:
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    made = replicas.with_hash(spec, replicas.template_hash(TEMPLATE))
    assert made["template"] != TEMPLATE
    assert made["selector"]["matchLabels"].keys() == {"app", replicas.HASH_LABEL}
    assert replicas.same_template(TEMPLATE, made["template"])
    other = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "hostname": "new"}}
    assert not replicas.same_template(other, made["template"])


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
    assert statefulpods.next_step("db", going, 3) == statefulpods.Step()
    gone = [make_pod("db-0"), make_pod("db-2")]
    assert statefulpods.next_step("db", gone, 3) == statefulpods.Step(create=(1,))


def test_ordered_pods_wait_for_those_before_them(make_pod: MakePod) -> None:
    assert statefulpods.next_step("db", [], 3) == statefulpods.Step(create=(0,))
    starting = [make_pod("db-0", ready=False)]
    assert statefulpods.next_step("db", starting, 3) == statefulpods.Step()
    started = [make_pod("db-0")]
    assert statefulpods.next_step("db", started, 3) == statefulpods.Step(create=(1,))


def test_parallel_pods_do_not_wait(make_pod: MakePod) -> None:
    pods = [make_pod("db-1", ready=False)]
    assert statefulpods.next_step("db", pods, 3, ordered=False).create == (0, 2)


def test_a_stateful_set_shrinks_from_its_end(make_pod: MakePod) -> None:
    pods = [make_pod(f"db-{n}") for n in range(11)]
    assert names(statefulpods.next_step("db", pods, 9).delete) == ["db-10"]


def test_a_finished_stateful_pod_makes_room(make_pod: MakePod) -> None:
    pods = [make_pod("db-0", phase="Failed")]
    assert names(statefulpods.next_step("db", pods, 1).delete) == ["db-0"]


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
    assert daemonpods.plan(TEMPLATE, nodes, []).create == ("plain", "cordoned")


def test_a_terminating_daemon_keeps_its_place_until_it_is_gone(
    make_pod: MakePod, make_node: MakeNode
) -> None:
    pods = [make_pod("d", terminating=True)]
    step = daemonpods.plan(TEMPLATE, [make_node()], pods)
    assert (step.create, step.delete) == ((), ())
    assert (step.status.desired_number_scheduled, step.status.number_ready) == (1, 0)


def test_surplus_and_finished_daemons_are_deleted(make_pod: MakePod, make_node: MakeNode) -> None:
    pods = [make_pod("a", ready=False), make_pod("b"), make_pod("c", phase="Failed")]
    assert names(daemonpods.plan(TEMPLATE, [make_node()], pods).delete) == ["c", "a"]


def test_daemons_on_a_node_that_is_gone_are_left_to_the_collector(make_pod: MakePod) -> None:
    step = daemonpods.plan(TEMPLATE, [], [make_pod("a")])
    assert (step.create, step.delete) == ((), ())


def job(*, parallelism: int, completions: int, succeeded: int = 0) -> Job:
    spec = {"parallelism": parallelism, "completions": completions}
    return msgspec.convert({"spec": spec, "status": {"succeeded": succeeded}}, Job)


def test_a_job_runs_as_many_pods_as_are_still_missing(make_pod: MakePod) -> None:
    pods = [make_pod("a"), make_pod("b", phase="Succeeded")]
    step = jobpods.plan(job(parallelism=3, completions=3), pods, ())
    assert (step.create, step.active, step.succeeded) == (1, 1, 1)


def test_a_success_is_counted_once(make_pod: MakePod) -> None:
    pods = [make_pod("a", phase="Succeeded")]
    wanted = job(parallelism=2, completions=2, succeeded=1)
    step = jobpods.plan(wanted, pods, {"uid-a"})
    assert (step.create, step.succeeded) == (1, 1)


def test_a_job_that_is_done_creates_nothing(make_pod: MakePod) -> None:
    step = jobpods.plan(job(parallelism=2, completions=2, succeeded=2), [], ())
    assert (step.create, step.succeeded) == (0, 2)


def test_an_evicted_pod_of_a_job_is_run_again(make_pod: MakePod) -> None:
    pods = [make_pod("a", terminating=True), make_pod("b")]
    assert jobpods.plan(job(parallelism=2, completions=2), pods, ()).create == 1


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
