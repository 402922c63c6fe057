"""Commands that fail: one line on standard error, and an exit status."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import CommandLine, Finished

from navarchos.operator.api.v1alpha1.definitions import manifests
from navarchos.operator.names import RESUME_ANNOTATION
from navarchos.testing.apiserver import ApiServer

ROLLOUT = """
apiVersion: navarchos.pusher.com/v1alpha1
kind: NodeRollout
metadata: {generateName: rollout-}
spec: {nodeSelectors: [{matchAll: true}]}
"""


Manifest = Callable[[str], str]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(crds=manifests()) as server:
        yield server


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Path) -> str:
    server.write_kubeconfig(tmp_path / "kubeconfig")
    return str(tmp_path / "kubeconfig")


def one_line(done: Finished, status: int) -> str:
    assert (done.status, done.stdout) == (status, ""), done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("navarchos: ")
    return line


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (("status", "missing"), 4, '"missing" not found'),
        (("pause", "missing"), 4, '"missing" not found'),
        (("resume", "missing", "-o", "json"), 4, '"missing" not found'),
        (("abort", "missing"), 4, '"missing" not found'),
        (("plan", "missing"), 4, '"missing" not found'),
        (("drain", "missing"), 4, '"missing" not found'),
        (("pause",), 2, "Missing argument"),
        (("plan",), 2, "either the NAME of a rollout or -f FILE"),
        (("plan", "a", "-f", "b"), 2, "either the NAME of a rollout or -f FILE"),
        (("plan", "-f", "missing.yml"), 2, "missing.yml: cannot be read"),
        (("drain", "a", "--timeout", "soon"), 2, "soon"),
        (("drain", "a", "--grace-period", "-2"), 2, "-2"),
        (("status", "-o", "yaml"), 2, "yaml"),
        (("status", "--context", "nowhere"), 2, "nowhere"),
    ],
)
def test_bad_input_is_one_line_and_an_exit_status(
    navarchos: CommandLine, kubeconfig: str, arguments: tuple[str, ...], status: int, expected: str
) -> None:
    assert expected in one_line(navarchos.run(*arguments, "--kubeconfig", kubeconfig), status)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}", "only NodeRollouts"),
        (ROLLOUT + "pawsed: true\n", "unknown field"),
        (ROLLOUT.replace("{matchAll: true}", "{}"), "selects every node"),
    ],
)
def test_a_plan_of_an_invalid_manifest_is_refused(
    navarchos: CommandLine, kubeconfig: str, manifest: Manifest, text: str, expected: str
) -> None:
    done = navarchos.run("plan", "-f", manifest(text), "--kubeconfig", kubeconfig)
    assert expected in one_line(done, 2)


def test_a_plan_writes_nothing(
    navarchos: CommandLine, server: ApiServer, kubeconfig: str, manifest: Manifest
) -> None:
    server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    changes: list[object] = []
    with_changes = server.subscribe(changes.append)
    path = manifest(ROLLOUT)
    done = navarchos.run("plan", "-f", path, "-o", "json", "--kubeconfig", kubeconfig)
    with_changes()
    assert done.status == 0, done.stderr
    (rollout,) = done.result["rollouts"]
    assert [node["name"] for node in rollout["nodes"]] == ["n1"]
    assert changes == []


@pytest.mark.rule("OP-08")
@pytest.mark.parametrize(("phase", "resets"), [("InProgress", False), ("Halted", True)])
def test_resume_resets_failures_only_if_they_halted_the_rollout(
    navarchos: CommandLine, server: ApiServer, kubeconfig: str, phase: str, *, resets: bool
) -> None:
    """The end of a pause does not reset the failures of a rollout."""
    name = phase.lower()
    server.install(
        {
            "apiVersion": "navarchos.pusher.com/v1alpha1",
            "kind": "NodeRollout",
            "metadata": {"name": name},
            "spec": {"nodeSelectors": [{"matchAll": True}], "paused": True},
            "status": {"phase": phase},
        }
    )
    done = navarchos.run("resume", name, "-o", "json", "--kubeconfig", kubeconfig)
    assert (done.status, done.result["changed"]) == (0, True)
    after = server.get("noderollouts", name, group="navarchos.pusher.com")
    assert after["spec"]["paused"] is False
    assert (RESUME_ANNOTATION in after["metadata"].get("annotations", {})) is resets


def test_missing_definitions_are_reported_with_the_command_to_install_them(
    navarchos: CommandLine, tmp_path: Path
) -> None:
    with ApiServer() as bare:
        bare.write_kubeconfig(tmp_path / "bare")
        done = navarchos.run("status", "--kubeconfig", str(tmp_path / "bare"))
    assert "navarchos crds | kubectl create -f -" in one_line(done, 3)
    gone = navarchos.run("status", "--kubeconfig", str(tmp_path / "bare"))
    one_line(gone, 3)


def test_json_is_one_object_with_the_documented_fields(
    navarchos: CommandLine, kubeconfig: str
) -> None:
    done = navarchos.run("status", "-o", "json", "-n", "anything", "--kubeconfig", kubeconfig)
    assert json.loads(done.stdout) == {"rollouts": [], "drains": [], "outOfDateBecause": ""}


def test_the_start_imports_neither_rich_nor_a_server_nor_the_operator() -> None:
    """Every command starts fast, because it imports only the modules that it uses."""
    code = (
        "import sys; from navarchos.cli.commands import run; run(['--version']);"
        "print([m for m in ('rich', 'aiohttp', 'kubernetes', 'navarchos.operator', 'msgspec')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_commands_for_a_cluster_do_not_load_the_sandbox() -> None:
    code = (
        "import sys, navarchos.cli.status, navarchos.cli.plan, navarchos.cli.control;"
        "print([m for m in ('aiohttp', 'celpy', 'navarchos.testing') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
