"""The manager as a process of its own, restarted when it dies, as kubelet does."""

import subprocess
import sys
from pathlib import Path
from typing import IO

from navarchos.cli.failure import Failure

__all__ = ["ManagerProcess"]

_STOP_LIMIT = 1.0


class ManagerProcess:
    """Runs `navarchos manager` against the sandbox's server.

    The process has a session of its own, so that Ctrl-C reaches the sandbox only,
    which then stops it in order; and it ends with the sandbox, however that ends,
    because it holds the other end of a pipe.

    Args:
        kubeconfig: How the manager finds and enters the server.
        log: File that takes the manager's log lines.
        restarts: How often a manager that died is started again before the
            sandbox gives up.
    """

    def __init__(self, kubeconfig: Path, *, log: Path, restarts: int = 5) -> None:
        self._kubeconfig = kubeconfig
        self._log = log
        self._restarts = restarts
        self._process: subprocess.Popen[bytes] | None = None
        self._peak = 0

    @property
    def peak_memory(self) -> int:
        """Largest resident set seen, in bytes; 0 where the system does not tell."""
        if self._process is not None:
            self._peak = max(self._peak, _peak_memory(self._process.pid))
        return self._peak

    def start(self) -> None:
        """Start the process; it connects on its own."""
        with self._log.open("ab") as log:
            self._process = _spawn(self._kubeconfig, log)

    def ensure_running(self) -> int | None:
        """Start the process again if it died.

        Returns:
            The status it died with, or `None` if it is well.

        Raises:
            Failure: It has died too often; the line carries the last of its log.
        """
        status = self._process.poll() if self._process is not None else 0
        if status is None:
            return None
        if self._restarts == 0:
            raise Failure(f"the manager keeps dying (status {status}): {self.last_words()}")
        self._restarts -= 1
        self._forget()
        self.start()
        return status

    def stop(self) -> None:
        """Ask the process to end, then make it."""
        process = self._process
        if process is None:
            return
        self._peak = self.peak_memory
        process.terminate()
        try:
            process.wait(_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._forget()

    def _forget(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def last_words(self) -> str:
        """Return the last line of the manager's log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "it logged nothing")


def _spawn(kubeconfig: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own program with our own arguments
        [
            *(sys.executable, "-m", "navarchos.cli", "manager"),
            *("--kubeconfig", str(kubeconfig)),
            *("--metrics-addr", "0", "--health-addr", "0"),
            "--until-stdin-closes",
        ],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _peak_memory(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
