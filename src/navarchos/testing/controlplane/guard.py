"""The client of the guard process: servers that end together with this process."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from navarchos.logs import get_logger
from navarchos.testing.controlplane import guard_process
from navarchos.testing.controlplane.errors import ControlPlaneError, GuardLost
from navarchos.testing.controlplane.layout import Network

__all__ = ["Guard"]

_ANSWER_TIMEOUT: Final = 20.0
_STOP_TIMEOUT: Final = 20.0
_TAIL_BYTES: Final = 4000
_TAIL_LINES: Final = 15

_log = get_logger(__name__)


class Guard:
    """Servers in one private directory, run by a separate guard process.

    Promises: after `stop`, or after this process has ended in any way, no server runs
    and the directory is removed.

    Does not promise: this cleanup if both this process and the guard process are killed
    with -9.

    Lifecycle: usable when constructed; `stop` may be called repeatedly.
    Threads: safe from any thread. Requests are sent one at a time.

    Args:
        network: The network of the servers; by default the network of this machine.

    Attributes:
        directory: Where the servers run; only its owner can read it.

    Raises:
        GuardLost: The guard process could not create its directory.
    """

    def __init__(self, network: Network | None = None) -> None:
        self._request_lock = threading.Lock()
        self._network = network
        argv = [sys.executable, "-I", guard_process.__file__]
        environment = dict(os.environ)
        if network is not None:
            argv = [*network.command(argv)]
            environment["TMPDIR"] = str(network.directory)
        ours, theirs = socket.socketpair()
        with theirs:
            # Run the file, not the module: `python -m` would import the whole package first.
            # A new session keeps signals for this process group away from the guard.
            self._process = subprocess.Popen(  # noqa: S603 - a fixed program
                argv,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )
        ours.settimeout(_ANSWER_TIMEOUT)
        self._connection = ours  # guarded by _request_lock
        self._answers = ours.makefile("r", encoding="utf-8")  # guarded by _request_lock
        self._stopped = False  # guarded by _request_lock
        self._pids: list[int] = []  # of all servers ever started
        try:
            self.directory = Path(self._receive()["directory"])
        except GuardLost:
            self.stop()
            raise

    def start(self, name: str, *argv: str) -> int:
        """Start a server and return its process id.

        Raises:
            ControlPlaneError: The server cannot be started, or one of this name is running.
            GuardLost: The guard process has ended or does not answer.
        """
        pid = int(self._request(do="start", name=name, argv=list(argv))["pid"])
        if self._network is None:  # a number of another namespace has no meaning here
            self._pids.append(pid)
        return pid

    def status(self) -> dict[str, int | None]:
        """Return the exit status of every server, `None` for a running one.

        Raises:
            GuardLost: The guard process has ended or does not answer.
        """
        return self._request(do="status")

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a server.

        Raises:
            ControlPlaneError: There is no server of this name.
            GuardLost: The guard process has ended or does not answer.
        """
        self._request(do="signal", name=name, signal=int(number))

    def stop_server(self, name: str) -> int:
        """Stop one server, wait until it has ended, and return its exit status.

        Raises:
            ControlPlaneError: There is no server of this name.
            GuardLost: The guard process has ended or does not answer.
        """
        return int(self._request(do="stop", name=name)["status"])

    def tail(self, name: str) -> str:
        """Return the last lines of a server's log."""
        try:
            with (self.directory / f"{name}.log").open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError as error:
            return f"(no log: {error.strerror})"
        return "\n".join(text.splitlines()[-_TAIL_LINES:])

    def stop(self) -> None:
        """Stop all servers, remove the directory, and wait until both are done."""
        with self._request_lock:
            if self._stopped:
                return
            self._stopped = True
            self._answers.close()
            self._connection.close()
        try:
            if self._process.wait(_STOP_TIMEOUT) == 0:
                return
        except subprocess.TimeoutExpired:
            _log.exception("control_plane_guard_hung", pid=self._process.pid)
        self._clean_up()

    def _clean_up(self) -> None:
        """Kill the servers and remove the directory if the guard process could not."""
        # The guard is the leader of the servers' process group. The group keeps this id
        # as long as one server is alive.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pid in self._pids:
            _wait_for_the_end_of(pid)
        directory = getattr(self, "directory", None)
        if directory is not None and directory.exists():
            shutil.rmtree(directory)

    def _request(self, **request: object) -> dict[str, Any]:
        with self._request_lock:
            if self._stopped:
                raise GuardLost("the guard has been stopped")
            try:
                self._connection.sendall(json.dumps(request).encode() + b"\n")
            except OSError as error:
                raise GuardLost(str(error)) from error
            answer = self._receive()
        if "error" in answer:
            raise ControlPlaneError(f"cannot {request['do']}: {answer['error']}")
        return answer

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._answers.readline()
        except OSError as error:
            raise GuardLost(f"no answer: {error}") from error
        if not line:
            raise GuardLost("the guard process ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _wait_for_the_end_of(pid: int) -> None:
    """Wait until a killed process has ended.

    The process is not a child of this one, so waiting needs a pidfd.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([handle], [], [], _STOP_TIMEOUT)
    finally:
        os.close(handle)
