"""Emptying a node: what may go, asking it to go, and what the answers mean.

The decisions are pure functions; the actions are thin. A script calls
`drain_node`, which is `kubectl drain` in Python. A controller, which must not wait,
puts the pieces together itself: `classify` the pods, ask those that are due through
an `Evictor`, look again when something changes.
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
from navarchos.drain.eviction import Answer, Evictor, Outcome, outcome_of
from navarchos.drain.filters import Action, DaemonSetExists, Finding, Reason
from navarchos.drain.options import DrainOptions
from navarchos.drain.plan import DrainPlan, PlannedPod, classify
from navarchos.drain.pods import DAEMON_SETS, PODS, DaemonSet, Pod, full_name, pods_on
from navarchos.drain.retry import retry_delay

__all__ = [
    "BUDGETS",
    "DAEMON_SETS",
    "LATE_BINDING",
    "PODS",
    "Action",
    "Answer",
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
    "Evictor",
    "Finding",
    "NodeReplaced",
    "OnProgress",
    "Outcome",
    "PlannedPod",
    "Pod",
    "PodsNotAllowed",
    "Reason",
    "budgets_of",
    "classify",
    "cordon_patch",
    "cordon_state",
    "drain_node",
    "full_name",
    "outcome_of",
    "pods_on",
    "retry_delay",
    "uncordon_patch",
]
