"""`--controllers` on real processes: what a manager imports, requests and waits for."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

import pytest
from tests.cases.tides import DEFINITION, PROGRAM, TIDE_RESOURCE, TIDES
from tests.cases.waiting import wait_for

from navarchos.cli.sandbox import runner
from navarchos.cli.sandbox.clusters import SimulatedCluster
from navarchos.client import Client, ClientConfig, Resource
from navarchos.operator.api.v1alpha1 import NODE_ROLLOUTS
from navarchos.operator.api.v1alpha1.definitions import manifests as definitions
from navarchos.operator.deployment.manifests import manager_rbac, manifests, roles
from navarchos.operator.systems import ROLLOUTS, System
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.definitions import install_definitions

LIMIT = 60.0

OPERATOR: Final = "navarchos.operator"
ROOT = Path(__file__).parents[2]

CLUSTER_ROLES: Final[Resource[dict[str, Any]]] = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False, type=dict
)


class Process:
    """`navarchos manager` with some controllers, which ends with its standard input."""

    def __init__(self, kubeconfig: Path, *flags: str) -> None:
        off = ("--metrics-addr=0", "--health-addr=0", "--until-stdin-closes")
        config = f"--kubeconfig={kubeconfig}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "manager", config, *off, *flags],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._lines: list[str] = []  # guarded by _read
        self._read = threading.Condition()
        self._reader = threading.Thread(target=self._follow, args=[self._process.stderr])
        self._reader.start()

    def _follow(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._read:
                    self._lines.append(line)
                    self._read.notify_all()

    def events(self) -> list[dict[str, Any]]:
        """Return the log lines."""
        with self._read:
            return [json.loads(line) for line in self._lines if line.startswith("{")]

    def wait_for(self, event: str, **fields: str) -> dict[str, Any]:
        """Return the first log line about an event with these fields."""

        def found() -> list[dict[str, Any]]:
            wanted = {"event": event, **fields}.items()
            return [line for line in self.events() if wanted <= line.items()]

        with self._read:
            assert self._read.wait_for(found, LIMIT), self._lines
        return found()[0]

    def end(self) -> set[str]:
        """End the process, and return the names of the modules that it had imported."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(LIMIT) == 0
        self._reader.join(LIMIT)
        with self._read:
            (modules,) = [line for line in self._lines if line.startswith("modules:")]
        return set(modules.split())

    def kill(self) -> None:
        """End the process, whatever its state."""
        self._process.kill()
        with self._process:
            self._reader.join()


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=definitions()) as server:
        server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(host=server.url, user_agent="person")) as client:
        yield client


