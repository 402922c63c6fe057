"""Run the operator's manager as a separate process and measure it from outside."""

import http.client
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from benchmarks.interpreter import interpreter_path
from benchmarks.processes import ROOT, SubjectFailed, cpu_of
from navarchos.informers.mutation import MUTATION_VARIABLE
from navarchos.testing.controlplane.layout import HOST

__all__ = ["ManagerProcess"]

_READY_TIMEOUT: Final = 60.0
_STOP_TIMEOUT: Final = 20.0
_LOOK_EVERY: Final = 0.005


class ManagerProcess:
    """`navarchos manager` with leader election, as it is shipped, for a `with` block.

    Attributes:
        ready_seconds: Time from the start of the process until `/readyz` answered 200.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self._command = [
            *(interpreter_path(), "-m", "navarchos.cli", "manager"),
            *("--leader-election", "--leader-election-id=navarchos-leader-election"),
            "--leader-election-namespace=kube-system",
            *(f"--kubeconfig={kubeconfig}", "--until-stdin-closes"),
            *(f"--metrics-addr={HOST}:0", f"--health-addr={HOST}:0"),
        ]
        self.ready_seconds = 0.0

    def __enter__(self) -> Self:
        usual = {name: value for name, value in os.environ.items() if name != MUTATION_VARIABLE}
        # The process may still hold it after this block; see __exit__.
        self._log = tempfile.TemporaryFile("w+b")
        began = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=usual,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
        )
        try:
            self._wait_until_ready(began + _READY_TIMEOUT)
        except BaseException:
            self.__exit__()
            raise
        self.ready_seconds = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._log.close()

    def cpu(self) -> float:
        """Return the processor seconds used so far, user and system."""
        return cpu_of(self._process.pid)

    def memory(self, line: str = "VmRSS") -> int:
        """Return the resident memory in bytes, or its peak with `VmHWM`."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        for each in status.splitlines():
            if each.startswith(f"{line}:"):
                return int(each.split()[1]) * 1024
        raise self._failed("memory cannot be read")

    def _wait_until_ready(self, deadline: float) -> None:
        while not self._is_ready():
            if self._process.poll() is not None:
                raise self._failed(f"ended with {self._process.returncode}")
            if time.monotonic() > deadline:
                raise self._failed("is not ready")
            time.sleep(_LOOK_EVERY)

    def _is_ready(self) -> bool:
        port = self._health_port()
        if port is None:
            return False
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _health_port(self) -> int | None:
        for line in self._logged().splitlines(keepends=True):
            if b'"http_listening"' in line and line.endswith(b"\n"):
                entry = json.loads(line)
                if entry["server"] == "health":
                    return int(entry["port"])
        return None

    def _logged(self) -> bytes:
        # By position, because the file position is shared with the process that writes.
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0)

    def _failed(self, why: str) -> SubjectFailed:
        tail = self._logged().decode("utf-8", "replace").splitlines()[-10:]
        return SubjectFailed(self._command, "\n    ".join([why, *tail]))
