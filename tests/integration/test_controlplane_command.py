"""`python -m navarchos.testing.controlplane` as processes, without network and with a fake Go."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from navarchos.testing.controlplane.tools import ETCD

LIMIT = 60.0

# Counts its runs, writes half of the program, waits for a signal, then writes a program of
# the right version. The sixth argument is the output file.
GO = """#!/bin/sh
echo run >> "$WORLD/runs"
echo half > "$6"
read line < "$WORLD/gate"
printf '#!/bin/sh\\necho etcd VERSION\\n' > "$6"
"""


class Command:
    """The command with its environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cache = directory / "cache"
        os.mkfifo(directory / "gate")

    def add_go(self) -> None:
        go = self.directory / "bin" / "go"
        go.parent.mkdir()
        go.write_text(GO.replace("VERSION", str(ETCD.pinned)))
        go.chmod(0o755)

    @contextmanager
    def start(self) -> Iterator[subprocess.Popen[str]]:
        """Run the command during a `with` block, and kill it afterwards."""
        process = subprocess.Popen(
            [
                sys.executable, "-m", "navarchos.testing.controlplane", "etcd",
                "--cache", self.cache, "--module", self.directory,
            ],
            env={
                "PATH": str(self.directory / "bin"),
                "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
                "https_proxy": "http://127.0.0.1:1",  # no process listens on this port
                "WORLD": str(self.directory),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def let_go(self) -> None:
        (self.directory / "gate").write_text("\n")

    def runs(self) -> int:
        return len((self.directory / "runs").read_text().splitlines())


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
        assert "building" not in line, f"{words!r} was not said"
    raise AssertionError(f"{words!r} was not said")


def test_two_processes_at_the_same_time_build_once(command: Command) -> None:
    command.add_go()
    with command.start() as first:
        read_until(first, "building")
        with command.start() as second:
            read_until(second, "waiting for another process that fills the cache")
            command.let_go()
            answers = [each.communicate(timeout=LIMIT)[0] for each in (first, second)]
    assert answers == [f"{command.cache / 'etcd'}\n"] * 2
    assert command.runs() == 1


def test_a_killed_build_leaves_no_program_for_later_runs(
    command: Command,
) -> None:
    command.add_go()
    with command.start() as first:
        gate = (command.directory / "gate").open("w")  # opens after half of the file was written
        os.killpg(first.pid, signal.SIGKILL)
    gate.close()
    (half,) = command.cache.glob("*/etcd")
    assert half.read_text() == "half\n"
    with command.start() as second:
        read_until(second, "building")
        assert not half.exists()
        command.let_go()
        said, _ = second.communicate(timeout=LIMIT)
    assert said == f"{command.cache / 'etcd'}\n"
    assert command.runs() == 2


def test_without_go_and_network_the_error_names_the_remedies(command: Command) -> None:
    with command.start() as process:
        _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    error = said[said.index("Error: ") :]
    assert error.startswith(
        "Error: missing programs: etcd; allow access to the releases, install Go, or set "
        "KUBEBUILDER_ASSETS to a folder with the programs; tried:\n"
    )
    assert "etcd: build: no go toolchain on the PATH" in error
    assert "etcd: release: https://" in error
    assert "Traceback" not in said
