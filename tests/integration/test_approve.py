"""`navarchos approve`: what it writes, and the one line for each wrong use."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from navarchos.cli.commands import cli
from navarchos.cli.errors import CommandError
from navarchos.client import Client, ClientConfig
from navarchos.operator.api.v1alpha1 import NODE_ROLLOUTS
from navarchos.operator.api.v1alpha1.definitions import manifests as definitions
from navarchos.operator.names import APPROVE_ANNOTATION
from navarchos.testing.apiserver import ApiServer

WAVES = {"waves": [{"upTo": 1, "approval": True}, {"upTo": 2}]}
WAITING = {"number": 1, "of": 2, "upTo": 1, "state": "AwaitingApproval"}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=definitions()) as server:
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(host=server.url)) as client:
        yield client


def add(client: Client, wave: dict[str, Any] | None = None, **spec: Any) -> None:
    """Create a rollout with this current wave."""
    rollouts = client.resource(NODE_ROLLOUTS)
    body = {"nodeNames": [{"name": "a"}, {"name": "b"}], **spec}
    rollouts.create({"metadata": {"name": "roll"}, "spec": body})
    if wave is not None:
        phase = wave.pop("phase", "InProgress")
        rollouts.patch("roll", {"status": {"phase": phase, "wave": wave}}, subresource="status")


def approve(server: ApiServer, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run the command and return its result; an error is one line."""
    kubeconfig = tmp_path / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    words = ["approve", *arguments, "-o", "json", f"--kubeconfig={kubeconfig}"]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    if isinstance(done.exception, CommandError):
        assert "\n" not in str(done.exception)
    if done.exception is not None:
        raise done.exception
    result: dict[str, Any] = json.loads(done.output.splitlines()[-1])
    return result


@pytest.mark.rule("NP-43")
def test_a_second_approval_of_the_same_wave_writes_nothing(
    server: ApiServer, client: Client, tmp_path: Path
) -> None:
    add(client, dict(WAITING), strategy=WAVES)
    first = approve(server, tmp_path, "roll")
    assert (first["action"], first["changed"]) == ("Approved", True)
    found = client.resource(NODE_ROLLOUTS).get("roll").metadata
    assert json.loads(found.annotations[APPROVE_ANNOTATION])["wave"] == 1
    again = approve(server, tmp_path, "roll", "--wave", "1")
    assert (again["action"], again["changed"]) == ("Approved", False)
    after = client.resource(NODE_ROLLOUTS).get("roll").metadata
    assert after.resource_version == found.resource_version


@pytest.mark.rule("NP-43")
@pytest.mark.parametrize(
    ("wave", "spec", "arguments", "message"),
    [
        (None, {}, (), "rollout roll has no waves, so that nothing waits for an approval"),
        (
            None,
            {"strategy": WAVES},
            (),
            "no wave of rollout roll waits for an approval: it has not started",
        ),
        (
            {**WAITING, "state": "Soaking"},
            {"strategy": WAVES},
            (),
            "no wave of rollout roll waits for an approval: wave 1 of 2 is Soaking",
        ),
        (
            WAITING,
            {"strategy": WAVES},
            ("--wave", "2"),
            "wave 2 of rollout roll does not wait for an approval: wave 1 does",
        ),
        (
            {**WAITING, "phase": "Completed"},
            {"strategy": WAVES},
            (),
            "rollout roll is Completed, so that nothing waits for an approval",
        ),
    ],
    ids=["no-waves", "not-started", "soaking", "another-wave", "completed"],
)
def test_a_wrong_approval_is_one_line_and_writes_nothing(
    server: ApiServer,
    client: Client,
    tmp_path: Path,
    wave: dict[str, Any] | None,
    spec: dict[str, Any],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    add(client, None if wave is None else dict(wave), **spec)
    with pytest.raises(CommandError) as refused:
        approve(server, tmp_path, "roll", *arguments)
    assert str(refused.value) == message
    assert client.resource(NODE_ROLLOUTS).get("roll").metadata.annotations == {}
