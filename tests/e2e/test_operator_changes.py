"""Changes while a manager runs: late definitions, and rotated credentials.

These tests have a separate control plane. It has a certificate for a second name, and a
new certificate authority signs each renewal.
"""

import base64
import json
import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml
from tests.cases import clusters, manifests, tides
from tests.cases.fixtures import run_case
from tests.cases.installing import install
from tests.cases.kubectl import Kubectl
from tests.cases.managers import ManagerProcess
from tests.cases.target import CONFIG, GROUP, Target
from tests.cases.waiting import wait_for

from navarchos.client import Resource
from navarchos.crd import to_yaml
from navarchos.operator.deployment.manifests import roles
from navarchos.operator.systems import ROLLOUTS
from navarchos.stopping import StopToken
from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.controlplane.credentials import Authority, write_private
from navarchos.testing.controlplane.guard import Guard

ROTATION: Final = float(os.environ.get("NAVARCHOS_ROTATION_SECONDS", "40"))
"""The approximate duration of the rotations in seconds. `make nightly` uses 300."""
PERIOD: Final = 10.0  # how long a server knows a token that was taken back
NAME: Final = "rotating.test"
SECRETS: Final[Resource[dict[str, Any]]] = Resource(
    "", "v1", "secrets", "Secret", namespaced=True, type=dict
)

pytestmark = pytest.mark.timeout(300 + 2 * ROTATION)


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, like a kubelet."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def claims(token: str) -> dict[str, Any]:
    """Return the claims of a token, without verification."""
    payload = token.split(".")[1]
    said: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return said


