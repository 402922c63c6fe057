"""Check that only the holder of the Lease writes."""

from collections.abc import Callable
from typing import Final

from tests.model.scheduling import Process, Scheduler

from navarchos.leaderelection import LeaseTiming
from navarchos.testing.apiserver.handler import ApiCall
from navarchos.testing.apiserver.store import Change

__all__ = ["LEASE", "LEASES", "TIMING", "LeaseWatcher", "is_guarded"]

LEASE: Final = ("kube-system", "navarchos-leader-election")
LEASES: Final = "leases"

TIMING: Final = LeaseTiming(retry_period=4.0)
"""The defaults with half as many renewals, which are most of the requests of a run."""

_ON_THE_WAY: Final = 0.1
"""Seconds for which a write may be in the network after it was sent."""

_FREE: Final = frozenset({LEASES, "events"})
_READS: Final = frozenset({"get", "list", "watch"})


def is_guarded(call: ApiCall) -> bool:
    """Return whether only a leader may send this request."""
    return call.verb not in _READS and call.resource not in _FREE


class LeaseWatcher:
    """Follows the Lease of the server and checks each write against it.

    Attributes:
        holder: The process that the Lease names; empty without a holder.
        held_since: The time in seconds since which it does.
    """

    def __init__(self, scheduler: Scheduler, report: Callable[[str], None]) -> None:
        self.holder = ""
        self.held_since = 0.0
        self._renewed_at = 0.0
        self._scheduler = scheduler
        self._report = report

    def on_change(self, change: Change) -> None:
        """Record a write to the Lease."""
        spec = change.object.get("spec") or {} if change.type != "DELETED" else {}
        holder = str(spec.get("holderIdentity") or "")
        if holder != self.holder:
            self.held_since = self._scheduler.seconds
        self.holder = holder
        self._renewed_at = self._scheduler.seconds

    def about_to_write(self, process: Process, call: ApiCall) -> None:
        """Check a write that is sent or arrives: only the holder of a valid lease may write."""
        if not is_guarded(call):
            return
        if self.holder != process.name:
            self._report(
                f"{process.name} wrote ({call.verb} {call.resource} {call.name}), "
                f"and the lease names {self.holder or 'no process'}"
            )
        age = self._scheduler.seconds - self._renewed_at
        if age > TIMING.valid_for + _ON_THE_WAY:
            self._report(
                f"{process.name} wrote ({call.verb} {call.resource} {call.name}) {age:.1f} s "
                "after its lease was renewed"
            )
