"""Draining a node: which pods may be evicted, the eviction itself, and what its response means.

The decisions are pure functions; the actions send one request each. A script calls
`drain_node`, which is `kubectl drain` in Python. A controller must not wait, so it combines
the parts itself: `classify` the pods, evict the pods that are due with an `Evictor`, and
reconcile again when something changes.
"""

from navarchos.drain.budgets import BUDGETS, Budget, budgets_of
from navarchos.drain.cordon import (
    LATE_BINDING,
    CordonState,
    cordon_patch,
    cordon_state,
    uncordon_patch,
)
from navarchos.drain.drainer import DrainReport, OnProgress, drain_node
from navarchos.drain.errors import (
    DrainError,
    DrainTimeout,
    EvictionForbidden,
    NodeReplaced,
    PodsNotAllowed,
)
from navarchos.drain.eviction import (
    EvictionOutcome,
    EvictionResult,
    Evictor,
    eviction_result,
    retry_delay,
)
from navarchos.drain.options import DrainOptions
from navarchos.drain.plan import (
    DaemonSetExists,
    DrainPlan,
    PlannedPod,
    PodAction,
    PodFinding,
    PodReason,
    classify,
)
from navarchos.drain.pods import DAEMON_SETS, PODS, DaemonSet, Pod, full_name, pods_on

__all__ = [
    "BUDGETS",
    "DAEMON_SETS",
    "LATE_BINDING",
    "PODS",
    "Budget",
    "CordonState",
    "DaemonSet",
    "DaemonSetExists",
    "DrainError",
    "DrainOptions",
    "DrainPlan",
    "DrainReport",
    "DrainTimeout",
    "EvictionForbidden",
    "EvictionOutcome",
    "EvictionResult",
    "Evictor",
    "NodeReplaced",
    "OnProgress",
    "PlannedPod",
    "Pod",
    "PodAction",
    "PodFinding",
    "PodReason",
    "PodsNotAllowed",
    "budgets_of",
    "classify",
    "cordon_patch",
    "cordon_state",
    "drain_node",
    "eviction_result",
    "full_name",
    "pods_on",
    "retry_delay",
    "uncordon_patch",
]
