"""Whether somebody manages the cluster, as far as the Lease of the shipped manager tells."""

from datetime import datetime
from typing import Final

from navarchos.client import Client, Forbidden, NotFound
from navarchos.leaderelection import LeaseLock
from navarchos.meta import format_time
from navarchos.operator.deployment.settings import LEASE, NAMESPACE

__all__ = ["leader_problem"]

_TIMEOUT: Final = 10.0

_SKEW: Final = 60.0
"""Seconds by which the clocks of two machines may differ, and lease renewals be late."""


def leader_problem(client: Client, now: datetime) -> str:
    """Return why no manager seems to be at work; empty if one is, or nobody can tell.

    A manager that runs without leader election has no Lease, and one that was started
    with another `--leader-election-id` has another: then nothing is said. Clocks are
    compared, so the lease has to be overdue by a minute. The text stays as long as the fact.

    Raises:
        ClientError: The server did not answer.
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
    return f"the Lease {lease} of {record.holder_identity} was renewed last at {at}"
