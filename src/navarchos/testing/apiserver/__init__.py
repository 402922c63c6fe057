"""A Kubernetes API server in this process, for tests and the sandbox.

```python
with ApiServer(crds=[manifest]) as server:
    server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    ...  # any client, at server.url
```
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
