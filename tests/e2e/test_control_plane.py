"""`ControlPlane`: its promises to the authors of tests."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cases.waiting import wait_for

from navarchos.client import Client, ClientSettings, Forbidden, RequestTimeout, Resource
from navarchos.clock import SYSTEM_CLOCK
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, BucketId, Change, StatusError
from navarchos.testing.controlplane import (
    TERMINATES_AFTER,
    ControlPlane,
    PartFailed,
    find_binaries,
)
from navarchos.testing.controlplane.layout import Ports
from navarchos.testing.controlplane.servers import ControlPlaneOptions, start_control_plane
from navarchos.testing.definitions import (
    DefinitionNotReady,
    install_definitions,
    uninstall_definitions,
)
from navarchos.testing.server import Server

CRDS = Path(__file__).parents[2] / "config" / "crds"
CONFIG_MAPS: Resource[dict[str, Any]] = Resource(
    "", "v1", "configmaps", "ConfigMap", namespaced=True, type=dict
)
PODS: Resource[dict[str, Any]] = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)

# A program that runs a control plane until it is killed.
HOLDER = """
import sys
from navarchos.logs import configure
from navarchos.testing.controlplane import ControlPlane
configure()  # standard output is for the directory alone
plane = ControlPlane(scheduler=False).start()
print(plane.directory, flush=True)
sys.stdin.read()
"""


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def config_map(name: str, in_namespace: str = "default") -> dict[str, Any]:
    metadata = {"name": name, "namespace": in_namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}


def fake_node(name: str) -> dict[str, Any]:
    metadata = {
        "name": name,
        "annotations": {"kwok.x-k8s.io/node": "fake"},
        "labels": {"kubernetes.io/hostname": name},  # every kubelet sets it
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def pod(name: str, in_namespace: str, **annotations: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": in_namespace, "annotations": annotations}
    spec = {"containers": [{"name": "main", "image": "example.com/image"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def processes_of(directory: Path) -> list[str]:
    """Return the running programs with a path of this directory in their arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:  # it has just ended
            continue
        if any(str(directory) in argument for argument in arguments):
            found.append(Path(arguments[0]).name)
    return found


