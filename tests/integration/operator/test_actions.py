"""A Job on each node: return, keep, failure, a kill of the manager, budgets."""

from typing import Any

import pytest
from tests.cases import manifests
from tests.cases.case import Case
from tests.cases.managers import QUICK_LEASE
from tests.cases.target import KINDS
from tests.cases.waiting import wait_for

from navarchos.client import Invalid, Propagation
from navarchos.meta import ObjectMeta
from navarchos.operator.api.v1alpha1 import NodeRolloutSpec
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.operator.owners import owner_view
from navarchos.operator.setup import OperatorParts, add_operator
from navarchos.runtime import Manager
from navarchos.testing.cluster.pod_lifecycle import TERMINATES_AFTER
from navarchos.testing.managers import running_manager

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
@pytest.mark.parametrize("policy", [Propagation.BACKGROUND, Propagation.FOREGROUND])
def test_a_rollout_that_is_deleted_while_a_job_runs_gives_its_node_back(
    case: Case, policy: Propagation
) -> None:
    (name,) = case.add_nodes(1)
    case.manager()
    action = job(case, runs_for="300s")
    pod = action["job"]["template"]["spec"]["template"]
    pod["spec"]["terminationGracePeriodSeconds"] = 5
    pod["metadata"]["annotations"][TERMINATES_AFTER] = "3s"
    roll(case, [name], action=action)
    wait_for("the Job", lambda: is_acting(case, name) and pods_of_jobs(case))
    assert case.is_cordoned(name)
    case.target.of("NodeRollout").delete(case.name, propagation=policy)

    def is_gone() -> bool:
        # In this order: a pod that exists after an uncordon existed during the uncordon.
        is_cordoned, pods = case.is_cordoned(name), nodes_of_jobs(case)
        assert is_cordoned or not pods, "the node is in service while the pod of its Job runs"
        return not pods and case.target.list("NodeReplacement") == []

    wait_for("the replacement to be gone", is_gone)
    wait_for("the node to be uncordoned", lambda: not case.is_cordoned(name))
    wait_for("the drain to be gone", lambda: case.target.list("NodeDrain") == [])
    wait_for("the Job to be gone", lambda: case.target.list("Job", case.name) == [])


@pytest.mark.rule("UP-70")
def test_a_budget_that_delays_the_drain_delays_the_job(case: Case) -> None:
    """That no Job starts on a node with pods that must leave is checked in every case."""
    (name,) = case.add_nodes(1)
    case.add(
        manifests.deployment(case.name, "web", 2),
        manifests.budget(case.name, "web", maxUnavailable=0),
    )
    case.add_nodes(1, first=2)
    case.manager()
    roll(case, [name], action=job(case))
    drain = case.replacement(name)
    wait_for("both blockers", lambda: case.status("NodeDrain", drain).get("blocked") == 2)
    assert case.target.list("Job", case.name) == []
    case.change_budget("web", maxUnavailable=1)
    case.wait_for_phase("Completed")
    case.checker.settle()
    assert case.checker.evictions(case.name) == 2
    assert nodes_of_jobs(case) == [name]
    assert case.checker.actions == (name,)


@pytest.mark.rule("UP-73")
def test_a_failed_job_is_tried_again_by_another_job(case: Case) -> None:
    """The pause lies between both attempts, so that the second one has another template."""
    (name,) = case.add_nodes(1)
    case.manager()
    quick = job(case)
    roll(case, [name], action=job(case, runs_for="300s"), strategy={"retries": 1})
    (pod,) = wait_for("the pod of the Job", lambda: pods_of_jobs(case))
    case.target.patch("NodeRollout", case.name, {"spec": {"paused": True}})
    case.target.of("Pod").delete(pod, case.name)
    replacement = case.replacement(name)
    wait_for(
        "the end of the attempt",
        lambda: case.status("NodeReplacement", replacement)["step"]["name"] == "Waiting",
    )
    assert not case.is_cordoned(name)
    case.target.patch("NodeRollout", case.name, {"spec": {"paused": False, "action": quick}})
    case.wait_for_phase("Completed")
    status = case.status("NodeReplacement", replacement)
    assert [failure["reason"] for failure in status["failures"]] == ["JobFailed"]
    assert len(case.target.list("Job", case.name)) == 2
    assert not case.is_cordoned(name)


