"""Whether a manager is active, judged by the Lease of the shipped Deployment."""

from datetime import datetime
from typing import Final

from navarchos.client import Client, Forbidden, NotFound
from navarchos.leaderelection import LeaseLock
from navarchos.meta import format_time
from navarchos.operator.deployment.settings import LEASE, NAMESPACE

__all__ = ["leader_problem"]

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
