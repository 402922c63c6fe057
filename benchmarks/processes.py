"""Run a measured program and read its reports."""

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from navarchos.informers.mutation import MUTATION_VARIABLE

__all__ = ["ROOT", "Report", "Subject", "SubjectFailed", "cpu_of"]

ROOT: Final = Path(__file__).parents[1]

_TIMEOUT: Final = 300.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LINES_SHOWN: Final = 15

Report = Mapping[str, Any]
"""A program's report on one stage; `subjects/reporting.py` documents the keys."""


class SubjectFailed(Exception):
    """A measured program ended, or was silent, before its report.

    Attributes:
        command: The command.
        why: How it ended, with the last lines of its output.
    """

    def __init__(self, command: Sequence[str], why: str) -> None:
        super().__init__(command, why)
        self.command = command
        self.why = why

    def __str__(self) -> str:
        return f"{' '.join(self.command)}: {self.why}"


class Subject:
    """A measured program that runs for the length of a `with` block.

    Args:
        command: The program and its arguments.
        timeout: Seconds that each of its stages may take.
    """

    def __init__(self, command: Sequence[str], *, timeout: float = _TIMEOUT) -> None:
        self._command = command
        self._timeout = timeout

    def __enter__(self) -> Self:
        # The mutation detector of the test suite would keep a second copy of each object.
        usual = {name: value for name, value in os.environ.items() if name != MUTATION_VARIABLE}
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=usual,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        assert process.stdin is not None
        try:
            process.stdin.close()
            process.wait(10.0 if kind is None else 0.1)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            process.kill()
        process.wait()
        self._listener.join()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()

    @property
    def pid(self) -> int:
        """The program's process."""
        return self._process.pid

    def order(self, line: str = "") -> None:
        """Let the program continue."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def report(self, stage: str) -> Report:
        """Wait for the report of a stage.

        Raises:
            SubjectFailed: The program ended, was silent for too long, wrote something
                else, or reported another stage.
        """
        assert self._process.stdout is not None
        timer = threading.Timer(self._timeout, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            status = self._process.wait()
            self._listener.join()
            ending = "\n    ".join([f"ended with {status} before {stage!r}", *self._said])
            raise SubjectFailed(self._command, ending)
        try:
            found: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError as error:
            raise SubjectFailed(
                self._command, f"wrote {line.strip()!r} instead of a report"
            ) from error
        if found["stage"] != stage:
            raise SubjectFailed(self._command, f"is at {found['stage']!r} instead of {stage!r}")
        return found

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said = [*self._said, line.rstrip()][-_LINES_SHOWN:]


def cpu_of(pid: int) -> float:
    """Return the processor seconds that a process has used, user and system."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    fields = text.rpartition(")")[2].split()  # the name before it may contain blanks
    return (int(fields[11]) + int(fields[12])) / _TICKS