@pytest.mark.rule("TE-01")
def test_the_start_waits_for_readiness_and_the_stop_removes_everything(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    plane = ControlPlane()
    began = time.monotonic()
    with plane, plane.client() as client:
        ready = time.monotonic()
        assert client.server_version().startswith("v1.")
        plane.install(pod("first", "default"))
        directory = plane.directory
        assert directory.stat().st_mode & 0o777 == 0o700
        assert sorted(processes_of(directory)) == [
            "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
        ]  # fmt: skip
        stopping = time.monotonic()
    ended = time.monotonic()
    assert processes_of(directory) == []
    assert list(tmp_path.iterdir()) == []
    with capsys.disabled():
        took = f"ready in {ready - began:.1f} s, stopped in {ended - stopping:.1f} s"
        sys.stdout.write(f"\ncontrol plane: {took}\n")


@pytest.mark.rule("TE-01")
def test_kubectl_works_with_its_kubeconfig(
    control_plane: ControlPlane, kubectl_path: Path, tmp_path: Path
) -> None:
    control_plane.write_kubeconfig(tmp_path / "config")
    done = subprocess.run(
        [kubectl_path, "--kubeconfig", tmp_path / "config", "auth", "can-i", "*", "*"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "yes\n"), done.stderr


def test_a_killed_test_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with holder:
        assert holder.stdout is not None
        directory = Path(holder.stdout.readline().strip())
        assert len(processes_of(directory)) == 3
        holder.send_signal(signal.SIGKILL)
    wait_for(
        "the end of all processes and files",
        lambda: not processes_of(directory) and not list(tmp_path.iterdir()),
    )


def test_an_error_of_a_program_has_its_name_and_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    plane = ControlPlane(arguments={"kube-apiserver": ["--no-such-flag"]})
    with pytest.raises(PartFailed, match="unknown flag: --no-such-flag") as caught:
        plane.start()
    assert caught.value.part == "kube-apiserver"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.rule("TE-01")
def test_another_port_is_used_if_a_port_is_taken() -> None:
    with ExitStack() as stack:
        rival = stack.enter_context(socket.socket())
        rival.bind(("127.0.0.1", 0))
        chosen: list[Ports] = []

        def choose() -> Ports:
            ports = Ports.choose()
            if not chosen:
                ports = replace(ports, apiserver=rival.getsockname()[1])
            chosen.append(ports)
            return ports

        options = ControlPlaneOptions(controllers=False, scheduler=False, choose_ports=choose)
        running = start_control_plane(
            find_binaries(options.tools), options, stop=StopToken(), clock=SYSTEM_CLOCK
        )
        stack.callback(running.stop)
        assert len(chosen) == 2
        assert running.layout.ports == chosen[1]


@pytest.mark.rule("TE-01")
def test_the_start_fails_after_five_taken_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    chosen: list[Ports] = []
    with socket.socket() as rival:
        rival.bind(("127.0.0.1", 0))

        def choose() -> Ports:
            chosen.append(replace(Ports.choose(), etcd=rival.getsockname()[1]))
            return chosen[-1]

        options = ControlPlaneOptions(controllers=False, scheduler=False, choose_ports=choose)
        with pytest.raises(PartFailed, match="address already in use"):
            start_control_plane(
                find_binaries(options.tools), options, stop=StopToken(), clock=SYSTEM_CLOCK
            )
    assert len(chosen) == 5
    assert list(tmp_path.iterdir()) == []


def test_without_controllers_a_pod_needs_no_service_account() -> None:
    with ControlPlane(controllers=False, scheduler=False) as plane:
        plane.install(namespace("alone"), pod("first", "alone"))
        assert plane.get("pods", "first", "alone")["status"]["phase"] == "Pending"


@pytest.mark.rule("TE-02")
def test_the_definitions_are_established_and_served(control_plane: ControlPlane) -> None:
    files = sorted(CRDS.glob("*.yaml"))
    assert files
    for file in files:
        definition = yaml.safe_load(file.read_text())
        control_plane.install(definition)
        spec = definition["spec"]
        assert control_plane.list(spec["names"]["plural"], group=spec["group"]) == []
        stored = control_plane.get(
            "customresourcedefinitions",
            definition["metadata"]["name"],
            group="apiextensions.k8s.io",
        )
        conditions = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
        assert conditions["Established"] == "True"
        # The API server reports a schema that is not structural.
        assert "NonStructuralSchema" not in conditions


@pytest.mark.rule("TE-02")
def test_a_definition_with_taken_names_fails_immediately(
    control_plane: ControlPlane,
) -> None:
    def of(plural: str) -> dict[str, Any]:
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.taken.example.com"},
            "spec": {
                "group": "taken.example.com",
                "scope": "Cluster",
                "names": {"plural": plural, "kind": "Thing"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object"}},
                    }
                ],
            },
        }

    control_plane.install(of("things"))
    with pytest.raises(DefinitionNotReady, match=r'that are in use: "Thing.* in use') as caught:
        control_plane.install(of("others"))
    assert caught.value.name == "others.taken.example.com"
    with control_plane.client() as client:
        with pytest.raises(DefinitionNotReady, match="names that are in use"):
            install_definitions(client, of("others"))
        uninstall_definitions(client, of("others"), of("things"))


@pytest.fixture
def reader(control_plane: ControlPlane, tmp_path: Path) -> Client:
    """A client with the token of an account that can only read config maps."""
    control_plane.install(
        namespace("guarded"),
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "reader", "namespace": "guarded"},
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "reader", "namespace": "guarded"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "reader", "namespace": "guarded"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "reader",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "guarded"}],
        },
        config_map("seen", "guarded"),
    )
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(control_plane.service_account_kubeconfig("guarded", "reader")))
    return Client.from_config(kubeconfig=path, settings=ClientSettings(user_agent="reader/1"))


