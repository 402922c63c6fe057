"""The NodeDrain controller: cordon a node, evict its pods, report.

```text
NodeDrain ──> reconciler.py   observe ──> decide ──> act ──> persist, without waiting for a pod
                observation.py  what it knows; decide.py  what to do and write, as a pure function
                status.py     the status, its conditions and reasons; batch.py  the next evictions
                cordon.py     the node; pods.py  its pods; evictions.py  requests and responses
                memory.py     hints that save requests; settings.py  the parsed spec
                events.py, metrics.py            what it records
requeued by:  the drain, its node, its node's pods (a watch per drain), a budget that allows more
```
"""

from typing import Final

from navarchos.drain import eviction
from navarchos.operator.drains import controller, cordon, pods, reconciler
from navarchos.operator.drains.controller import add_to_manager

__all__ = ["RBAC", "add_to_manager"]

RBAC: Final = (
    *controller.RBAC,
    *pods.WATCH_RBAC,
    *cordon.RBAC,
    *pods.RBAC,
    *reconciler.RBAC,
    *eviction.RBAC,
)
"""The permissions (RBAC) of the controller."""
