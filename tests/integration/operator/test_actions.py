"""A Job on each node: return, keep, failure, a kill of the manager, budgets."""

from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.managers import QUICK_LEASE
from tests.cases.waiting import wait_for

from navarchos.operator.names import DRAIN_COMPLETED_LABEL

pytestmark = pytest.mark.timeout(240)


def job(case: Case, *, runs_for: str = "0.2s", **spec: Any) -> dict[str, Any]:
    """Return an action with a Job in the namespace of the case."""
    case.add()
    made = manifests.job(case.name, "work", 1, runs_for=runs_for)["spec"]
    namespace, template = case.name, {"spec": {**made, "backoffLimit": 0}}
    return {"job": {"namespace": namespace, "template": template}, **spec}


def roll(case: Case, nodes: list[str], **spec: Any) -> None:
    case.roll(nodeSelectors=[], nodeNames=[{"name": name} for name in nodes], **spec)


def nodes_of_jobs(case: Case) -> list[str]:
    """Return the node of each pod of an action."""
    return [
        pod["spec"]["nodeName"]
        for pod in case.pods()
        if "navarchos.pusher.com/action" in pod["metadata"]["labels"]
    ]


def is_acting(case: Case, node: str) -> bool:
    step = case.status("NodeReplacement", case.replacement(node)).get("step", {})
    return str(step.get("name")) == "Acting"


def pods_of_jobs(case: Case) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in case.pods()
        if "navarchos.pusher.com/action" in pod["metadata"]["labels"]
        and pod["status"].get("phase") == "Running"
    ]


@pytest.mark.rule("UP-70")
@pytest.mark.rule("UP-72")
def test_a_job_runs_on_each_node_which_then_returns(case: Case) -> None:
    nodes = case.add_nodes(3)
    case.add(
        manifests.deployment(case.name, "web", 6),
        manifests.daemon_set(case.name, "agent"),
        manifests.budget(case.name, "web", maxUnavailable=1),
    )
    case.manager()
    roll(case, nodes, action=job(case))
    status = case.wait_for_phase("Completed")
    assert status["replacementsCompleted"] == nodes
    assert sorted(nodes_of_jobs(case)) == nodes
    assert len(case.target.list("Job", case.name)) == 3
    case.checker.settle()
    assert sorted(case.checker.cordoned) == nodes
    assert case.checker.most_in_flight == 1
    for name in nodes:
        assert not case.is_cordoned(name)
        assert DRAIN_COMPLETED_LABEL not in case.node(name)["metadata"]["labels"]
        replacement = case.status("NodeReplacement", case.replacement(name))
        assert replacement["step"]["reason"] == "Returned"
        assert set(case.events(case.replacement(name))) >= {"ActionStarted", "ActionCompleted"}
    assert not case.target.list("NodeDrain")


