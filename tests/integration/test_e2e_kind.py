"""`make e2e-kind` with a fake container engine and a fake kind."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from navarchos.testing.controlplane.tools import KIND, KUBECTL

ROOT = Path(__file__).parents[2]
LIMIT = 60.0

# Records its arguments. A file with the name of its verb makes it fail or wait.
PRETENDED = """#!/bin/sh
name=${0##*/} verb=$1
case "$name $verb" in
  "kind version" | "kubectl version") echo "$name VERSION"; exit ;;
esac
echo "$name $* [$KIND_EXPERIMENTAL_PROVIDER]" >> "$WORLD/calls"
if [ -e "$WORLD/fail-$verb" ]; then cat "$WORLD/fail-$verb" >&2; exit 3; fi
if [ -e "$WORLD/wait-$verb" ]; then
  echo "reached $verb" >&2
  read line < "$WORLD/wait-$verb"
fi
echo "$name $verb is done" >> "$WORLD/calls"
"""

SUITE = """
import os, sys, time
from pathlib import Path

world = Path(os.environ["WORLD"])

def named(variable):
    return os.environ[f"NAVARCHOS_E2E_{variable}"]

def note(line):
    with (world / "calls").open("a") as calls:
        print(line, file=calls)

def test_the_suite():
    note(f"suite on {named('KUBECONFIG')} with {named('IMAGE')}")
    try:
        if (world / "wait-suite").exists():
            print("reached suite", file=sys.__stderr__, flush=True)
            # For a signal. One that comes just before a wait is noticed only after it.
            for _ in range(6000):
                time.sleep(0.1)
        assert not (world / "fail-suite").exists()
    finally:
        note("suite is done")
"""


class World:
    """A PATH with fake programs, and their recorded calls."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.programs = directory / "bin"
        self.programs.mkdir()
        # The programs that the fake ones need; no real engine is on this PATH.
        (self.programs / "cat").symlink_to(shutil.which("cat") or "")
        self.users_kubeconfig = directory / "users-kubeconfig"
        self.users_kubeconfig.write_text("the user's own")
        (directory / "tmp").mkdir()
        self.suite = directory / "test_suite.py"
        self.suite.write_text(SUITE)
        self.add("docker")
        self.add("kind", str(KIND.pinned))
        self.add("kubectl", str(KUBECTL.pinned))

    def add(self, name: str, version: str = "") -> None:
        path = self.programs / name
        path.write_text(PRETENDED.replace("VERSION", version))
        path.chmod(0o755)

    def fails(self, verb: str, said: str = "") -> None:
        (self.directory / f"fail-{verb}").write_text(said)

    def waits(self, verb: str) -> None:
        os.mkfifo(self.directory / f"wait-{verb}")

    def lets_go(self, verb: str) -> None:
        (self.directory / f"wait-{verb}").write_text("\n")

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.kind", "-s", "-p", "no:cacheprovider", self.suite],
            cwd=ROOT,
            env={
                "PATH": str(self.programs),
                "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": str(self.directory),
                "TMPDIR": str(self.directory / "tmp"),
                "KUBECONFIG": str(self.users_kubeconfig),
                "WORLD": str(self.directory),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self) -> tuple[int, str]:
        with self.running() as process:
            _, said = process.communicate(timeout=LIMIT)
        return process.returncode, said

    def calls(self) -> list[str]:
        """The calls in order, without the parts that differ from run to run."""
        path = self.directory / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def verbs(self) -> list[str]:
        """The first two words of each call, and `suite`."""
        return [
            " ".join(call.split()[:2]) if not call.startswith("suite") else "suite"
            for call in self.calls()
            if not call.endswith("is done")
        ]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    assert made.users_kubeconfig.read_text() == "the user's own"
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list(tmp_path.glob(".kube")) == []


def reach(process: subprocess.Popen[str], verb: str) -> None:
    """Read the output until a step has been reached."""
    assert process.stderr is not None
    for line in process.stderr:
        if line == f"reached {verb}\n":
            return
    raise AssertionError(f"{verb} was not reached")


WHOLE = [
    "docker info", "docker build", "docker save", "kind create", "kind load", "suite",
    "kind delete",
]  # fmt: skip