class Rotation:
    """The certificate of the server for `NAME`, and the credentials in a pod.

    The files are replaced in the same order as on a cluster: first all clients also trust
    the new authority, then the server presents a certificate of it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.certificate, self.key = directory / "server.crt", directory / "server.key"
        self.trusted, self.token = directory / "ca.crt", directory / "token"
        self._authorities: list[str] = []
        self.bound_to = ""
        self.credential = ""
        self.prepare()
        self.switch()

    def prepare(self) -> None:
        """Trust a new authority and the previous one, but no older ones."""
        number = len(self._authorities)
        directory = self._directory / f"authority-{number}"
        directory.mkdir()
        authority = Authority(directory)
        self._next = authority.issue_server("server", [NAME])
        self._authorities.append(authority.files.certificate.read_text(encoding="utf-8"))
        replace_file(self.trusted, "".join(self._authorities[-2:]))

    def switch(self) -> None:
        """Give the server a certificate of the newest authority."""
        shutil.copy(self._next.key, self.key)
        replace_file(self.certificate, self._next.certificate.read_text(encoding="utf-8"))

    def is_shown(self, plane: ControlPlane) -> bool:
        """Return whether the server presents the certificate of the newest authority."""
        newest = ssl.create_default_context(cadata=self._authorities[-1])
        url = urlsplit(plane.url)
        assert url.hostname is not None
        assert url.port is not None
        try:
            with (
                socket.create_connection((url.hostname, url.port), timeout=10) as plain,
                newest.wrap_socket(plain, server_hostname=NAME),
            ):
                return True
        except ssl.SSLCertVerificationError:
            return False

    def renew_token(self, target: Target) -> None:
        """Write a new token, and revoke the previous one."""
        former, self.bound_to = self.bound_to, f"token-{time.monotonic_ns()}"
        secrets = target.client.resource(SECRETS)
        secrets.create({"metadata": {"name": self.bound_to}}, "kube-system")
        bound = {"apiVersion": "v1", "kind": "Secret", "name": self.bound_to}
        body = {"spec": {"expirationSeconds": 3600, "boundObjectRef": bound}}
        answer: Any = target.of("ServiceAccount").create_subresource(
            "navarchos", "token", body, "kube-system"
        )
        token = str(answer["status"]["token"])
        self.credential = f"JTI={claims(token)['jti']}"
        replace_file(self.token, token)
        if former:
            secrets.delete(former, "kube-system")

    def write_kubeconfig(self, path: Path, target: Target) -> None:
        """Write a kubeconfig with these files as credentials."""
        target.write_account_kubeconfig(path, "kube-system", "navarchos")
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        for entry in config["clusters"]:
            entry["cluster"].pop("certificate-authority-data", None)
            entry["cluster"] |= {
                "certificate-authority": str(self.trusted),
                "tls-server-name": NAME,
            }
        for entry in config["users"]:
            entry["user"] = {"tokenFile": str(self.token)}
        path.unlink()
        write_private(path, json.loads(json.dumps(config)))


@pytest.fixture(scope="module")
def rotation(tmp_path_factory: pytest.TempPathFactory) -> Rotation:
    return Rotation(tmp_path_factory.mktemp("rotation"))


@pytest.fixture(scope="module")
def plane(rotation: Rotation) -> Iterator[ControlPlane]:
    pair = f"{rotation.certificate},{rotation.key}:{NAME}"
    arguments = {"kube-apiserver": [f"--tls-sni-cert-key={pair}"]}
    with ControlPlane(arguments=arguments) as plane:
        plane.kwok()
        yield plane


@pytest.fixture(scope="module")
def changing(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with clusters.real(plane, tmp_path_factory.mktemp("changing")) as target:
        yield target


@pytest.fixture
def kubectl(changing: Target, kubectl_path: Path, tmp_path: Path) -> Kubectl:
    """The kubectl of the administrator, with the operator installed."""
    kubectl = Kubectl(kubectl_path, changing.kubeconfig, tmp_path)
    install(kubectl)
    return kubectl


def samples(manager: ManagerProcess, name: str) -> float:
    """Return the sum of the series of a metric."""
    lines = manager.metrics().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{"))


def are_kinds_gone(kubectl: Kubectl) -> bool:
    """Return whether no kind is left, and let the server try again to remove the others.

    The server removes the objects of a deleted kind first. If that fails, for example because the
    kind is not served yet, it tries again after a pause that doubles each time: on a busy machine
    it took longer than four minutes. A change of the definition ends the pause.
    """
    kinds = kubectl("get", "crds", "-o", "name").split()
    for kind in kinds:
        # It may be gone by now.
        kubectl.run("annotate", kind, "--overwrite", f"example.com/seen-at={time.monotonic()}")
    return not kinds


def logs_missing_kinds(manager: ManagerProcess) -> bool:
    return "kinds_missing" in manager.log()


@pytest.mark.rule("OP-61")
def test_a_manager_waits_for_missing_definitions(
    request: pytest.FixtureRequest,
    changing: Target,
    kubectl: Kubectl,
    guard: Guard,
    tmp_path: Path,
) -> None:
    kubectl("delete", "-f", str(CONFIG / "crds"), "--wait=false")
    wait_for("the deletion of the kinds", partial(are_kinds_gone, kubectl), timeout=240)
    account = tmp_path / "account"
    changing.write_account_kubeconfig(account, "kube-system", "navarchos")
    managers = [ManagerProcess(guard, f"early-{name}", account) for name in ("one", "two")]
    try:
        for manager in managers:
            manager.launch()
        for manager in managers:
            wait_for("a line about the missing kinds", partial(logs_missing_kinds, manager))
        StopToken().wait(11)  # they check again every five seconds
        for manager in managers:
            assert not manager.is_ready(), "ready without its kinds"
            lines = [line for line in manager.log().splitlines() if "kinds_missing" in line]
            assert len(lines) == 1, lines
            assert f"nodedrains.{GROUP}" in lines[0]
            assert "kubectl create -f config/crds" in lines[0]
            assert manager.exit_status() is None
        kubectl("create", "-f", str(CONFIG / "crds"))
        for manager in managers:
            wait_for(f"{manager.name} to be ready", manager.is_ready)
        with run_case(request.node, changing, guard, account) as case:
            node, _ = case.add_nodes(2)
            case.add(manifests.deployment(case.name, "web", 2, ends_in="0.5s"))
            case.roll(nodeSelectors=[], nodeNames=[{"name": node}])
            case.wait_for_phase("Completed")
        assert [manager.stop() for manager in managers] == [0, 0]
    finally:
        for manager in managers:
            if manager.is_started:
                manager.stop()


@pytest.mark.rule("NP-50")
def test_a_system_waits_for_its_permissions_alone(
    request: pytest.FixtureRequest,
    changing: Target,
    kubectl: Kubectl,
    guard: Guard,
    tmp_path: Path,
) -> None:
    """The kinds of a second system are installed; the shipped roles are for rollouts only."""
    cluster_role, *_ = roles((ROLLOUTS, tides.TIDES))
    files = {"definition": tides.DEFINITION, "cluster_role": cluster_role}
    paths = {name: tmp_path / f"{name}.yaml" for name in files}
    for name, found in files.items():
        paths[name].write_text(to_yaml([found]), encoding="utf-8")
    account = tmp_path / "account"
    changing.write_account_kubeconfig(account, "kube-system", "navarchos")
    kubectl("create", "-f", str(paths["definition"]))
    kubectl("wait", "--for=condition=Established", "-f", str(paths["definition"]))
    program = ("-c", tides.PROGRAM)
    manager = ManagerProcess(guard, "tidal", account, "--controllers=*", program=program)
    changing.client.resource(tides.TIDE_RESOURCE).create({"metadata": {"name": "spring"}})
    try:
        manager.launch()
        wait_for("the other system", lambda: manager.is_ready(without="tides"))
        assert manager.readiness("tides").startswith(
            "the manager may not list and watch tides.tides.example.org: tides.tides.example.org "
            'is forbidden: User "system:serviceaccount:kube-system:navarchos" cannot list'
        )
        assert not manager.is_ready()
        with run_case(request.node, changing, guard, account) as case:
            node, _ = case.add_nodes(2)
            case.add(manifests.deployment(case.name, "web", 2, ends_in="0.5s"))
            case.roll(nodeSelectors=[], nodeNames=[{"name": node}])
            case.wait_for_phase("Completed")
        assert manager.log().count('"permissions_missing"') == 1
        kubectl("replace", "-f", str(paths["cluster_role"]))
        wait_for("the system to start", manager.is_ready)
        seen = partial(kubectl, "get", "tides", "-l", "seen=yes", "-o", "name")
        wait_for("its controller", lambda: "spring" in seen())
        assert manager.stop() == 0
    finally:
        if manager.is_started:
            manager.stop()
        kubectl("delete", "-f", str(paths["definition"]))


@pytest.mark.usefixtures("kubectl")
def test_no_reconcile_fails_while_token_and_authority_rotate(
    request: pytest.FixtureRequest,
    plane: ControlPlane,
    changing: Target,
    rotation: Rotation,
    guard: Guard,
    tmp_path: Path,
) -> None:
    account = tmp_path / "account"
    rotation.renew_token(changing)
    rotation.write_kubeconfig(account, changing)
    rounds = int(ROTATION / PERIOD)
    with run_case(request.node, changing, guard, account) as case:
        nodes = case.add_nodes(rounds)
        case.add(manifests.daemon_set(case.name, "agent"))
        manager = case.manager("--sync-period=5s")
        for number, node in enumerate(nodes):
            rotate(rotation, plane, changing)
            name = f"{case.name}-{number}"
            case.create(
                manifests.rollout(case.name, name, nodeSelectors=[], nodeNames=[{"name": node}])
            )
            case.wait_for_phase("Completed", name=name)
            # The manager may use the new token before the server rejects the revoked one.
            wait_for("a request with the new token", lambda: is_used(plane, rotation.credential))
        assert_nothing_failed(manager, rounds)


def rotate(rotation: Rotation, plane: ControlPlane, target: Target) -> None:
    """Rotate all credentials; open connections stay open until a 401."""
    rotation.prepare()
    rotation.switch()
    wait_for("the server to show its new certificate", lambda: rotation.is_shown(plane))
    rotation.renew_token(target)


def is_used(plane: ControlPlane, credential: str) -> bool:
    return any(event.user.credential == credential for event in plane.audit_events())


def assert_nothing_failed(manager: ManagerProcess, rounds: int) -> None:
    refused = [
        line
        for line in manager.metrics().splitlines()
        if line.startswith("rest_client_requests_total") and 'code="401"' in line
    ]
    assert refused, "no token that was taken back was sent, so nothing was shown"
    assert samples(manager, "controller_runtime_reconcile_total") > rounds
    failures = ("reconcile_errors", "terminal_reconcile_errors", "reconcile_panics")
    for name in (*failures, "reconcile_timeouts"):
        assert samples(manager, f"controller_runtime_{name}_total") == 0, manager.log()
    assert manager.is_leader()