def test_a_service_account_is_limited_to_its_permissions_and_audited(
    control_plane: ControlPlane, reader: Client
) -> None:
    with reader:
        assert reader.config.namespace == "guarded"
        maps = reader.resource(CONFIG_MAPS)
        assert maps.get("seen", "guarded")["data"] == {"a": "1"}
        with pytest.raises(Forbidden, match="cannot delete resource"):
            maps.delete("seen", "guarded")
        with pytest.raises(Forbidden):
            maps.list("default")
    wait_for(
        "three requests in the audit log",
        lambda: sum(control_plane.requests_by("reader/").values()) == 3,
    )
    told = [
        (record.verb, record.resource, record.namespace, record.name, record.code)
        for record in control_plane.audit
        if record.user_agent == "reader/1"
    ]
    assert told == [
        ("get", "configmaps", "guarded", "seen", 200),
        ("delete", "configmaps", "guarded", "seen", 403),
        ("list", "configmaps", "default", "", 403),
    ]
    users = {
        event.user.username
        for event in control_plane.audit_events()
        if event.user_agent == "reader/1"
    }
    assert users == {"system:serviceaccount:guarded:reader"}


def test_an_unknown_account_gets_no_token(control_plane: ControlPlane) -> None:
    with pytest.raises(StatusError, match="missing") as caught:
        control_plane.service_account_kubeconfig("default", "missing")
    assert caught.value.code == 404


def test_a_client_can_act_as_any_user(control_plane: ControlPlane) -> None:
    with control_plane.client(user="jane", groups=["developers"]) as jane:
        with pytest.raises(Forbidden, match='User "jane" cannot list resource "pods"'):
            jane.resource(PODS).list("default")
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        answer = json.loads(jane.raw("POST", path, body=review).body)
        assert answer["status"]["userInfo"]["groups"] == ["developers", "system:authenticated"]


@pytest.fixture
def place(control_plane: ControlPlane) -> Iterator[Callable[[str, str], None]]:
    """Create a node and a namespace, and delete them after the test.

    Later tests ask where pods are placed; no node of others may be in their way.
    """
    made: list[str] = []

    def make(node: str, in_namespace: str) -> None:
        control_plane.install(fake_node(node), namespace(in_namespace))
        made.extend([f"/api/v1/namespaces/{in_namespace}", f"/api/v1/nodes/{node}"])

    yield make
    with control_plane.client() as client:
        for path in made:
            assert client.raw("DELETE", path).status == 200


def test_simulated_kubelets_run_and_terminate_pods(
    control_plane: ControlPlane, place: Callable[[str, str], None]
) -> None:
    place("kubelet-1", "kubelets")
    template = pod("", "", **{TERMINATES_AFTER: "1s"})
    control_plane.install(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "kubelets"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {
                        "labels": {"app": "web"},
                        "annotations": template["metadata"]["annotations"],
                    },
                    "spec": template["spec"],
                },
            },
        }
    )

    def available() -> int:
        found = control_plane.get("deployments", "web", "kubelets", "apps")
        return int(found.get("status", {}).get("availableReplicas", 0))

    wait_for("three pods", lambda: available() == 3)
    node = control_plane.get("nodes", "kubelet-1")
    assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][0].items()
    first = control_plane.list("pods", "kubelets")[0]
    assert first["spec"]["nodeName"] == "kubelet-1"
    with control_plane.client() as client:
        name = first["metadata"]["name"]
        client.resource(PODS).evict(name, "kubelets")
        # The termination takes one second, as its annotation says.
        assert control_plane.get("pods", name, "kubelets")["metadata"]["deletionTimestamp"]

    def is_gone() -> bool:
        names = [each["metadata"]["name"] for each in control_plane.list("pods", "kubelets")]
        return name not in names and len(names) == 3

    wait_for("another pod instead of the first", is_gone)
    wait_for("three pods", lambda: available() == 3)


def test_a_job_completes(control_plane: ControlPlane, place: Callable[[str, str], None]) -> None:
    place("kubelet-2", "jobs")
    spec = {**pod("", "")["spec"], "restartPolicy": "Never"}
    control_plane.install(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "once", "namespace": "jobs"},
            "spec": {"completions": 2, "template": {"spec": spec}},
        }
    )
    wait_for(
        "the job to end",
        lambda: control_plane.get("jobs", "once", "jobs", "batch")["status"].get("succeeded") == 2,
    )


