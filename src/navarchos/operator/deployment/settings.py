"""What the manifests share, with names of 2019, and whether a manager is active by its Lease."""

from datetime import datetime
from typing import Final

from navarchos._version import __version__
from navarchos.client import Client, Forbidden, NotFound
from navarchos.leaderelection import LeaseLock
from navarchos.meta import format_time

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
    "leader_problem",
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


_TIMEOUT: Final = 10.0

_SKEW: Final = 60.0
"""Seconds that allow for clocks of two machines that differ, and for late renewals."""


def leader_problem(client: Client, now: datetime) -> str:
    """Return why no manager seems to be active; empty if one is, or if that is unknown.

    A manager without leader election has no Lease, and a manager that was started with another
    `--leader-election-id` has another Lease: the result is then empty. The function compares the
    clocks of two machines, so the Lease must be overdue by a minute. The text does not change
    while the Lease does not change.

    Raises:
        ClientError: The API server did not answer.
    """
    lock = LeaseLock(client, NAMESPACE, LEASE, "reader")
    try:
        record = lock.get(timeout=_TIMEOUT)
    except (NotFound, Forbidden):
        return ""
    lease = lock.describe()
    if not record.holder_identity:
        return f"the Lease {lease} has no holder"
    if record.renew_time is None:
        return ""
    overdue = (now - record.renew_time).total_seconds() - record.lease_duration_seconds
    if overdue < _SKEW:
        return ""
    at = format_time(record.renew_time)
    return f"{record.holder_identity} last renewed the Lease {lease} at {at}"
