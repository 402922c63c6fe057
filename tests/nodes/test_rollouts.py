"""Rollouts by the shipped Deployment, from the image of the Dockerfile, evict containers."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cases import clusters, manifests
from tests.cases.case import case_name
from tests.cases.target import Target
from tests.cases.waiting import wait_for
from tests.nodes.conftest import Kubectl, node_is_ready
from tests.nodes.rollouts import (
    HELD,
    NAMESPACE,
    ROOT,
    RealCase,
    config,
    deployment,
    real_case,
    told,
)

from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.nodes import Lab, Nodes
from navarchos.testing.nodes.testimages import TestImages, deployed_image

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def shipped(server: ControlPlane) -> Iterator[Nodes]:
    """Four nodes on which the manifests of `config` are installed, unchanged."""
    images = TestImages()
    archives = [images.busybox(), images.project(ROOT, deployed_image(ROOT))]
    kubelet = {"nodeLeaseDurationSeconds": 8}
    with Nodes(server, 4, images=archives, prefix="shipped", kubelet=kubelet) as nodes:
        server.install(*config("crds"))
        server.install(*config("deploy"))
        yield nodes


@pytest.fixture(scope="module")
def target(server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The cluster, with an administrator's access."""
    with clusters.real(server, tmp_path_factory.mktemp("target")) as found:
        yield found


@pytest.fixture
def case(
    request: pytest.FixtureRequest, server: ControlPlane, shipped: Nodes, target: Target
) -> Iterator[RealCase]:
    """A case on the nodes, which fails on any violation."""
    with real_case(case_name(request.node.name), server, shipped, target) as running:
        yield running


def test_both_replicas_are_ready_on_different_nodes_and_one_leads(case: RealCase, lab: Lab) -> None:
    leader = case.leader()
    pods = case.replicas()
    assert len({each["spec"]["nodeName"] for each in pods}) == 2
    restarts = [c["restartCount"] for each in pods for c in each["status"]["containerStatuses"]]
    assert restarts == [0, 0]
    read = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).read())"
    url = f"http://{leader['status']['podIP']}:8080/metrics"
    answer = lab.run([sys.executable, "-I", "-c", read, url]).stdout
    assert "leader_election_master_status" in answer


def test_a_replica_is_restricted_by_its_node(case: RealCase, kubectl: Kubectl) -> None:
    name = case.leader()["metadata"]["name"]
    run = ("-n", NAMESPACE, "exec", name, "--")
    assert kubectl(*run, "id", "-u") == "65532\n"
    lines = kubectl(*run, "cat", "/proc/1/status").splitlines()
    status = dict(line.split(":\t", 1) for line in lines)
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert "Read-only file system" in kubectl(*run, "touch", "/opt/x", check=False)


def test_the_checker_sees_a_pod_that_is_deleted_against_its_budget(
    case: RealCase, shipped: Nodes, target: Target
) -> None:
    node = case.others()[0]
    case.add(
        deployment(case.name, "alone", told(), first=node),
        manifests.budget(case.name, "alone", minAvailable=1),
    )
    (pod,) = case.pods(app="alone")
    target.of("Pod").delete(pod["metadata"]["name"], case.name)
    case.checker.settle()
    assert [each.what for each in case.checker.violations] == ["BudgetViolated"]
    case.forged.add("BudgetViolated")


def test_an_evicted_pod_gets_its_hook_its_signal_and_its_grace_period(
    case: RealCase, target: Target
) -> None:
    node = case.others()[0]
    tells = 'echo "preStop $(cut -d" " -f1 /proc/uptime)" >> /story/$HOSTNAME; sleep 3'
    hook: dict[str, Any] = {"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", tells]}}}}
    empty = [{"name": "memory", "emptyDir": {"medium": "Memory"}}]
    case.add(
        deployment(case.name, "hooked", told(1.0), first=node, grace=30, **hook),
        deployment(case.name, "deaf", told(ends=False), first=node, grace=4),
        deployment(case.name, "empty", told(), first=node, volumes=empty),
    )
    pods = {app: case.pod_on(node, app) for app in ("hooked", "deaf", "empty")}
    case.roll([node], drain={"deleteEmptyDirData": True})
    case.complete()
    case.assert_drained(node)
    hooked, deaf = (case.story(node, pods[app]) for app in ("hooked", "deaf"))
    assert hooked.words == ["start", "preStop", "TERM", "end"]
    assert hooked.seconds("preStop", "TERM") >= 3.0
    assert hooked.seconds("TERM", "end") >= 1.0
    assert deaf.words[:1] == ["start"]
    assert deaf.words.count("TERM") == 1
    assert deaf.words[-1] == "tick"
    assert deaf.seconds("TERM", "tick") >= 4.0 - 1.0  # it was killed between two ticks
    assert case.story(node, pods["empty"]).words == ["start", "TERM", "end"]
    case.assert_nothing_was_done_twice(drains=1)


