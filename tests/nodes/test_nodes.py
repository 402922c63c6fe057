"""Real nodes: pods run on them, and nodes fail as machines do."""

import subprocess

import pytest
from tests.nodes.conftest import (
    WAITS,
    Kubectl,
    answers,
    delete,
    evict,
    exists,
    is_ready,
    log_of,
    node_is_ready,
    pod,
    until,
)

from navarchos.errors import ConfigError
from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.nodes import Lab, NodeFailed, Nodes

pytestmark = pytest.mark.timeout(300)

DETECTED = 60.0
"""Seconds until the control plane takes a node for lost: 12, and what a busy machine adds."""


def test_a_pod_runs_and_has_logs(server: ControlPlane, nodes: Nodes) -> None:
    server.install(pod("runs", WAITS))
    found = until(lambda: is_ready(server, "runs"))
    assert found["spec"]["nodeName"] in {node.name for node in nodes}
    assert log_of(server, "runs") == "hello\n"
    assert found["status"]["podIP"].startswith("10.244.")


def test_commands_run_in_a_container(server: ControlPlane, nodes: Nodes, kubectl: Kubectl) -> None:
    server.install(pod("commands", WAITS, nodeName="real-2"))
    until(lambda: is_ready(server, "commands"))
    assert kubectl("exec", "commands", "--", "hostname") == "commands\n"
    assert kubectl("logs", "commands") == "hello\n"


def test_pods_of_two_nodes_reach_each_other_and_the_api_server(
    server: ControlPlane, nodes: Nodes, kubectl: Kubectl
) -> None:
    serves = "mkdir -p /www; echo from the other node > /www/index.html; httpd -f -p 80 -h /www"
    server.install(pod("serves", serves, nodeName="real-1"), pod("asks", WAITS, nodeName="real-2"))
    address = until(lambda: is_ready(server, "serves"))["status"]["podIP"]
    until(lambda: is_ready(server, "asks"))
    asks = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} 80"
    until(lambda: "from the other node" in kubectl("exec", "asks", "--", "sh", "-c", asks))
    kubectl("exec", "asks", "--", "sh", "-c", "nc -w 5 10.96.0.1 443 < /dev/null")


def test_an_evicted_pod_gets_its_grace_period(server: ControlPlane, nodes: Nodes) -> None:
    script = "trap 'sleep 2; exit 0' TERM; while :; do sleep 0.1; done"
    server.install(pod("evicted", script, terminationGracePeriodSeconds=20))
    until(lambda: is_ready(server, "evicted"))
    status, _ = evict(server, "evicted")
    assert status == 201
    found = server.get("pods", "evicted", "default")
    assert found["metadata"]["deletionGracePeriodSeconds"] == 20
    reasons = [
        c["reason"] for c in found["status"]["conditions"] if c["type"] == "DisruptionTarget"
    ]
    assert reasons == ["EvictionByEvictionAPI"]
    until(lambda: not exists(server, "evicted"), 15.0)


def test_a_budget_refuses_an_eviction(server: ControlPlane, nodes: Nodes) -> None:
    server.install(
        pod("budget", WAITS),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "budget", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "budget"}}},
        },
    )
    until(lambda: is_ready(server, "budget"))
    status, body = until(lambda: (found := evict(server, "budget"))[0] == 429 and found)
    assert status == 429
    assert "disruption budget" in body["message"]


def test_a_reboot_ends_containers_and_gives_a_new_boot_id(
    server: ControlPlane, nodes: Nodes
) -> None:
    node = nodes["real-1"]
    server.install(pod("reboots", WAITS, nodeName=node.name))
    until(lambda: is_ready(server, "reboots"))
    before = server.get("nodes", node.name)
    disk = node.directory / "var" / "kept"
    node.run(["sh", "-c", "echo kept > /var/kept; echo lost > /run/lost"])
    node.reboot()
    assert nodes.wait_until_ready(60)
    after = server.get("nodes", node.name)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    info = after["status"]["nodeInfo"]
    assert info["bootID"] == node.boot_id != before["status"]["nodeInfo"]["bootID"]
    assert info["machineID"] == before["status"]["nodeInfo"]["machineID"]
    assert disk.read_text() == "kept\n"
    assert node.run(["test", "-e", "/run/lost"], check=False).returncode == 1
    found = until(
        lambda: (
            (ready := is_ready(server, "reboots"))
            and ready["status"]["containerStatuses"][0]["restartCount"] == 1
            and ready
        )
    )
    assert found["metadata"]["uid"] == server.get("pods", "reboots", "default")["metadata"]["uid"]


def test_a_node_without_power_is_lost_and_comes_back(server: ControlPlane, nodes: Nodes) -> None:
    node = nodes["real-2"]
    server.install(pod("powerless", WAITS, nodeName=node.name))
    until(lambda: is_ready(server, "powerless"))
    node.power_off()
    assert not node.is_on
    with pytest.raises(NodeFailed, match="node real-2: it has no power"):
        node.run(["true"])
    with pytest.raises(NodeFailed, match="it has no power"):
        node.partition()
    assert "Started kubelet" in node.log("kubelet")
    until(lambda: node_is_ready(server, node) == "Unknown", DETECTED)
    until(lambda: "deletionTimestamp" in server.get("pods", "powerless", "default")["metadata"])
    node.power_on()
    assert nodes.wait_until_ready(60)
    until(lambda: not exists(server, "powerless"))  # only its kubelet knows that it ended


