"""What the manifests agree on. Names are those published in 2019."""

from typing import Final

from navarchos._version import __version__

__all__ = [
    "EVENTS_NAMESPACE",
    "HEALTH_PORT",
    "IMAGE",
    "LABELS",
    "LEASE",
    "METRICS_PORT",
    "NAME",
    "NAMESPACE",
]

NAME: Final = "navarchos"
NAMESPACE: Final = "kube-system"
LABELS: Final = {"app": NAME}

LEASE: Final = "navarchos-leader-election"

EVENTS_NAMESPACE: Final = "default"
"""Where events about objects without a namespace go; ours are about no others."""

IMAGE: Final = f"quay.io/pusher/navarchos:{__version__}"
"""Of this version, not `latest`: rights and code belong together."""

METRICS_PORT: Final = 8080
HEALTH_PORT: Final = 8081
