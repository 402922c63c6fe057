"""Names and ports that the manifests share. The names were published in 2019."""

from typing import Final

from navarchos._version import __version__

__all__ = [
    "AGGREGATE_TO_GATES",
    "EVENTS_NAMESPACE",
    "GATES",
    "HEALTH_PORT",
    "IMAGE",
    "LABELS",
    "LEASE",
    "METRICS_ACCESS",
    "METRICS_PORT",
    "METRICS_READER",
    "NAME",
    "NAMESPACE",
]

NAME: Final = "navarchos"
NAMESPACE: Final = "kube-system"
LABELS: Final = {"app": NAME}

LEASE: Final = "navarchos-leader-election"

METRICS_ACCESS: Final = f"{NAME}-metrics-auth"
"""The role that allows the manager to ask the API server who may read its metrics."""

METRICS_READER: Final = f"{NAME}-metrics-reader"
"""The role of clients that may read the metrics."""

GATES: Final = f"{NAME}-gates"
"""The role that allows the manager to read the objects of gates."""

AGGREGATE_TO_GATES: Final = "navarchos.pusher.com/aggregate-to-gates"
"""The label of ClusterRoles whose rules are added to the role of gates."""

EVENTS_NAMESPACE: Final = "default"
"""The namespace of events about cluster-scoped objects; the operator writes no other events."""

IMAGE: Final = f"quay.io/pusher/navarchos:{__version__}"
"""The image of this version, not `latest`, because permissions and code must match."""

METRICS_PORT: Final = 8080
HEALTH_PORT: Final = 8081