def test_a_partitioned_node_runs_on_and_is_lost_until_it_heals(
    server: ControlPlane, nodes: Nodes, lab: Lab
) -> None:
    node = nodes["real-1"]
    server.install(pod("partitioned", WAITS, nodeName=node.name))
    until(lambda: is_ready(server, "partitioned"))
    boot_id = node.boot_id
    assert answers(lab, node)
    node.partition()
    assert not answers(lab, node)
    until(lambda: node_is_ready(server, node) == "Unknown", DETECTED)
    assert "sleep" in node.run(["ps", "ax"]).stdout  # the container
    node.heal()
    until(lambda: node_is_ready(server, node) == "True")
    assert answers(lab, node)
    assert node.boot_id == boot_id
    assert server.get("nodes", node.name)["status"]["nodeInfo"]["bootID"] == boot_id


def test_containers_outlive_a_stopped_kubelet(server: ControlPlane, nodes: Nodes) -> None:
    node = nodes["real-2"]
    server.install(pod("outlives", WAITS, nodeName=node.name))
    identity = until(lambda: is_ready(server, "outlives"))["status"]["containerStatuses"][0]
    node.stop_kubelet()
    with pytest.raises(NodeFailed, match="cannot stop: ValueError: kubelet is not running"):
        node.stop_kubelet()
    node.start_kubelet()
    node.check()
    assert nodes.wait_until_ready(60)
    delete(server, "/api/v1/namespaces/default/pods/outlives")
    until(lambda: not exists(server, "outlives"))
    assert identity["restartCount"] == 0


def test_a_machine_is_replaced_under_its_name(server: ControlPlane, nodes: Nodes) -> None:
    node = nodes.add("again", labels={"example.com/pool": "first"})
    assert nodes.wait_until_ready(60)
    first = server.get("nodes", "again")
    assert first["metadata"]["labels"]["example.com/pool"] == "first"
    node.run(["touch", "/var/kept"])
    with pytest.raises(ConfigError, match="a node has this name"):
        nodes.add("again")
    nodes.remove("again")
    assert "again" not in {each["metadata"]["name"] for each in server.list("nodes")}
    taint = {"key": "example.com/new", "value": "yes", "effect": "NoSchedule"}
    second = nodes.add("again", taints=[taint])
    assert nodes.wait_until_ready(60)
    found = server.get("nodes", "again")
    assert found["metadata"]["uid"] != first["metadata"]["uid"]
    assert taint in found["spec"]["taints"]
    assert second.run(["test", "-e", "/var/kept"], check=False).returncode == 1
    nodes.remove("again")
    assert len(nodes) == 2


def test_a_program_that_ends_is_reported(server: ControlPlane, nodes: Nodes) -> None:
    node = nodes.add("broken")
    node.run(["pkill", "--exact", "containerd"])
    with pytest.raises(NodeFailed, match="node broken: containerd ended with status") as caught:
        until(node.check)
    assert caught.value.tail
    nodes.remove("broken")


def test_a_node_that_cannot_start_says_why(server: ControlPlane, nodes: Nodes) -> None:
    node = nodes.add("refused")
    node.power_off()
    config = node.directory / "etc" / "containerd" / "config.toml"
    config.write_text("no configuration")
    with pytest.raises(NodeFailed, match="it does not start: containerd ended with status 1"):
        node.power_on()
    assert not node.is_on
    nodes.remove("refused")


def test_a_node_that_cannot_be_made_leaves_nothing(
    nodes: Nodes, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr("navarchos.testing.nodes.nodes.write_files", fail)
        with pytest.raises(OSError, match="no space"):
            nodes.add("half")
    assert [node.name for node in nodes] == ["real-1", "real-2"]
    assert not (lab.directory / "nodes" / "half").exists()


def test_a_command_that_takes_too_long_is_killed(nodes: Nodes, lab: Lab) -> None:
    for place in (lab, nodes["real-1"]):
        with pytest.raises(subprocess.TimeoutExpired):
            place.run(["sh", "-c", "sleep 4321; true"], timeout=0.5)
        until(lambda: "sleep 4321" not in lab.run(["ps", "axww"]).stdout)


def test_commands_of_a_node_that_fail_are_errors(nodes: Nodes) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        nodes["real-1"].run(["false"])
    assert nodes["real-1"].run(["hostname"]).stdout == "real-1\n"


def test_nodes_and_pods_outlive_the_api_server(server: ControlPlane, nodes: Nodes) -> None:
    server.install(pod("stays", WAITS))
    before = until(lambda: is_ready(server, "stays"))
    server.restart_apiserver(kill=True)
    server.install(pod("later", WAITS))
    until(lambda: is_ready(server, "later"))
    after = until(lambda: is_ready(server, "stays"))
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
    assert [node_is_ready(server, node) for node in nodes] == ["True", "True"]