def test_the_image_is_built_and_loaded_before_the_suite_and_the_cluster_deleted_after_it(
    world: World,
) -> None:
    status, said = world.run()
    assert status == 0, said
    assert world.verbs() == WHOLE
    calls = dict(zip(WHOLE, [c for c in world.calls() if not c.endswith("is done")], strict=True))
    deployment = yaml.safe_load((ROOT / "config" / "deploy" / "deployment.yaml").read_text())
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert calls["docker build"] == f"docker build --tag {image} {ROOT} []"
    archive = calls["docker save"].split()[3]
    create = calls["kind create"].split()
    name, kubeconfig = create[4], create[6]
    config = ROOT / "tests" / "e2e" / "kind" / "cluster.yaml"
    assert create[2:] == [
        "cluster", "--name", name, "--kubeconfig", kubeconfig, "--config", str(config),
        "--wait", "180s", "[docker]",
    ]  # fmt: skip
    assert name.startswith("navarchos-e2e-")
    assert Path(kubeconfig).is_relative_to(world.directory / "tmp")
    assert calls["kind load"] == f"kind load image-archive {archive} --name {name} [docker]"
    assert calls["suite"] == f"suite on {kubeconfig} with {image}"
    assert calls["kind delete"] == (
        f"kind delete cluster --name {name} --kubeconfig {kubeconfig} [docker]"
    )


def test_the_exit_status_is_that_of_the_suite(world: World) -> None:
    world.fails("suite")
    status, _ = world.run()
    assert status == 1
    assert world.verbs() == WHOLE


@pytest.mark.parametrize(("verb", "last"), [("build", "docker build"), ("save", "docker save")])
def test_no_cluster_is_created_without_an_image(world: World, verb: str, last: str) -> None:
    world.fails(verb)
    status, said = world.run()
    assert status == 1
    assert f"`{world.programs}/{last}" in said
    assert "failed: exit status 3" in said.splitlines()[-1]
    assert world.verbs() == WHOLE[: WHOLE.index(last) + 1]


@pytest.mark.parametrize("verb", ["create", "load"])
def test_a_partly_created_cluster_is_deleted(world: World, verb: str) -> None:
    world.fails(verb)
    status, said = world.run()
    assert status == 1
    assert f"kind {verb} " in said.splitlines()[-1]
    assert world.verbs() == [*WHOLE[: WHOLE.index(f"kind {verb}") + 1], "kind delete"]


def test_a_failed_deletion_is_reported_in_addition_to_the_first_error(world: World) -> None:
    world.fails("create")
    world.fails("delete")
    status, said = world.run()
    assert status == 1
    first, second = said.splitlines()[-2:]
    assert "kind create cluster --name navarchos-e2e-" in first
    assert "kind delete cluster --name navarchos-e2e-" in second


def test_a_passing_suite_does_not_hide_a_failed_deletion(world: World) -> None:
    world.fails("delete")
    status, said = world.run()
    assert status == 1
    assert "kind delete cluster --name navarchos-e2e-" in said.splitlines()[-1]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_after_a_signal_the_suite_ends_in_order_and_the_cluster_is_deleted(
    world: World, signum: signal.Signals
) -> None:
    world.waits("suite")
    with world.running() as process:
        reach(process, "suite")
        process.send_signal(signum)
        _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signum
    assert f"ended by {signum.name}" in said.splitlines()[-1]
    assert world.verbs() == WHOLE
    assert "suite is done" in world.calls()


def test_a_signal_during_the_creation_deletes_the_cluster(world: World) -> None:
    world.waits("create")
    with world.running() as process:
        reach(process, "create")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert world.verbs() == ["docker info", "docker build", "docker save", "kind create",
                             "kind delete"]  # fmt: skip
    assert "kind create is done" not in world.calls()


def test_the_deletion_is_not_interrupted(world: World) -> None:
    world.waits("delete")
    with world.running() as process:
        reach(process, "delete")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        world.lets_go("delete")
        process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert world.calls()[-1] == "kind delete is done"


def test_a_missing_engine_is_reported_in_one_line_before_the_build(world: World) -> None:
    (world.programs / "docker").unlink()
    status, said = world.run()
    assert status == 1
    assert said == (
        "e2e-kind: Error: kind requires a container engine, but none answers: "
        "docker: not on the PATH; podman: not on the PATH; nerdctl: not on the PATH. "
        "Start one, or run `make e2e`, which does not need one\n"
    )
    assert world.calls() == []


def test_a_client_without_its_daemon_is_not_an_engine(world: World) -> None:
    world.fails("info", "\nCannot connect to the Docker daemon. Is the docker daemon running?\n")
    status, said = world.run()
    assert status == 1
    assert said.count("\n") == 1
    docker = world.programs / "docker"
    assert (
        f"docker: {docker} info: Cannot connect to the Docker daemon. "
        "Is the docker daemon running?; podman: not on the PATH" in said
    )
    assert world.verbs() == ["docker info"]


def test_the_next_engine_is_used_if_the_first_one_does_not_answer(world: World) -> None:
    (world.programs / "docker").unlink()
    world.add("podman")
    status, said = world.run()
    assert status == 0, said
    assert world.verbs() == [verb.replace("docker", "podman") for verb in WHOLE]
    of_kind = [call for call in world.calls() if call.startswith("kind") and "--name" in call]
    assert [call.split()[-1] for call in of_kind] == ["[podman]"] * 3
