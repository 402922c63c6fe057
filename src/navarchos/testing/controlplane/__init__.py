"""A real control plane for tests: the Python counterpart of envtest.

```python
with ControlPlane() as server:
    server.install(manifest)
    ...  # any client, with server.kubeconfig()
```

The programs come from `KUBEBUILDER_ASSETS`, the PATH or a cache. The command
`python -m navarchos.testing.controlplane` installs them in the cache.
"""

from navarchos.testing.controlplane.audit import AuditEvent
from navarchos.testing.controlplane.binaries import Binary, Lookup, find_binaries
from navarchos.testing.controlplane.controlplane import WATCHED, ControlPlane
from navarchos.testing.controlplane.credentials import KeyPair
from navarchos.testing.controlplane.errors import (
    BinariesMissing,
    CacheUnusable,
    ControlPlaneError,
    GuardLost,
    PartFailed,
    PartNotReady,
)
from navarchos.testing.controlplane.kwok import STARTS_AFTER, TERMINATES_AFTER
from navarchos.testing.controlplane.layout import Network
from navarchos.testing.controlplane.tools import (
    KUBECTL,
    NODE_TOOLS,
    PROMETHEUS,
    TOOLS,
    Tool,
    ToolVersion,
)

__all__ = [
    "KUBECTL",
    "NODE_TOOLS",
    "PROMETHEUS",
    "STARTS_AFTER",
    "TERMINATES_AFTER",
    "TOOLS",
    "WATCHED",
    "AuditEvent",
    "BinariesMissing",
    "Binary",
    "CacheUnusable",
    "ControlPlane",
    "ControlPlaneError",
    "GuardLost",
    "KeyPair",
    "Lookup",
    "Network",
    "PartFailed",
    "PartNotReady",
    "Tool",
    "ToolVersion",
    "find_binaries",
]
