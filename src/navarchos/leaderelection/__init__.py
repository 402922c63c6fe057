"""Leader election on a Lease: at most one of several processes acts.

```python
lock = LeaseLock(client, "kube-system", "widget-controller", unique_identity())
elector = LeaderElector(lock, LeaderCallbacks(on_started_leading=work))
elector.run(stop)        # returns when stopped, raises LeaseLost when the lease is lost
```

Timestamps of other processes are never compared with ours: a lease counts as held for its
duration from the moment at which *this* process saw it change, by its own monotonic clock. So
clocks may show different times, as long as they run equally fast.

Upstream: client-go `tools/leaderelection`.
"""

from navarchos.leaderelection.candidacy import (
    LEASE_CANDIDATES,
    Candidacy,
    Coordination,
    candidate_identity,
    candidate_rbac,
)
from navarchos.leaderelection.elector import (
    HEALTH_CHECK,
    ElectorOptions,
    LeaderCallbacks,
    LeaderElector,
    LeaseLost,
    LeaseNotRenewed,
    NotLeading,
)
from navarchos.leaderelection.lease import LeaseRecord, LeaseTiming
from navarchos.leaderelection.lock import (
    LEASES,
    LeaseLock,
    LeaseWatch,
    Lock,
    lease_rbac,
    unique_identity,
)

__all__ = [
    "HEALTH_CHECK",
    "LEASES",
    "LEASE_CANDIDATES",
    "Candidacy",
    "Coordination",
    "ElectorOptions",
    "LeaderCallbacks",
    "LeaderElector",
    "LeaseLock",
    "LeaseLost",
    "LeaseNotRenewed",
    "LeaseRecord",
    "LeaseTiming",
    "LeaseWatch",
    "Lock",
    "NotLeading",
    "candidate_identity",
    "candidate_rbac",
    "lease_rbac",
    "unique_identity",
]
