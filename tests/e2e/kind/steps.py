"""A sequence of commands that a signal ends in order."""

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from navarchos.errors import NavarchosError

__all__ = ["Interrupted", "StepFailed", "Steps"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StepFailed(NavarchosError):
    """A command failed.

    Attributes:
        command: The command.
        why: Its exit status, or why it could not be started.
    """

    def __init__(self, command: Sequence[str], why: str) -> None:
        super().__init__(tuple(command), why)
        self.command = tuple(command)
        self.why = why

    def __str__(self) -> str:
        return f"`{shlex.join(self.command)}` failed: {self.why}"


class Interrupted(NavarchosError):
    """A signal has ended the sequence.

    Attributes:
        signum: The signal.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    def __str__(self) -> str:
        return f"ended by {signal.Signals(self.signum).name}"


class Steps:
    """Runs commands, one at a time.

    Each command has a separate process group, so that Ctrl-C in a terminal reaches only
    this process. The first signal is sent to the command as SIGINT, so that it can clean
    up; a second signal kills it. After a signal only clean-up commands are started.

    Threads: for the main thread, which handles signals.

    Args:
        environ: Environment variables of the commands.
        report: Called with each command before it runs.
    """

    def __init__(self, environ: Mapping[str, str], report: Callable[[str], None]) -> None:
        self._environ = dict(environ)
        self._report = report
        self._signum = 0
        self._group = 0  # process group of the running command; 0 if there is none

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Handle signals inside the block."""
        before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
        for signum, handler in before.items():
            if handler is not signal.SIG_IGN:  # nohup ignores it
                signal.signal(signum, self._on_signal)
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def run(self, *command: str, **more: str) -> None:
        """Run a command that must succeed; `more` is added to its environment.

        Raises:
            Interrupted: A signal was received.
            StepFailed: The command failed.
        """
        status = self.status_of(*command, **more)
        if status != 0:
            raise StepFailed(command, f"exit status {status}")

    def status_of(self, *command: str, **more: str) -> int:
        """Run a command; return its exit status, negative for a signal.

        Raises:
            Interrupted: A signal was received.
            StepFailed: The command cannot be started.
        """
        self._raise_if_interrupted()
        with self._start(command, more) as process:
            self._group = process.pid
            try:
                if self._signum:  # received before the group was known
                    self._end_group(signal.SIGINT)
                status = process.wait()
            finally:
                self._group = 0
        self._raise_if_interrupted()
        return status

    def clear_up(self, *command: str, **more: str) -> None:
        """Run a clean-up command that must succeed; signals are ignored.

        Raises:
            StepFailed: The command failed.
        """
        with self._start(command, more) as process:
            status = process.wait()
        if status != 0:
            raise StepFailed(command, f"exit status {status}")

    def _start(self, command: Sequence[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        self._report(f"$ {shlex.join(command)}")
        try:
            return subprocess.Popen(
                command,
                env={**self._environ, **more},
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            raise StepFailed(command, str(error)) from error

    def _raise_if_interrupted(self) -> None:
        if self._signum:
            raise Interrupted(self._signum)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        again, self._signum = self._signum != 0, self._signum or signum
        if self._group:
            self._end_group(signal.SIGKILL if again else signal.SIGINT)

    def _end_group(self, signum: int) -> None:
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.killpg(self._group, signum)