@pytest.fixture
def start(server: ApiServer, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start a manager; it is killed if it still runs at the end."""
    administrator, started = tmp_path / "kubeconfig", list[Process]()
    server.write_kubeconfig(administrator)

    def start(*flags: str, kubeconfig: Path = administrator) -> Process:
        started.append(Process(kubeconfig, *flags))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def wait_until(server: ApiServer, reached: Callable[[], bool]) -> None:
    """Wait for a state of the objects, checked after each write."""
    happened = threading.Event()
    withdraw = server.subscribe(lambda _: happened.set() if reached() else None)
    try:
        assert reached() or happened.wait(LIMIT)
    finally:
        withdraw()


def roll(server: ApiServer, client: Client) -> None:
    """Create a rollout and wait for its end."""
    spec = {"nodeNames": [{"name": "a"}]}
    client.resource(NODE_ROLLOUTS).create({"metadata": {"name": "roll"}, "spec": spec})

    def is_completed() -> bool:
        (found,) = server.list("noderollouts", group=NODE_ROLLOUTS.group)
        return bool(found.get("status", {}).get("phase") == "Completed")

    wait_until(server, is_completed)


def tide_is_seen(server: ApiServer) -> bool:
    tides = server.list("tides", group=TIDE_RESOURCE.group)
    return any("seen" in tide["metadata"].get("labels", {}) for tide in tides)


def requests(server: ApiServer) -> set[tuple[str, str]]:
    """Return the verbs and the kinds of all requests of the manager."""
    return {
        ("create", "pods/eviction")
        if record.verb == "evict"
        else (record.verb, f"{record.resource}/{record.subresource}".rstrip("/"))
        for record in server.audit
        if record.user_agent.startswith("navarchos-manager")
    }


def granted(*systems: System) -> set[tuple[str, str]]:
    return {
        (verb, rule.target)
        for rules in manager_rbac(systems).values()
        for rule in rules
        for verb in rule.verbs
    }


@pytest.mark.rule("NP-51")
@pytest.mark.parametrize("flags", [(), ("--controllers=rollouts",), ("--controllers=*,-tides",)])
def test_a_manager_without_a_system_knows_nothing_of_it(
    server: ApiServer, client: Client, start: Callable[..., Process], flags: tuple[str, ...]
) -> None:
    """Its definitions are installed, and it has objects: the manager does not read them."""
    install_definitions(client, DEFINITION)
    client.resource(TIDE_RESOURCE).create({"metadata": {"name": "spring"}})
    process = start(*flags)
    roll(server, client)
    modules = process.end()
    assert "tests.cases.tides" not in modules
    assert {each for each in modules if each.startswith("navarchos.crd")} == set()
    assert requests(server) - granted(ROLLOUTS) == set()
    assert {kind for _, kind in requests(server)} & {"tides", "customresourcedefinitions"} == set()
    assert not tide_is_seen(server)


@pytest.mark.rule("NP-51")
def test_a_manager_runs_only_the_controllers_that_its_systems_need(
    server: ApiServer, client: Client, start: Callable[..., Process]
) -> None:
    install_definitions(client, DEFINITION)
    client.resource(TIDE_RESOURCE).create({"metadata": {"name": "spring"}})
    process = start("--controllers=tides")
    wait_until(server, lambda: tide_is_seen(server))
    for controller in ("drains", "tides"):
        process.wait_for("controller_started", controller=controller)
    modules = process.end()
    assert "tests.cases.tides" in modules
    assert f"{OPERATOR}.drains" in modules
    absent = [f"{OPERATOR}.{name}" for name in ("rollouts", "replacements", "taints", "jobs")]
    absent += ["navarchos.testing", f"{OPERATOR}.preflight"]
    assert [name for name in absent if name in modules] == []
    assert requests(server) - granted(TIDES) == set()
    lines = [line for line in process.events() if line["event"] == "controller_started"]
    started = [line["controller"] for line in lines]
    assert sorted(started) == ["drains", "tides"]


@pytest.mark.rule("NP-50")
@pytest.mark.rule("OP-61")
def test_a_system_without_its_definitions_does_not_stop_the_others(
    server: ApiServer, client: Client, start: Callable[..., Process]
) -> None:
    process = start("--controllers=*")
    line = process.wait_for("kinds_missing")
    assert line["feature"] == "tides"
    assert line["error"] == "the server does not serve tides.tides.example.org"
    assert line["hint"] == (
        "install the CustomResourceDefinitions: kubectl create -f config/crds/tides"
    )
    roll(server, client)
    install_definitions(client, DEFINITION)
    client.resource(TIDE_RESOURCE).create({"metadata": {"name": "spring"}})
    wait_until(server, lambda: tide_is_seen(server))
    process.end()
    assert requests(server) - granted(ROLLOUTS, TIDES) == set()
    names = [line["event"] for line in process.events()]
    assert names.count("kinds_missing") == 1


@pytest.fixture
def strict() -> Iterator[ApiServer]:
    """A server that checks permissions, with the shipped roles of rollouts only."""
    with ApiServer(crds=definitions(), rbac=True) as server:
        server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})
        server.install(*manifests((ROLLOUTS,)))
        yield server


@pytest.mark.rule("NP-50")
def test_a_system_without_its_permissions_does_not_stop_the_others(
    strict: ApiServer, tmp_path: Path, start: Callable[..., Process]
) -> None:
    account = tmp_path / "account"
    account.write_text(json.dumps(strict.service_account_kubeconfig("kube-system", "navarchos")))
    with strict.client(user_agent="person") as client:
        install_definitions(client, DEFINITION)
        client.resource(TIDE_RESOURCE).create({"metadata": {"name": "spring"}})
        process = start("--controllers=*", kubeconfig=account)
        line = process.wait_for("permissions_missing")
        assert line["feature"] == "tides"
        assert 'User "system:serviceaccount:kube-system:navarchos" cannot list' in line["error"]
        assert line["hint"] == (
            "grant its permissions: navarchos manifests "
            "--controllers=rollouts,readiness-gates,tides | "
            "kubectl apply -f -"
        )
        roll(strict, client)
        assert not tide_is_seen(strict)
        for role in (each for each in roles((ROLLOUTS, TIDES)) if each["kind"] == "ClusterRole"):
            client.resource(CLUSTER_ROLES).patch("navarchos", {"rules": role["rules"]})
        wait_until(strict, lambda: tide_is_seen(strict))
        process.wait_for("feature_started")
    process.end()
    names = [line["event"] for line in process.events()]
    assert names.count("permissions_missing") == 1


def test_an_unknown_name_is_one_line() -> None:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, "manager", "--controllers=*,upgrades"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    line, _modules = process.stderr.splitlines()
    assert line == (
        "navarchos: --controllers='upgrades': this version has no such controllers; "
        "it has rollouts, readiness-gates, tides"
    )
    assert process.returncode == 2


@pytest.mark.rule("NP-53")
@pytest.mark.parametrize("systems", [(ROLLOUTS, TIDES), (TIDES,)], ids=["both", "tides"])
def test_the_sandbox_runs_other_systems_and_plays_what_they_need(
    monkeypatch: pytest.MonkeyPatch, systems: tuple[System, ...]
) -> None:
    monkeypatch.setattr(runner, "PROGRAM", (sys.executable, "-c", PROGRAM))
    monkeypatch.chdir(ROOT)
    played: list[str] = []

    @contextmanager
    def play(server: ApiServer, cluster: object) -> Iterator[None]:
        played.append("begins")
        server.install(
            {"apiVersion": "tides.example.org/v1", "kind": "Tide", "metadata": {"name": "spring"}}
        )
        yield
        played.append("ends")

    changed = tuple(replace(each, simulate=play) if each is TIDES else each for each in systems)
    options = runner.SandboxOptions(systems=changed)
    cluster = SimulatedCluster.of_size(2, 1, 20.0, port=0, systems=changed)
    with (
        runner.Sandbox(cluster, options) as sandbox,
        Client.from_config(kubeconfig=sandbox.kubeconfig) as client,
    ):
        tides = client.resource(TIDE_RESOURCE)
        wait_for("the controller of tides", lambda: "seen" in tides.get("spring").metadata.labels)
        assert client.has_kind(NODE_ROLLOUTS)
        assert played == ["begins"]
    assert played == ["begins", "ends"]
