"""A simulated cluster: everything of Kubernetes but the API server itself.

Begin with `Cluster`. Nodes, a scheduler, kubelets, the controllers of workloads and
budgets, and a cloud that replaces machines run against an API server, in this process
or real, in time that passes `speed` times as fast. A checker watches every write for broken
invariants. What is decided stands in pure modules of its own; `controllers` holds
the reconcilers, written on this project's framework.
"""

from navarchos.testing.cluster.invariants import InvariantChecker, Violation
from navarchos.testing.cluster.options import Agent, ClusterOptions, Span
from navarchos.testing.cluster.simulator import Cluster, ClusterStats

__all__ = [
    "Agent",
    "Cluster",
    "ClusterOptions",
    "ClusterStats",
    "InvariantChecker",
    "Span",
    "Violation",
]