def test_a_node_that_is_kept_after_its_job_is_drained_and_labelled(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.manager()
    roll(case, [name], action=job(case, afterwards="Keep"))
    case.wait_for_phase("Completed")
    assert case.is_cordoned(name)
    assert DRAIN_COMPLETED_LABEL in case.node(name)["metadata"]["labels"]


@pytest.mark.parametrize("state", ["Cordoned", "InService"])
def test_pods_stay_on_a_node_that_is_not_drained_for_its_job(case: Case, state: str) -> None:
    (name,) = case.add_nodes(1)
    case.add(manifests.deployment(case.name, "web", 2))
    case.manager()
    roll(case, [name], action=job(case, node=state))
    case.wait_for_phase("Completed")
    assert nodes_of_jobs(case) == [name]
    assert case.checker.evictions(case.name) == 0
    assert case.checker.cordoned == ((name,) if state == "Cordoned" else ())
    assert not case.is_cordoned(name)
    assert len(case.pods(name)) == 3


@pytest.mark.rule("UP-73")
def test_failed_jobs_halt_the_rollout_until_it_is_resumed(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.manager()
    quick = job(case)
    roll(case, [name], action=job(case, runs_for="300s"), strategy={"retries": 0})
    (pod,) = wait_for("the pod of the Job", lambda: pods_of_jobs(case))
    case.target.of("Pod").delete(pod, case.name)
    halted = case.wait_for_phase("Halted")
    assert halted["replacementsFailed"] == [name]
    (failure,) = case.status("NodeReplacement", case.replacement(name))["failures"]
    assert failure["reason"] == "JobFailed"
    (first,) = case.target.list("Job", case.name)
    assert f"Job {case.name}/{first['metadata']['name']} has failed" in failure["message"]
    assert not case.is_cordoned(name)
    body = {
        "metadata": {"annotations": {"navarchos.pusher.com/resume": "1"}},
        "spec": {"action": quick},
    }
    case.target.patch("NodeRollout", case.name, body)
    case.wait_for_phase("Completed")
    jobs = {each["metadata"]["uid"] for each in case.target.list("Job", case.name)}
    assert len(jobs) == 2
    assert first["metadata"]["uid"] in jobs, "the logs of the failed Job are lost"


def test_a_template_that_the_server_refuses_is_one_clear_failure(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.manager()
    case.add()
    action = {"job": {"namespace": case.name, "template": {"spec": {"template": {"spec": {}}}}}}
    roll(case, [name], action=action, strategy={"retries": 0})
    case.wait_for_phase("Halted")
    (failure,) = case.status("NodeReplacement", case.replacement(name))["failures"]
    assert failure["reason"] == "JobRefused"
    assert "spec.template.spec.containers" in failure["message"]
    assert not case.is_cordoned(name)


@pytest.mark.rule("NP-11")
def test_a_manager_killed_while_a_job_runs_continues(case: Case) -> None:
    (name,) = case.add_nodes(1)
    manager = case.manager(*QUICK_LEASE)
    roll(case, [name], action=job(case, runs_for="3s"))
    wait_for("the Job to run", lambda: is_acting(case, name) and pods_of_jobs(case))
    manager.kill()
    manager.start()
    case.wait_for_phase("Completed")
    assert len(case.target.list("Job", case.name)) == 1
    assert not case.is_cordoned(name)


def test_a_running_job_ends_before_a_failed_attempt_releases_the_node(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.manager()
    roll(case, [name], action=job(case, runs_for="300s"), strategy={"retries": 0})
    wait_for("the Job to run", lambda: pods_of_jobs(case))
    case.target.of("NodeDrain").delete(case.replacement(name))
    case.wait_for_phase("Halted")
    assert case.target.list("Job", case.name) == []
    assert pods_of_jobs(case) == []
    assert not case.is_cordoned(name)


@pytest.mark.rule("NP-21")
def test_a_node_returns_when_its_daemon_sets_are_ready_again(case: Case) -> None:
    """The DaemonSet of the second pool cannot run on the node, so it is not missed."""
    (name,) = case.add_nodes(1)
    elsewhere = manifests.daemon_set(case.name, "elsewhere")
    elsewhere["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "of-no-node"}
    case.add(manifests.daemon_set(case.name, "agent"), elsewhere)
    case.manager()
    verify = {"readySeconds": 1, "daemonSets": True}
    roll(case, [name], action=job(case, verify=verify))
    case.wait_for_phase("Completed")
    verified = [
        condition
        for condition in case.status("NodeReplacement", case.replacement(name))["conditions"]
        if condition["type"] == "NodeVerified"
    ]
    assert [condition["status"] for condition in verified] == ["True"]
    assert not case.is_cordoned(name)
    assert "NodeVerified" in case.events(case.replacement(name))


@pytest.mark.rule("NP-21")
def test_a_node_with_another_kubelet_than_wanted_is_not_ready_again(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.manager()
    verify = {"readySeconds": 0, "timeoutSeconds": 1, "kubeletVersion": "v0.0.0"}
    roll(case, [name], strategy={"retries": 0}, action=job(case, verify=verify))
    case.wait_for_phase("Halted")
    failures = case.status("NodeReplacement", case.replacement(name))["failures"]
    assert [failure["reason"] for failure in failures] == ["NotReadyAgain"]
    assert failures[0]["message"].endswith("not v0.0.0")
    assert not case.is_cordoned(name)


@pytest.mark.rule("NP-12")
def test_a_rollout_that_is_deleted_while_a_job_runs_gives_its_node_back(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.manager()
    roll(case, [name], action=job(case, runs_for="300s"))
    wait_for("the Job", lambda: is_acting(case, name) and pods_of_jobs(case))
    assert case.is_cordoned(name)
    case.target.of("NodeRollout").delete(case.name)
    wait_for("the replacement to be gone", lambda: case.target.list("NodeReplacement") == [])
    assert pods_of_jobs(case) == [], "the replacement is gone before the pods of its Job"
    wait_for("the node to be uncordoned", lambda: not case.is_cordoned(name))
    assert case.target.list("NodeDrain") == []
