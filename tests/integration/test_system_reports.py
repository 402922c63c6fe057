"""`status` and `plan` with another system on the server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cases.tides import DEFINITION, TIDE_RESOURCE

from navarchos.cli import controllers, plan, status
from navarchos.client import Client, ClientConfig
from navarchos.operator.api.v1alpha1 import NODE_ROLLOUTS
from navarchos.operator.api.v1alpha1.definitions import manifests as definitions
from navarchos.testing import FakeClock
from navarchos.testing.apiserver import ApiServer, Fault
from navarchos.testing.definitions import install_definitions


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version with two systems."""
    monkeypatch.setitem(controllers.MODULES, "tides", ("tests.cases.tides", "TIDES"))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=definitions()) as server:
        for name in ("a", "b"):
            server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(host=server.url)) as client:
        spec = {"nodeSelectors": [{"matchAll": True}]}
        client.resource(NODE_ROLLOUTS).create({"metadata": {"name": "roll"}, "spec": spec})
        yield client


def add_tide(client: Client, name: str, *, is_high: bool = False, **spec: str) -> None:
    body = {"metadata": {"name": name}, "spec": {"isHigh": is_high, **spec}}
    client.resource(TIDE_RESOURCE).create(body)


def call(server: ApiServer, tmp_path: Path, command: Any, *arguments: str) -> Result:
    kubeconfig = tmp_path / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    return CliRunner().invoke(
        command, [*arguments, f"--kubeconfig={kubeconfig}"], standalone_mode=False
    )


@pytest.mark.rule("NP-50")
def test_status_shows_what_installed_systems_report(
    server: ApiServer, client: Client, tmp_path: Path
) -> None:
    before = json.loads(call(server, tmp_path, status.status, "-o", "json").output)
    assert set(before) == {"rollouts", "drains", "outOfDateBecause"}
    install_definitions(client, DEFINITION)
    add_tide(client, "spring", is_high=True)
    assert json.loads(call(server, tmp_path, status.status, "-o", "json").output) == {
        **before,
        "systems": {"tides": ["spring"]},
    }
    lines = call(server, tmp_path, status.status).output.splitlines()
    assert lines[-1] == "tides: spring"
    named = call(server, tmp_path, status.status, "roll").output
    assert "roll" in named
    assert "tides" not in named


def test_a_report_is_read_again_after_a_while_and_outlives_a_lost_connection(
    server: ApiServer, client: Client
) -> None:
    install_definitions(client, DEFINITION)
    add_tide(client, "spring", is_high=True)
    clock = FakeClock()
    reports = status.SystemReports(client, clock=clock)
    add_tide(client, "neap", is_high=False)
    assert reports.read() == {"tides": ["spring"]}
    clock.advance(6)
    assert reports.read() == {"tides": ["neap", "spring"]}
    server.faults.add(Fault(verb="list", resource="tides", status=500))
    clock.advance(6)
    assert reports.read() == {"tides": ["neap", "spring"]}
    assert reports.lines(reports.read()) == ["tides: neap, spring"]


def test_status_goes_on_without_a_system_that_the_user_may_not_read(
    server: ApiServer, client: Client, tmp_path: Path
) -> None:
    install_definitions(client, DEFINITION)
    for _ in range(2):
        server.faults.add(Fault(verb="list", resource="tides", status=403))
    found = json.loads(call(server, tmp_path, status.status, "-o", "json").output)
    assert [rollout["name"] for rollout in found["rollouts"]] == ["roll"]
    assert "tides" in found["systems"]["tides"]["notRead"]
    lines = call(server, tmp_path, status.status).output.splitlines()
    assert lines[-1].startswith("tides: not read: ")


@pytest.mark.rule("NP-50")
def test_plan_shows_the_findings_of_installed_systems(
    server: ApiServer, client: Client, tmp_path: Path
) -> None:
    before = call(server, tmp_path, plan.plan, "roll")
    assert "nothing would block" in before.output
    install_definitions(client, DEFINITION)
    add_tide(client, "b", is_high=True)
    after = call(server, tmp_path, plan.plan, "roll")
    assert "something would block" in after.output
    assert "Blocks  Flooded  b: the tide is high" in after.output
    assert after.return_value == 1


@pytest.mark.rule("NP-04")
@pytest.mark.rule("NP-05")
@pytest.mark.rule("NP-50")
def test_plan_names_what_installed_systems_hold_and_need(
    server: ApiServer, client: Client, tmp_path: Path
) -> None:
    server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "c"}})
    install_definitions(client, DEFINITION)
    add_tide(client, "neap", holds="c", needs="a")
    result = json.loads(call(server, tmp_path, plan.plan, "roll", "-o", "json").output)
    (rollout,) = result["rollouts"]
    assert [(node["name"], node["starts"], node["message"]) for node in rollout["nodes"]] == [
        ("a", "NodeNeeded", "a ship leaves"),
        ("b", "MaxConcurrent", "1 of 1 nodes in flight: Tide neap"),
        ("c", "NodeInFlight", "Tide neap is working on this node"),
    ]
    lines = call(server, tmp_path, plan.plan, "roll").output.splitlines()
    assert "      1 of 1 nodes in flight: Tide neap" in lines


def test_a_plan_says_which_systems_it_could_not_read(
    server: ApiServer, client: Client, tmp_path: Path
) -> None:
    install_definitions(client, DEFINITION)
    server.faults.add(Fault(verb="list", resource="tides", status=403))
    server.faults.add(Fault(verb="list", resource="tides", status=403))
    done = call(server, tmp_path, plan.plan, "roll", "-o", "json")
    (rollout,) = json.loads(done.output)["rollouts"]
    messages = [found["message"] for found in rollout["findings"]]
    assert len([message for message in messages if "of tides were not read" in message]) == 2
    assert [node["starts"] for node in rollout["nodes"]] == ["Now", "MaxConcurrent"]
    assert not rollout["isBlocked"]
