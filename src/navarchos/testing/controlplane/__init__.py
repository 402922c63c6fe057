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
from navarchos.testing.controlplane.errors import (
    BinariesMissing,
    CacheUnusable,
    ControlPlaneError,
    GuardLost,
    PartFailed,
    PartNotReady,
)
from navarchos.testing.controlplane.kwok import STARTS_AFTER, TERMINATES_AFTER
from navarchos.testing.controlplane.tools import KUBECTL, PROMETHEUS, TOOLS, Tool, ToolVersion

__all__ = [
    "KUBECTL",
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
    "Lookup",
    "PartFailed",
    "PartNotReady",
    "Tool",
    "ToolVersion",
    "find_binaries",
]
