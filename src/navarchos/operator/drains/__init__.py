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

from navarchos.operator.drains.wiring import Caches, DrainMachinery, add_to_manager, assemble

__all__ = ["Caches", "DrainMachinery", "add_to_manager", "assemble"]
