"""`navarchos sandbox --real-nodes`: its options, and what it runs as containers."""

import sys
from pathlib import Path
from typing import Any

import click
import pytest

from navarchos.cli.errors import CommandError, ExitStatus
from navarchos.cli.manifest_files import Manifest
from navarchos.cli.sandbox.command import sandbox
from navarchos.cli.sandbox.real_nodes import RealCluster, runnable
from navarchos.clock import SYSTEM_CLOCK
from navarchos.testing.cluster import ClusterOptions
from navarchos.testing.cluster.population import populate
from navarchos.testing.nodes import Lab, NotRoot
from navarchos.testing.nodes.testimages import BUSYBOX


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command configures logging and signals of its process, which is the test's here."""
    monkeypatch.setattr("navarchos.logs.configure", lambda **_: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)


def run(*arguments: str) -> None:
    sandbox.main(list(arguments), standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--real-nodes", "2", "--nodes", "3"], "--nodes is for the simulated cluster"),
        (["--real-nodes", "2", "--speed", "3"], "--speed is for the simulated cluster"),
        (["--real-nodes", "2", "--port", "3"], "--port is for the simulated cluster"),
        (["--image", __file__], "--image requires --real-nodes"),
        (["--no-manager"], "--no-manager requires --serve"),
        (["--no-manager", "--serve", "-f", "rollout.yml"], "excludes -f"),
    ],
)
def test_options_that_exclude_each_other_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        run(*arguments)


def test_a_machine_that_cannot_run_nodes_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: Lab) -> None:
        raise NotRoot(1000)

    monkeypatch.setattr(Lab, "start", refuse)
    with pytest.raises(CommandError) as caught:
        run("--real-nodes", "2")
    assert str(caught.value) == (
        "--real-nodes: only root can run real nodes, this is user 1000; use sudo"
    )
    assert caught.value.status is ExitStatus.USAGE


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "navarchos.cli.sandbox.real_nodes", None)
    with pytest.raises(CommandError, match=r"pip install 'navarchos\[controlplane\]'"):
        run("--real-nodes", "2")


def test_images_that_are_not_on_the_nodes_are_replaced_and_reported() -> None:
    lines: list[str] = []
    cluster = RealCluster(2, 3, images=[], systems=[], report=lines.append)
    containers = [
        {"name": "patch", "image": "registry.example.com/patch:1", "args": ["--now"]},
        {"name": "known", "image": BUSYBOX, "command": ["true"]},
    ]
    document = {"kind": "Pod", "spec": {"containers": containers}}
    (made,) = cluster.adapt([Manifest("file.yml", document)])
    spec: Any = made.document["spec"]
    patch, known = spec["containers"]
    assert (patch["image"], patch["command"]) == (BUSYBOX, ["sh", "-c", "sleep 2"])
    assert "args" not in patch
    assert known == containers[1]
    assert containers[0]["args"] == ["--now"]  # the user's document is unchanged
    ran = f"container patch runs `sleep 2` of {BUSYBOX}"
    assert lines == [f"registry.example.com/patch:1 is not on the nodes: {ran}"]


def test_workloads_of_the_simulator_become_objects_that_a_user_can_create() -> None:
    found = populate(ClusterOptions(nodes=3, pods_per_node=8), SYSTEM_CLOCK.now()).manifests
    kinds = {"DaemonSet", "Deployment", "Job", "PodDisruptionBudget", "StatefulSet"}
    made = [runnable(each) for each in found if each["kind"] in kinds]
    assert {each["kind"] for each in made} == kinds
    for each in made:
        assert "status" not in each
        assert {"uid", "creationTimestamp"} & each["metadata"].keys() == set()
        if each["kind"] == "PodDisruptionBudget":
            continue
        for container in each["spec"]["template"]["spec"]["containers"]:
            assert container["image"] == BUSYBOX
            assert container["imagePullPolicy"] == "IfNotPresent"
        if each["kind"] == "Job":
            assert "selector" not in each["spec"]
            assert "job-name" not in each["spec"]["template"]["metadata"]["labels"]


def test_an_archive_is_checked_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="does not exist"):
        run("--real-nodes", "2", "--image", str(tmp_path / "none.tar"))
