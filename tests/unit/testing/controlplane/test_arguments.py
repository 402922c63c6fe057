from dataclasses import replace
from pathlib import Path

import pytest

from navarchos.testing.controlplane.layout import Layout, Ports
from navarchos.testing.controlplane.servers import (
    AUDIT_POLICY,
    apiserver_arguments,
    controller_manager_arguments,
    etcd_arguments,
    kwok_arguments,
    scheduler_arguments,
)

LAYOUT = Layout(Path("/plane"), Ports(1, 2, 3, 4, 5))


def flags(arguments: object) -> dict[str, str]:
    assert isinstance(arguments, tuple)
    found = {}
    for argument in arguments:
        assert argument.startswith("--")
        name, _, value = argument[2:].partition("=")
        assert name not in found
        found[name] = value
    return found


EVERYTHING = {
    "etcd": flags(etcd_arguments(LAYOUT)),
    "kube-apiserver": flags(apiserver_arguments(LAYOUT)),
    "kube-controller-manager": flags(controller_manager_arguments(LAYOUT)),
    "kube-scheduler": flags(scheduler_arguments(LAYOUT)),
    "kwok": flags(kwok_arguments(LAYOUT, all_nodes=False)),
}


@pytest.mark.parametrize("part", EVERYTHING)
def test_everything_listens_on_loopback_only(part: str) -> None:
    found = EVERYTHING[part]
    for name in ("bind-address", "listen-client-urls", "listen-peer-urls", "server-address"):
        assert "127.0.0.1" in found.get(name, "127.0.0.1")
    assert "0.0.0.0" not in str(found)


@pytest.mark.parametrize("part", EVERYTHING)
def test_every_file_is_in_the_directory(part: str) -> None:
    paths = [value for value in EVERYTHING[part].values() if value.startswith("/")]
    assert paths
    assert all(path.startswith("/plane/") for path in paths)


def test_the_api_server_authorizes_as_a_kubeadm_cluster_does() -> None:
    found = EVERYTHING["kube-apiserver"]
    assert found["authorization-mode"] == "Node,RBAC"
    assert found["enable-admission-plugins"] == "NodeRestriction"
    assert "disable-admission-plugins" not in found
    assert found["etcd-servers"] == EVERYTHING["etcd"]["listen-client-urls"]


def test_without_controllers_pods_need_no_service_account() -> None:
    found = flags(apiserver_arguments(LAYOUT, service_accounts=False))
    assert found["disable-admission-plugins"] == "ServiceAccount"


def test_one_replica_elects_no_leader() -> None:
    for part in ("kube-controller-manager", "kube-scheduler"):
        assert EVERYTHING[part]["leader-elect"] == "false"


def test_tokens_are_signed_with_the_key_that_checks_them() -> None:
    server, manager = EVERYTHING["kube-apiserver"], EVERYTHING["kube-controller-manager"]
    signing = server["service-account-signing-key-file"]
    assert signing == manager["service-account-private-key-file"]
    assert server["service-account-key-file"] == signing.replace(".key", ".pub")


def test_kwok_runs_the_marked_nodes_or_all() -> None:
    assert EVERYTHING["kwok"]["manage-all-nodes"] == "false"
    marked = EVERYTHING["kwok"]["manage-nodes-with-annotation-selector"]
    assert marked == "kwok.x-k8s.io/node=fake"
    everywhere = flags(kwok_arguments(LAYOUT, all_nodes=True))
    assert everywhere["manage-all-nodes"] == "true"
    assert "manage-nodes-with-annotation-selector" not in everywhere


def test_all_but_health_is_audited() -> None:
    rules = AUDIT_POLICY["rules"]
    assert rules == [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {"level": "Metadata"},
    ]


def test_ports_are_different_from_each_other() -> None:
    chosen = Ports.choose()
    numbers = {
        chosen.etcd,
        chosen.apiserver,
        chosen.controller_manager,
        chosen.scheduler,
        chosen.kwok,
    }
    chosen.release()
    assert numbers == {each.number for each in chosen.held}
    assert len(numbers) == 5


def test_an_api_server_for_nodes_has_an_address_that_is_not_loopback() -> None:
    layout = replace(LAYOUT, address="10.90.0.1")
    found = flags(apiserver_arguments(layout))
    assert found["bind-address"] == "0.0.0.0"
    assert found["advertise-address"] == "10.90.0.1"
    assert found["endpoint-reconciler-type"] == "lease"
    assert found["kubelet-certificate-authority"] == str(layout.authority)
    assert found["kubelet-preferred-address-types"] == "InternalIP"
    assert layout.internal_url == f"https://10.90.0.1:{layout.ports.apiserver}"
    assert layout.url == LAYOUT.url == LAYOUT.internal_url


def test_an_api_server_without_nodes_knows_no_kubelets() -> None:
    found = flags(apiserver_arguments(LAYOUT))
    assert [name for name in found if "kubelet" in name] == []
    assert found["endpoint-reconciler-type"] == "none"
