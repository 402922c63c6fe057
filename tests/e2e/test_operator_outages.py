"""Failures of the control plane with two replicas: the rollout still completes.

A leader that cannot renew its lease exits, as it must. These tests start it again, like a
kubelet. They have a separate control plane, because they disturb all of its clients.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.cases import clusters, manifests
from tests.cases.case import Case
from tests.cases.fixtures import run_case
from tests.cases.installing import install
from tests.cases.kubectl import Kubectl
from tests.cases.managers import QUICK_LEASE, ManagerProcess
from tests.cases.target import Target
from tests.cases.waiting import wait_for

from navarchos.stopping import StopToken
from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.controlplane.guard import Guard

DOWN: Final = float(os.environ.get("NAVARCHOS_OUTAGE_SECONDS", "10"))
"""Seconds for which the API server is down; leases expire earlier. `make nightly` uses 120.

Clients back off while it is down, so the recovery can take the same time again.
"""
OUT_OF_REACH: Final = 5.0
"""Seconds without a dependency of the lease renewal: more than twice the renew deadline."""

pytestmark = pytest.mark.timeout(300 + 2 * DOWN)

Outage = Callable[[ControlPlane], None]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        plane.kwok()
        yield plane


@pytest.fixture(scope="module")
def failing(
    plane: ControlPlane, kubectl_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("failing")
    with clusters.real(plane, directory) as target:
        install(Kubectl(kubectl_path, target.kubeconfig, directory))
        yield target


@pytest.fixture
def failing_case(
    request: pytest.FixtureRequest, failing: Target, guard: Guard, tmp_path: Path
) -> Iterator[Case]:
    account = tmp_path / "account"
    failing.write_account_kubeconfig(account, "kube-system", "navarchos")
    # A disconnected scheduler decides with outdated nodes.
    with run_case(request.node, failing, guard, account, late_binding=60.0) as running:
        yield running


def pause(seconds: float) -> None:
    StopToken().wait(seconds)


def restart(plane: ControlPlane) -> None:
    plane.restart_apiserver()


def kill_and_restart(plane: ControlPlane) -> None:
    plane.restart_apiserver(kill=True)


def pause_etcd(plane: ControlPlane) -> None:
    with plane.paused_etcd():
        pause(OUT_OF_REACH)


def take_away(plane: ControlPlane) -> None:
    plane.stop_apiserver()
    pause(DOWN)
    plane.start_apiserver()


def begin(case: Case) -> tuple[list[str], list[ManagerProcess]]:
    """Start a rollout with two replicas; return the nodes and the replicas."""
    nodes = case.add_nodes(3)
    case.add(
        manifests.deployment(case.name, "web", 9, ends_in="0.5s"),
        manifests.daemon_set(case.name, "agent"),
        manifests.budget(case.name, "web", maxUnavailable=7),
    )
    case.add_nodes(1, first=4)
    managers = [case.manager(*QUICK_LEASE, name=name) for name in ("first", "second")]
    case.roll(nodeSelectors=[], nodeNames=[{"name": name} for name in nodes])
    wait_for("a node to be closed", lambda: case.checker.cordoned)
    return nodes, managers


def revive(managers: list[ManagerProcess]) -> None:
    for manager in managers:
        status = manager.exit_status()
        if status is not None:
            assert status == 1, manager.log()
            assert "lost lease" in manager.log()
            manager.start()


def assert_all_is_done(case: Case, nodes: list[str], managers: list[ManagerProcess]) -> None:
    def is_completed() -> bool:
        revive(managers)
        return case.phase() == "Completed"

    wait_for("the rollout to be completed", is_completed, timeout=150)
    status = case.status()
    assert sorted(status["replacementsCompleted"]) == nodes
    assert status.get("replacementsFailedCount", 0) == 0
    case.checker.settle()
    assert sorted(case.checker.cordoned) == nodes
    assert sorted(case.checker.drained) == nodes


@pytest.mark.rule("LE-12")
@pytest.mark.parametrize("outage", [restart, kill_and_restart, pause_etcd, take_away])
def test_a_rollout_survives_a_failure_of_the_control_plane(
    failing_case: Case, plane: ControlPlane, outage: Outage
) -> None:
    nodes, managers = begin(failing_case)
    outage(plane)
    assert_all_is_done(failing_case, nodes, managers)


@pytest.mark.rule("NP-30")
def test_a_gate_follows_its_object_after_a_restart_of_the_server(
    failing_case: Case, plane: ControlPlane
) -> None:
    case = failing_case
    nodes = case.add_nodes(1)
    (observed,) = case.add_nodes(1, first=2)
    managers = [case.manager(*QUICK_LEASE)]
    well = {"apiVersion": "v1", "kind": "Node", "name": observed}
    gate = {"name": "well", "object": well, "for": "jsonpath={.metadata.labels.health}=ok"}
    case.roll(nodeSelectors=[], nodeNames=[{"name": nodes[0]}], gates=[gate])
    wait_for("the gate", lambda: [g["state"] for g in case.status().get("gates", ())] == ["Closed"])
    kill_and_restart(plane)
    assert not case.checker.cordoned
    case.target.patch("Node", observed, {"metadata": {"labels": {"health": "ok"}}})
    assert_all_is_done(case, nodes, managers)


@pytest.mark.rule("OP-63")
def test_a_rollout_survives_the_end_of_both_replicas(failing_case: Case) -> None:
    nodes, managers = begin(failing_case)
    for manager in managers:
        manager.kill()
    for manager in managers:
        manager.start()
    assert_all_is_done(failing_case, nodes, managers)


@pytest.mark.parametrize("role", ["clusterrolebindings", "namespaces/kube-system/rolebindings"])
def test_a_rollout_continues_after_a_loss_of_permissions(
    failing_case: Case, failing: Target, role: str
) -> None:
    """Without the permissions for the lease the leader must step down."""
    nodes, managers = begin(failing_case)
    path = f"/apis/rbac.authorization.k8s.io/v1/{role}/navarchos"
    with failing.connect("e2e-permissions/1") as client:
        answer = client.raw("GET", path)
        assert answer.status == 200, answer.body
        binding = json.loads(answer.body)
        binding["metadata"] = {
            field: binding["metadata"][field]
            for field in ("name", "namespace", "labels")
            if field in binding["metadata"]
        }
        assert client.raw("DELETE", path).status == 200
        pause(OUT_OF_REACH)
        assert client.raw("POST", path.rpartition("/")[0], body=binding).status == 201
    assert_all_is_done(failing_case, nodes, managers)
