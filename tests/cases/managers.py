"""Run the manager as a separate process, as its Deployment does."""

import http.client
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from tests.cases.target import CONFIG
from tests.cases.waiting import wait_for

from navarchos.testing.controlplane.guard import Guard
from navarchos.testing.controlplane.layout import HOST

__all__ = ["LEASE", "LEASE_NAMESPACE", "QUICK_LEASE", "ManagerProcess", "shipped_arguments"]

LEASE: Final = "navarchos-leader-election"
LEASE_NAMESPACE: Final = "kube-system"

QUICK_LEASE: Final = ("--lease-duration=3s", "--renew-deadline=2s", "--retry-period=500ms")
"""Lease durations for cases that kill the holder, which would wait long for the default.

Other cases must not use them: on a busy machine a healthy manager loses such a lease.
"""


def shipped_arguments() -> list[str]:
    """Return the arguments of the manager in its Deployment."""
    text = (CONFIG / "deploy" / "deployment.yaml").read_text(encoding="utf-8")
    deployment: Any = yaml.safe_load(text)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


class ManagerProcess:
    """One replica: `navarchos manager` with a kubeconfig of the installed ServiceAccount.

    A guard ends it with the tests, also after a crash.

    Args:
        guard: The parent of the process.
        name: The name of the process and of its log.
        kubeconfig: The kubeconfig of its account.
        arguments: Additional arguments, which override the Deployment's.
        program: The arguments of Python that run the command line.
    """

    def __init__(
        self,
        guard: Guard,
        name: str,
        kubeconfig: Path,
        *arguments: str,
        program: Sequence[str] = ("-m", "navarchos.cli"),
    ) -> None:
        self._guard = guard
        self.name = name
        # The official package writes the certificates of a kubeconfig to files, and a manager
        # that is killed leaves them.
        self._command = (
            *("env", f"TMPDIR={guard.directory}", f"PYTHONPATH={CONFIG.parent}"),
            *(sys.executable, *program, "manager"),
            *shipped_arguments(),
            *(f"--kubeconfig={kubeconfig}", "--log-level=debug"),
            *(f"--metrics-addr={HOST}:0", f"--health-addr={HOST}:0"),
            *arguments,
        )
        self.is_started = False
        self._logged_before = 0

    def start(self) -> None:
        """Start the manager, also again after its end, and wait until it is ready."""
        self.launch()
        wait_for(f"{self.name} to be ready\n{self.log()}", self.is_ready)

    def launch(self) -> None:
        """Start the manager, also again after its end, without waiting."""
        self._logged_before = len(self.log())
        self._guard.start(self.name, *self._command)
        self.is_started = True

    def stop(self) -> int:
        """Send it SIGTERM, wait for its end, and return its exit status."""
        self.is_started = False
        return self._guard.stop_server(self.name)

    def kill(self) -> None:
        """Send it SIGKILL, and wait for its end."""
        self._guard.signal(self.name, signal.SIGKILL)
        wait_for(f"the end of {self.name}", lambda: self.exit_status() is not None)
        self.is_started = False

    def exit_status(self) -> int | None:
        """Return its exit status; `None` while it runs."""
        return self._guard.status()[self.name]

    def is_ready(self, *, without: str = "") -> bool:
        """Whether `/readyz` answers 200, perhaps without one check. Fails if the process ended."""
        assert self.exit_status() is None, f"{self.name} ended:\n{self.log()}"
        path = f"/readyz?exclude={without}" if without else "/readyz"
        try:
            return self._get("health", path)[0] == 200
        except OSError:
            return False

    def readiness(self, check: str) -> str:
        """Return what one check of `/readyz` says."""
        return self._get("health", f"/readyz/{check}")[1].strip()

    def is_leader(self) -> bool:
        """Whether it holds the lease, by its metrics."""
        return 'leader_election_master_status{name="' + LEASE + '"} 1.0' in self.metrics()

    def metrics(self) -> str:
        """Return its metrics."""
        return self._get("metrics", "/metrics")[1]

    def log(self) -> str:
        """Return its log."""
        path = self._guard.directory / f"{self.name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def port(self, server: str) -> int:
        """Return the present port of one of its servers."""
        for line in self.log()[self._logged_before :].splitlines(keepends=True):
            if '"http_listening"' in line and line.endswith("\n"):
                entry = json.loads(line)
                if entry["server"] == server:
                    return int(entry["port"])
        raise ConnectionRefusedError(f"{self.name} does not listen for {server} yet")

    def _get(self, server: str, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(HOST, self.port(server), timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()
