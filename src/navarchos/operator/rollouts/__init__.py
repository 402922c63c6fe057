"""The NodeRollout controller: plan the nodes, create their replacements, report.

```text
NodeRollout ──> reconciler.py   observe ──> decide ──> act ──> persist
                  plan.py       the nodes and their order, as a pure function
                  children.py   the replacements: their manifests, and how they are written
                  status.py     the status, its conditions and reasons, as a pure function
                  events.py     what it records
                  metrics.py    the gauges of waves
```
"""

from typing import Final

from navarchos.operator.rollouts import children, reconciler
from navarchos.operator.rollouts.controller import add_to_manager

__all__ = ["RBAC", "add_to_manager"]

RBAC: Final = (*children.RBAC, *reconciler.RBAC)
"""Permissions of rollouts, besides the caches that all controllers share."""
