"""Gates: what must be true of the cluster before the next node of a rollout starts.

```text
NodeRollout spec.gates ──> monitor.py   follows the gates of unfinished rollouts
                             objects.py      informers of objects, opened and closed with the gates
                             alerts.py       queries of Prometheus, while a node could start
                             decide.py       verdicts, their times, waits and timeouts, pure
                             expressions.py  the language of `kubectl wait --for`, pure
                             check.py        the same verdicts by requests, for a plan
                           ──> admission (wait reason Gate), rollouts (status.gates, Halted)
```
"""

from typing import Final

from navarchos.operator.gates.alerts import PrometheusReader
from navarchos.operator.gates.check import GateChecker
from navarchos.operator.gates.decide import (
    GateRecord,
    GateTimeout,
    GateWait,
    find_timeout,
    gate_wait,
    gate_waits,
    needs_alerts,
    to_status,
)
from navarchos.operator.gates.monitor import GateMonitor, Records
from navarchos.operator.gates.objects import WORKLOAD_RBAC

__all__ = [
    "RBAC",
    "GateChecker",
    "GateMonitor",
    "GateRecord",
    "GateTimeout",
    "GateWait",
    "PrometheusReader",
    "Records",
    "find_timeout",
    "gate_wait",
    "gate_waits",
    "needs_alerts",
    "to_status",
]

RBAC: Final = WORKLOAD_RBAC
"""The permissions of gates on evicted pods.

A user grants the permissions of other kinds through the role `navarchos-gates`."""
