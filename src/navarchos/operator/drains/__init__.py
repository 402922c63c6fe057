"""NodeDrain: cordon one node, empty it, report.

```text
NodeDrain ──> DrainReconciler.reconcile          one pass, never waits for a pod
                gate       the node: found by uid, cordoned, given back
                survey     its pods: watched, or listed live; classified
                due        which of them are asked to go now
                sender     asks them, notes the answers
                status     what there is to say          writer   says it, once a second
                teller     events and figures
wake-ups:  the drain, its node, its node's pods (watches), a budget that is free again
```
"""

from typing import Final

from navarchos.drain import eviction
from navarchos.operator.drains import gate, survey, watches, wiring, writer
from navarchos.operator.drains.wiring import Caches, DrainMachinery, add_to_manager, assemble

__all__ = ["RBAC", "Caches", "DrainMachinery", "add_to_manager", "assemble"]

RBAC: Final = (
    *wiring.RBAC,
    *watches.RBAC,
    *gate.RBAC,
    *survey.RBAC,
    *writer.RBAC,
    *eviction.RBAC,
)
"""What drains ask of the server."""