def test_a_pod_that_would_lose_its_data_stays(case: RealCase) -> None:
    node = case.others()[0]
    empty = [{"name": "data", "emptyDir": {}}]
    case.add(deployment(case.name, "keeps", told(), first=node, volumes=empty))
    pod = case.pod_on(node, "keeps")
    case.roll([node], drain={"deleteEmptyDirData": False})
    wait_for("the rollout to be Halted", lambda: case.status().get("phase") == "Halted")
    failed = case.status("NodeReplacement", f"{case.name}-{node}")["failedPods"]
    assert [each["reason"].partition(":")[0] for each in failed] == ["LocalStorage"]
    assert case.pod_on(node, "keeps")["metadata"]["uid"] == pod["metadata"]["uid"]
    assert case.story(node, pod).words == ["start"]


def test_a_budget_waits_until_a_slow_pod_is_ready(case: RealCase) -> None:
    node = case.others()[0]
    script = told(beside="sleep 4; tell ready; touch /tmp/ready")
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    case.add(
        deployment(case.name, "slow", script, first=node, replicas=2, readinessProbe=probe),
        manifests.budget(case.name, "slow", maxUnavailable=1),
    )
    pods = case.pods(node, "slow")
    assert len(pods) == 2
    case.roll([node])
    case.complete()
    case.assert_drained(node)
    first_end, second_end = sorted(case.story(node, each).at("TERM") for each in pods)
    others = [each for each in case.pods(app="slow") if each["spec"]["nodeName"] != node]
    stories = [case.story(each["spec"]["nodeName"], each) for each in others]
    ready = min(each.at("ready") for each in stories if "ready" in each.words)
    assert first_end < ready < second_end
    assert case.checker.evictions(case.name) == 2


def test_pods_of_the_node_itself_stay_and_a_finished_one_does_not_block(
    case: RealCase, shipped: Nodes, target: Target
) -> None:
    node = case.others()[0]
    spec = deployment(case.name, "each", told(), first=node)["spec"]
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "each", "namespace": case.name},
        "spec": {key: spec[key] for key in ("selector", "template")},
    }
    once = deployment(case.name, "once", "true", first=node)["spec"]["template"]
    once["spec"] |= {"restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once", "namespace": case.name},
        "spec": {"template": once},
    }
    static = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "static", "namespace": case.name},
        "spec": {**spec["template"]["spec"]},
    }
    manifest = "/etc/kubernetes/manifests/static.json"
    shipped[node].run(["sh", "-c", f"cat > {manifest} <<'END'\n{json.dumps(static)}\nEND"])
    case.add(daemons, job)
    wait_for("the Job", lambda: case.succeeded("once"))
    stays = wait_for("the mirror pod", lambda: case.running(node, f"static-{node}"))
    daemon = wait_for("the DaemonSet's pod", lambda: case.running(node, "each-"))
    case.roll([node])
    case.complete()
    for each in (stays, daemon):
        found = target.get("Pod", each["metadata"]["name"], case.name)
        assert found["metadata"]["uid"] == each["metadata"]["uid"]
        assert found["status"]["containerStatuses"][0]["restartCount"] == 0
    assert case.succeeded("once")
    shipped[node].run(["rm", manifest])


def test_the_node_of_the_leader_is_drained_and_the_other_replica_takes_over(
    case: RealCase,
) -> None:
    leader = case.leader()
    node = leader["spec"]["nodeName"]
    case.add(deployment(case.name, "told", told(1.0), first=node))
    pod = case.pod_on(node, "told")
    case.roll([node])
    case.complete()
    case.assert_drained(node)
    assert case.story(node, pod).words == ["start", "TERM", "end"]
    assert case.leader()["metadata"]["uid"] != leader["metadata"]["uid"]
    case.assert_nothing_was_done_twice(drains=1)


