"""A simulated cluster: all parts of Kubernetes except the API server.

Begin with `Cluster`. Nodes, a scheduler, kubelets, the controllers of workloads and
budgets, and a cloud that replaces machines run against an in-process or a real API
server, in time that passes `speed` times as fast. A checker observes every write and
reports violated invariants. The package `controllers` holds the reconcilers, written on
this project's framework.
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
