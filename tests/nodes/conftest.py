"""Fixtures of tests on real nodes, which fail in CI where nodes cannot run; elsewhere they skip."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cases.waiting import wait_for

from navarchos.testing.controlplane import KUBECTL, NODE_TOOLS, BinariesMissing, ControlPlane
from navarchos.testing.controlplane.binaries import find_binaries
from navarchos.testing.nodes import Lab, MachineLacks, Node, Nodes, check_requirements
from navarchos.testing.nodes.nodes import node_lookup

JsonObject = dict[str, Any]

BUSYBOX = "navarchos.test/busybox:1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests where real nodes cannot run; CI has to be able to run them."""
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    if not mine or os.environ.get("CI"):
        return
    try:
        check_requirements()
        find_binaries(NODE_TOOLS, node_lookup())
    except (MachineLacks, BinariesMissing) as error:
        for item in mine:
            item.add_marker(pytest.mark.skip(reason=str(error).partition(";")[0]))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The lab of most tests."""
    with Lab() as lab:
        yield lab


@pytest.fixture(scope="session")
def server(lab: Lab) -> Iterator[ControlPlane]:
    """A control plane in the lab that takes a node for lost after 12 seconds instead of 40."""
    detection = ["--node-monitor-grace-period=12s", "--node-monitor-period=1s"]
    with ControlPlane(network=lab, arguments={"kube-controller-manager": detection}) as server:
        yield server


@pytest.fixture(scope="module")
def nodes(server: ControlPlane) -> Iterator[Nodes]:
    """Two real nodes; every test leaves them Ready."""
    # The lease is renewed four times as often.
    with Nodes(server, 2, kubelet={"nodeLeaseDurationSeconds": 8}) as nodes:
        yield nodes
    assert server.list("nodes") == []


@dataclass(frozen=True)
class Kubectl:
    """The real kubectl, outside the lab."""

    program: Path
    kubeconfig: Path

    def __call__(self, *arguments: str, check: bool = True) -> str:
        """Run kubectl and return its output."""
        done = subprocess.run(
            [self.program, f"--kubeconfig={self.kubeconfig}", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def kubectl(server: ControlPlane, tmp_path: Path) -> Kubectl:
    """Return kubectl as the administrator."""
    kubeconfig = tmp_path / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    return Kubectl(find_binaries([KUBECTL])[KUBECTL].path, kubeconfig)


def until(check: Callable[[], Any], timeout: float = 60.0) -> Any:
    """Wait until a check returns something true, and return it."""
    return wait_for("the check of this test", check, timeout)


def pod(name: str, script: str, **spec: Any) -> JsonObject:
    """Return a pod that runs a script in the shell."""
    container: JsonObject = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        **spec.pop("container", {}),
    }
    tolerations = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 1,
        }
        for key in ("not-ready", "unreachable")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [container],
            "tolerations": tolerations,
            **spec,
        },
    }


WAITS = "trap 'echo got TERM; exit 0' TERM; echo hello; while :; do sleep 0.1; done"
"""A script that ends at SIGTERM."""


def is_ready(server: ControlPlane, name: str) -> JsonObject | None:
    """Return a pod if it is Ready."""
    found = server.get("pods", name, "default")
    conditions = {c["type"]: c["status"] for c in found["status"].get("conditions", ())}
    return found if conditions.get("Ready") == "True" else None


def exists(server: ControlPlane, name: str) -> bool:
    """Return whether a pod exists."""
    return name in {each["metadata"]["name"] for each in server.list("pods", "default")}


def node_is_ready(server: ControlPlane, node: Node) -> str:
    """Return the status of a node's condition Ready."""
    found = server.get("nodes", node.name)
    return str({c["type"]: c["status"] for c in found["status"]["conditions"]}["Ready"])


def answers(lab: Lab, node: Node) -> bool:
    """Return whether the kubelet of a node can be reached from the control plane."""
    connect = f"echo > /dev/tcp/{node.address}/10250"
    return lab.run(["timeout", "3", "bash", "-c", connect], check=False).returncode == 0


def delete(server: ControlPlane, path: str, body: Mapping[str, object] | None = None) -> None:
    """Delete an object."""
    with server.client() as client:
        response = client.raw("DELETE", path, body=body)
    assert response.status in (200, 202, 404), response.body


def log_of(server: ControlPlane, name: str) -> str:
    """Return the log of a pod."""
    with server.client() as client:
        return client.raw("GET", f"/api/v1/namespaces/default/pods/{name}/log").body.decode()


def evict(server: ControlPlane, name: str) -> tuple[int, JsonObject]:
    """Evict a pod through the eviction API; return the status and the body."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
    }
    with server.client() as client:
        response = client.raw("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", body=body)
    return response.status, json.loads(response.body)
