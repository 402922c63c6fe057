"""Run the command line as a process, as a user does."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cases.prometheus import Prometheus

from navarchos.testing.controlplane.guard import Guard


@dataclass(frozen=True)
class Finished:
    """A finished command."""

    status: int
    stdout: str
    stderr: str

    @property
    def result(self) -> dict[str, Any]:
        """The JSON object on the last line of standard output."""
        parsed: dict[str, Any] = json.loads(self.stdout.splitlines()[-1])
        return parsed


class CommandLine:
    """Starts `navarchos` and kills processes that are still running at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command with its temporary files below the test's directory."""
        process = subprocess.Popen(
            [sys.executable, "-m", "navarchos.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._directory,
            env={**os.environ, "TMPDIR": str(self._directory), "COLUMNS": "200"},
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def run(self, *arguments: str, timeout: float = 110) -> Finished:
        """Run a command until it ends."""
        process = self.start(*arguments)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=10)
            raise AssertionError(f"still running after {timeout} s:\n{stdout}\n{stderr}") from None
        return Finished(process.returncode, stdout, stderr)

    def end_all(self) -> None:
        """Kill the running processes."""
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def navarchos(tmp_path: Path) -> Iterator[CommandLine]:
    """Provide the command line in an empty directory, which must be empty at the end."""
    directory = tmp_path / "work"
    directory.mkdir()
    command_line = CommandLine(directory)
    yield command_line
    command_line.end_all()
    assert list(directory.iterdir()) == []


@pytest.fixture
def manifest(tmp_path: Path) -> Callable[[str], str]:
    """Write a manifest and return its path."""
    count = iter(range(100))

    def write(text: str) -> str:
        path = tmp_path / f"manifest-{next(count)}.yml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def prometheus(guard: Guard, tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus that was not started yet."""
    server = Prometheus(guard, tmp_path)
    try:
        yield server
    finally:
        server.close()
