"""The NodeReplacement controller: take each node from waiting for a slot to being drained.

```text
ADMISSION ──> reconciler.py ──> admission_loop.py   observe ──> decide ──> write, on one worker
                snapshot.py     the observed objects; budgets.py  budgets of a few nodes
                admission.py    which nodes may start; stalled.py  which release their slot
                admission_order.py  in which order; limits.py, waits.py  what they wait for
                preparation.py  what actions do before a node starts
NodeReplacement ──> reconciler.py ──> pipeline.py   observe ──> decide ──> act ──> persist
                step_reader.py  the objects that a step decides from
                steps/          what each step does next, as pure functions
                attempt_drain.py  the NodeDrain of an attempt
                verification.py, daemon_sets.py     whether a node is well after its action
                status.py       the status after each transition
                events.py, metrics.py               what it records
```
"""

from typing import Final

from navarchos.operator.replacements import admission_loop, budgets, daemon_sets, pipeline, snapshot
from navarchos.operator.replacements.controller import add_to_manager

__all__ = ["RBAC", "add_to_manager"]

RBAC: Final = (
    *admission_loop.RBAC,
    *budgets.RBAC,
    *snapshot.RBAC,
    *pipeline.RBAC,
    *daemon_sets.RBAC,
)
"""Permissions of replacements, besides the caches that all controllers share."""