@pytest.mark.rule("NP-21")
def test_a_node_returns_when_it_has_started_again_with_the_wanted_kubelet(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.manager()
    version = case.node(name)["status"]["nodeInfo"]["kubeletVersion"]
    verify = {"readySeconds": 1, "kubeletVersion": version, "rebooted": True}
    roll(case, [name], action=job(case, verify=verify))
    replacement = case.replacement(name)
    lacking = wait_for(
        "the missing boot",
        lambda: case.condition("NodeVerified", "NodeReplacement", replacement).get("message"),
    )
    assert "boot" in lacking
    assert case.is_cordoned(name)
    body = {"status": {"nodeInfo": {"bootID": "another-boot"}}}
    case.target.patch("Node", name, body, subresource="status")
    case.wait_for_phase("Completed")
    assert not case.is_cordoned(name)


@pytest.mark.rule("NP-22")
def test_replacements_of_another_kind_of_owner_are_paused_and_resumed_with_it(case: Case) -> None:
    """The owner is the namespace of the case; the manager runs in this process."""
    (name,) = case.add_nodes(1)
    case.add()
    owner = case.target.get("Namespace", case.name)["metadata"]
    metadata = ObjectMeta(name=case.name, uid=owner["uid"])
    views = [owner_view(metadata, NodeRolloutSpec(paused=True))]
    reference = {"apiVersion": "v1", "kind": "Namespace", "name": case.name, "uid": owner["uid"]}
    made = manifests.replacement(name, name, action=job(case))
    made["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    assembled: list[OperatorParts] = []

    def assemble(manager: Manager) -> None:
        parts = add_operator(manager)
        parts.owners.register(KINDS["Namespace"], lambda: views)
        assembled.append(parts)

    with case.target.connect("cases-owner/1") as client, running_manager(assemble, client):
        case.create(made)
        wait_for("the pause", lambda: case.target.get("NodeReplacement", name)["spec"]["paused"])
        wait_for(
            "the wait",
            lambda: case.condition("Waiting", "NodeReplacement", name).get("reason"),
        )
        assert not case.is_cordoned(name)
        views[:] = [owner_view(metadata, NodeRolloutSpec())]
        assembled[0].owners.changed(owner["uid"])
        case.wait_for_phase("Completed", "NodeReplacement", name)
    assert nodes_of_jobs(case) == [name]
    assert not case.is_cordoned(name)


@pytest.mark.rule("NP-20")
def test_the_action_of_a_node_in_flight_cannot_be_changed(case: Case) -> None:
    """Otherwise its Job would be lost: it is found by what the spec says."""
    (name,) = case.add_nodes(1)
    action = job(case)
    made = case.create(manifests.replacement(name, name, action=action))
    renamed = {"job": {"namespace": "elsewhere"}}

    def change(action: dict[str, Any] | None, **more: Any) -> None:
        case.target.patch("NodeReplacement", name, {"spec": {"action": action, **more}})

    change(renamed)
    change(action)
    body = {"status": {"phase": "InProgress", "step": {"name": "Reserved"}}}
    case.target.patch("NodeReplacement", name, body, subresource="status")
    labelled = {"job": {"template": {"metadata": {"labels": {"of": "the template"}}}}}
    for changed in (renamed, labelled, None):
        with pytest.raises(Invalid, match="action cannot be changed while the node is in flight"):
            change(changed)
    change(action, paused=True)
    body = {"status": {"phase": "Failed", "step": {"name": "Failed"}}}
    case.target.patch("NodeReplacement", name, body, subresource="status")
    change(None)
    assert made["spec"]["action"]["job"]["namespace"] == case.name


def test_an_action_cannot_be_added_to_a_node_in_flight(case: Case) -> None:
    (name,) = case.add_nodes(1)
    case.create(manifests.replacement(name, name))
    body = {"status": {"phase": "InProgress", "step": {"name": "Reserved"}}}
    case.target.patch("NodeReplacement", name, body, subresource="status")
    with pytest.raises(Invalid, match="action cannot be changed while the node is in flight"):
        case.target.patch("NodeReplacement", name, {"spec": {"action": job(case)}})
    case.target.patch("NodeReplacement", name, {"spec": {"paused": True}})
