"""What the manifests agree on. Names are those published in 2019."""

from typing import Final

from navarchos._version import __version__

__all__ = [
    "EVENTS_NAMESPACE",
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
"""The role that lets the manager ask who may look at its metrics."""

METRICS_READER: Final = f"{NAME}-metrics-reader"
"""The role of those who may."""

EVENTS_NAMESPACE: Final = "default"
"""Where events about objects without a namespace go; ours are about no others."""

IMAGE: Final = f"quay.io/pusher/navarchos:{__version__}"
"""Of this version, not `latest`: rights and code belong together."""

METRICS_PORT: Final = 8080
HEALTH_PORT: Final = 8081
