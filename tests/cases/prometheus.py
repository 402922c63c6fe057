"""Run a real Prometheus whose active alerts are set by the test."""

import http.client
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.cases.waiting import wait_for

from navarchos.clock import SYSTEM_CLOCK
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates import PrometheusReader
from navarchos.operator.gates.alerts import query_of_gate
from navarchos.testing.controlplane import PROMETHEUS, find_binaries
from navarchos.testing.controlplane.guard import Guard
from navarchos.testing.controlplane.layout import HOST, HeldPort

__all__ = ["Prometheus"]

_INTERVAL: Final = "200ms"
_NAME: Final = "prometheus"


class Prometheus:
    """A Prometheus server on loopback. It scrapes nothing: its rules decide which alerts it has.

    A guard ends it with the tests, also after a crash. No test is skipped because the program is
    missing: `make prometheus` gets it.

    Lifecycle: `start`, also again after `stop`; `close` ends the reservation of the port.

    Args:
        guard: The parent of the process.
        directory: A new directory for its rules and samples.

    Attributes:
        url: The address, also while no server runs.
    """

    def __init__(self, guard: Guard, directory: Path) -> None:
        self._guard = guard
        self._directory = directory
        self._program = find_binaries([PROMETHEUS])[PROMETHEUS].path
        self._port = HeldPort()
        self._is_started = False
        self._starts = 0
        self.url: Final = f"http://{HOST}:{self._port.number}"

    def start(self, *, firing: Sequence[str] = (), pending: Sequence[str] = ()) -> None:
        """Start the server without samples, and wait until exactly these alerts are active.

        With the samples of its former life, an alert that ended in between would count as active
        for five minutes.
        """
        self._write_rules(firing, pending)
        settings = {
            "global": {"evaluation_interval": _INTERVAL},
            "rule_files": [str(self._rules)],
        }
        config = self._directory / "prometheus.yml"
        config.write_text(json.dumps(settings), encoding="utf-8")
        self._starts += 1
        self._guard.start(
            _NAME,
            str(self._program),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._directory / f'data-{self._starts}'}",
            f"--web.listen-address={HOST}:{self._port.number}",
            "--web.enable-lifecycle",
        )
        self._is_started = True
        wait_for("Prometheus to be ready", self._is_ready)
        self._wait_for_alerts(firing, pending)

    def set_alerts(self, *, firing: Sequence[str] = (), pending: Sequence[str] = ()) -> None:
        """Change the active alerts, and wait until exactly these are active."""
        self._write_rules(firing, pending)
        assert self._request("POST", "/-/reload") == 200, self._guard.tail(_NAME)
        self._wait_for_alerts(firing, pending)

    def stop(self) -> None:
        """Stop the server and wait for its end."""
        self._is_started = False
        self._guard.stop_server(_NAME)

    def close(self) -> None:
        """Stop the server if it runs, and release its port."""
        if self._is_started:
            self.stop()
        self._port.release()

    def active(self, **fields: Any) -> tuple[str, ...]:
        """Return the alerts that close a gate with these fields, read as the manager does."""
        gate = msgspec.convert({"url": self.url, **fields}, api.AlertsGate)
        return PrometheusReader(SYSTEM_CLOCK)(query_of_gate(gate))

    def _wait_for_alerts(self, firing: Sequence[str], pending: Sequence[str]) -> None:
        wait_for(f"the alerts {firing}", lambda: self.active(states="Firing") == _sorted(firing))
        either = _sorted([*firing, *pending])
        wait_for(f"the alerts {either}", lambda: self.active() == either)

    @property
    def _rules(self) -> Path:
        return self._directory / "rules.yml"

    def _write_rules(self, firing: Sequence[str], pending: Sequence[str]) -> None:
        rules: list[dict[str, str]] = [
            # Without any rule the group ends, and with it what marks its former alerts as ended.
            {"record": "rules", "expr": "vector(1)"},
            *({"alert": name, "expr": "vector(1)"} for name in firing),
            *({"alert": name, "expr": "vector(1)", "for": "1h"} for name in pending),
        ]
        groups = {"groups": [{"name": "case", "rules": rules}]}
        self._rules.write_text(json.dumps(groups), encoding="utf-8")

    def _is_ready(self) -> bool:
        status = self._guard.status()[_NAME]
        assert status is None, f"Prometheus ended with {status}:\n{self._guard.tail(_NAME)}"
        try:
            return self._request("GET", "/-/ready") == 200
        except OSError:
            return False  # it does not listen yet

    def _request(self, method: str, path: str) -> int:
        connection = http.client.HTTPConnection(HOST, self._port.number, timeout=30)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        finally:
            connection.close()


def _sorted(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
