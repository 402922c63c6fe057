"""A Kubernetes API server in this process, for tests and the sandbox.

```python
with ApiServer(crds=[manifest]) as server:
    server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    ...  # any client, at server.url
```

"Upstream" in this package means kube-apiserver of the release that `discovery.VERSION` names. A
path such as `pkg/registry/rbac` is a path in its source.

How a request passes through the modules:

| step | module |
|---|---|
| arrives | `http` (connections) or `in_memory` (the client's thread) |
| is authorized, hit by a fault, recorded | `request_pipeline`, `access`, `faults` |
| is routed | `handler`; path, query and body are read in `requests` and `bodies` |
| is served | `reads`, `writes`, `apply`, `patches`, `deletion`, `watches`, subresources |
| is stored | `store`; listeners are `custom`, `garbage_collector` and the notifiers of watches |

`builtin` has the kinds of every API server, and says how to add one.
"""

from navarchos.testing.apiserver.faults import COMMON_FAULTS, Fault, Faults
from navarchos.testing.apiserver.request_pipeline import AuditRecord
from navarchos.testing.apiserver.server import ApiServer
from navarchos.testing.apiserver.status import StatusError
from navarchos.testing.apiserver.store import BucketId, Change, Origin

__all__ = [
    "COMMON_FAULTS",
    "ApiServer",
    "AuditRecord",
    "BucketId",
    "Change",
    "Fault",
    "Faults",
    "Origin",
    "StatusError",
]
