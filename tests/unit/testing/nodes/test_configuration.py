"""What follows from a node's number, and when a node counts as Ready."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from navarchos.errors import ConfigError
from navarchos.testing.controlplane import ControlPlane, KeyPair
from navarchos.testing.controlplane.credentials import Authority
from navarchos.testing.nodes import Nodes, RealMachine
from navarchos.testing.nodes.configuration import write_files
from navarchos.testing.nodes.node import Node
from navarchos.testing.nodes.nodes import why_not_ready
from navarchos.testing.nodes.testimages import PAUSE


class Issuer:
    """The part of a control plane that the files of a node need."""

    internal_url = "https://10.90.0.1:6443"

    def __init__(self, directory: Path) -> None:
        self._authority = Authority(directory)
        self.authority = self._authority.files.certificate
        self.users: list[tuple[str, tuple[str, ...]]] = []
        self.hosts: list[str] = []

    def client_certificate(self, user: str, groups: tuple[str, ...] = ()) -> KeyPair:
        self.users.append((user, tuple(groups)))
        return self._authority.issue_client(f"user-{len(self.users)}", user, groups)

    def server_certificate(self, hosts: list[str]) -> KeyPair:
        self.hosts += hosts
        return self._authority.issue_server("server", hosts)


class Booted:
    """The part of a node that its readiness depends on."""

    boot_id = "second"


def status(ready: str = "True", boot_id: str = "second", taint: str = "") -> dict[str, Any]:
    return {
        "spec": {"taints": [{"key": taint}] if taint else []},
        "status": {
            "nodeInfo": {"bootID": boot_id},
            "conditions": [{"type": "Ready", "status": ready, "message": "no network"}],
        },
    }


def test_addresses_follow_from_the_number() -> None:
    machine = RealMachine("real-7", 7)
    assert machine.address == "10.90.0.17"
    assert machine.pod_range == "10.244.7.0/24"
    assert machine.hardware_address == "02:00:0a:5a:00:11"
    several = [RealMachine("any", number) for number in range(1, 201)]
    assert len({each.address for each in several}) == 200
    assert len({each.hardware_address for each in several}) == 200


@pytest.mark.parametrize("number", [0, 201])
def test_a_number_outside_the_network_is_refused(number: int) -> None:
    with pytest.raises(ConfigError, match="it must be 1 to 200"):
        RealMachine("any", number)


def test_a_node_has_its_own_credentials_and_configuration(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    issuer = Issuer(tmp_path / "pki")
    taint = {"key": "pool", "effect": "NoSchedule"}
    machine = RealMachine("real-2", 2, taints=[taint], kubelet={"nodeLeaseDurationSeconds": 8})
    etc = tmp_path / "etc"
    write_files(machine, cast("ControlPlane", issuer), etc)
    assert issuer.users == [
        ("system:node:real-2", ("system:nodes",)),
        ("system:kube-proxy", ()),
    ]
    assert issuer.hosts == ["real-2", "10.90.0.12"]
    kubelet = json.loads((etc / "kubernetes/kubelet.json").read_text())
    assert kubelet["registerWithTaints"] == [taint]
    assert kubelet["nodeLeaseDurationSeconds"] == 8
    config = json.loads((etc / "kubernetes/kubelet.conf").read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://10.90.0.1:6443"
    network = json.loads((etc / "cni/net.d/10-pods.conflist").read_text())
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24"}]]
    assert f'sandbox = "{PAUSE}"' in (etc / "containerd/config.toml").read_text()
    private = [etc / "kubernetes" / name for name in ("kubelet.conf", "proxy.conf")]
    assert {path.stat().st_mode & 0o077 for path in private} == {0}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "not registered"),
        (status(boot_id="first"), "no report since its start"),
        (status(ready="False"), "no network"),
        (status(ready="Unknown"), "no network"),
        (
            status(taint="node.kubernetes.io/not-ready"),
            "taint node.kubernetes.io/not-ready",
        ),
        (status(taint="node.kubernetes.io/unschedulable"), ""),
        (status(), ""),
        ({"status": {"nodeInfo": {"bootID": "second"}}}, "no condition Ready"),
    ],
)
def test_a_node_is_ready_when_its_latest_start_is(found: dict[str, Any] | None, why: str) -> None:
    assert why_not_ready(cast("Node", Booted()), found) == why


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": -1}, "it must be 0 to 200"),
        ({"count": 201}, "it must be 0 to 200"),
        ({"timeout": 0.0}, "it must be above 0"),
        ({}, "its network must be a Lab"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Nodes(ControlPlane(), **settings)