def test_the_other_replica_goes_on_when_the_leaders_node_loses_power_in_a_drain(
    case: RealCase, shipped: Nodes
) -> None:
    leader = case.leader()
    first, second = case.others()[:2]
    case.add(
        deployment(case.name, "held", HELD, first=first),
        deployment(case.name, "told", told(1.0), first=second),
    )
    held = case.pod_on(first, "held")
    case.roll([first, second])
    case.wait_for_end_of_pod(first, held)
    shipped[leader["spec"]["nodeName"]].power_off()
    case.let_go()
    case.complete()
    case.assert_drained(first, second)
    case.assert_nothing_was_done_twice(drains=2)


def test_a_drain_ends_after_its_node_was_rebooted(case: RealCase, shipped: Nodes) -> None:
    node = case.others()[0]
    case.add(deployment(case.name, "held", HELD, first=node))
    held = case.pod_on(node, "held")
    case.roll([node])
    case.wait_for_end_of_pod(node, held)
    shipped[node].reboot()
    case.complete()
    case.assert_drained(node)
    case.assert_nothing_was_done_twice(drains=1)


def test_a_drain_waits_for_a_partitioned_node(
    case: RealCase, shipped: Nodes, server: ControlPlane
) -> None:
    node = case.others()[0]
    case.add(deployment(case.name, "held", HELD, first=node))
    held = case.pod_on(node, "held")
    case.roll([node])
    case.wait_for_end_of_pod(node, held)
    shipped[node].partition()
    case.undo(shipped[node].heal)
    case.let_go()
    wait_for("the node to be lost", lambda: node_is_ready(server, shipped[node]) == "Unknown")
    # The container has ended, but only its kubelet knows.
    assert [each["metadata"]["uid"] for each in case.pods(node)] == [held["metadata"]["uid"]]
    assert case.status()["phase"] == "InProgress"
    case.undo_now()
    case.complete()
    case.assert_drained(node)
    case.assert_nothing_was_done_twice(drains=1)


def test_a_drain_names_the_pod_that_it_waits_for_while_the_kubelet_is_stopped(
    case: RealCase, shipped: Nodes, server: ControlPlane
) -> None:
    node = case.others()[0]
    case.add(deployment(case.name, "held", HELD, first=node))
    held = case.pod_on(node, "held")
    case.roll([node])
    case.wait_for_end_of_pod(node, held)
    shipped[node].stop_kubelet()
    case.undo(shipped[node].start_kubelet)
    case.let_go()
    wait_for("the node to be lost", lambda: node_is_ready(server, shipped[node]) == "Unknown")
    status = case.drain_of(node)["status"]
    assert (status["phase"], status["remaining"]) == ("Draining", 1)
    assert f"{case.name}/{held['metadata']['name']}" in status["nodePods"], status
    case.undo_now()
    case.complete()
    case.assert_drained(node)


def test_a_machine_that_replaces_another_under_its_name_is_not_taken_for_it(
    case: RealCase, shipped: Nodes, target: Target
) -> None:
    node = case.others()[0]
    case.add(deployment(case.name, "held", HELD, first=node))
    held = case.pod_on(node, "held")
    case.roll([node])
    case.wait_for_end_of_pod(node, held)
    shipped.remove(node)
    shipped.add(node)
    case.complete()
    assert shipped.wait_until_ready(120)
    found = target.get("Node", node)
    assert not found["spec"].get("unschedulable")
    assert "navarchos.pusher.com/drain-completed" not in found["metadata"]["labels"]
    case.assert_nothing_was_done_twice(drains=1)


def test_a_rollout_goes_on_after_the_api_server_was_restarted(
    case: RealCase, server: ControlPlane
) -> None:
    first, second = case.others()[:2]
    case.add(
        deployment(case.name, "held", HELD, first=first),
        deployment(case.name, "told", told(1.0), first=second),
    )
    held = case.pod_on(first, "held")
    case.roll([first, second])
    case.wait_for_end_of_pod(first, held)
    server.restart_apiserver(kill=True)
    case.let_go()
    case.complete()
    case.assert_drained(first, second)
    case.assert_nothing_was_done_twice(drains=2)