def test_objects_survive_a_restart_and_a_watch_continues(
    control_plane: ControlPlane,
) -> None:
    changes: list[Change] = []
    undo = control_plane.subscribe(changes.append, kinds=[BucketId("configmaps", "")])
    try:
        control_plane.install(namespace("restart"), config_map("before", "restart"))
        control_plane.restart_apiserver(kill=True)
        assert control_plane.get("configmaps", "before", "restart")["data"] == {"a": "1"}
        control_plane.install(config_map("after", "restart"))
        with control_plane.client() as client:
            client.resource(CONFIG_MAPS).delete("before", "restart")

        def heard() -> list[tuple[str, str]]:
            ours = [each for each in changes if each.object["metadata"]["namespace"] == "restart"]
            names = [(each.type, each.object["metadata"]["name"]) for each in ours]
            return [each for each in names if each[1] in {"before", "after"}]

        wait_for("three changes", lambda: len(heard()) >= 3)
        assert heard() == [("ADDED", "before"), ("ADDED", "after"), ("DELETED", "before")]
        assert all(change.previous is not None for change in changes if change.type != "ADDED")
    finally:
        undo()


def test_while_etcd_is_paused_nothing_can_be_written(control_plane: ControlPlane) -> None:
    with control_plane.client() as client:
        maps = client.resource(CONFIG_MAPS)
        with control_plane.paused_etcd(), pytest.raises(RequestTimeout):
            maps.create(config_map("lost"), "default", timeout=1.0)
        maps.create(config_map("paused"), "default")


def test_after_a_compaction_an_old_page_has_no_next_one(control_plane: ControlPlane) -> None:
    control_plane.install(namespace("pages"))
    control_plane.install(*(config_map(f"page-{number}", "pages") for number in range(4)))
    path = "/api/v1/namespaces/pages/configmaps"
    with control_plane.client() as client:
        page = json.loads(client.raw("GET", path, query={"limit": "2"}).body)
        token = page["metadata"]["continue"]
        control_plane.install(config_map("later", "pages"))
        control_plane.compact()
        control_plane.restart_apiserver()
        answer = client.raw("GET", path, query={"limit": "2", "continue": token})
    assert answer.status == 410
    assert json.loads(answer.body)["reason"] == "Expired"


@pytest.fixture(params=["in-process", "real"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Both servers; a test must pass on each."""
    if request.param == "real":
        yield request.getfixturevalue("control_plane")
        return
    with ApiServer() as started:
        yield started


def test_either_server_installs_objects_with_their_status(server: Server) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "either"},
        "status": {"capacity": {"pods": "10"}},
    }
    server.install(node)
    assert server.get("nodes", "either")["status"]["capacity"] == {"pods": "10"}
    assert "either" in [each["metadata"]["name"] for each in server.list("nodes")]
    assert {each["kind"] for each in server.list("nodes")} == {"Node"}


def test_either_server_refuses_with_the_same_message(server: Server) -> None:
    cases: list[tuple[Callable[[], object], int, str, str]] = [
        (lambda: server.get("nodes", "missing"), 404, "NotFound", 'nodes "missing" not found'),
        (
            lambda: server.install({"apiVersion": "example.com/v1", "kind": "Thing"}),
            404,
            "NotFound",
            'no matches for kind "Thing" in version "example.com/v1"',
        ),
        (
            lambda: server.list("things", group="apps"),
            404,
            "NotFound",
            "no resource 'things' in group 'apps'",
        ),
    ]
    for call, code, reason, message in cases:
        with pytest.raises(StatusError) as caught:
            call()
        assert (caught.value.code, caught.value.reason) == (code, reason)
        assert caught.value.message == message


def test_either_server_counts_requests_by_user_agent(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    assert path.stat().st_mode & 0o777 == 0o600
    agent = "either/1"
    with Client.from_config(kubeconfig=path, settings=ClientSettings(user_agent=agent)) as client:
        maps = client.resource(CONFIG_MAPS)
        maps.create(config_map("either"), "default")
        maps.get("either", "default")
        maps.delete("either", "default")
    wait_for(
        "three requests in the audit log",
        lambda: [each for each in server.audit if each.user_agent == agent][2:],
    )
    counted = {verb: count for verb, count in server.requests_by(agent).items() if count}
    assert counted == {"create": 1, "get": 1, "delete": 1}
