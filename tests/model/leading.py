"""Who leads by the Lease, and whether what is written is theirs to write."""

from collections.abc import Callable
from typing import Final

from tests.model.scheduling import Process, Scheduler

from navarchos.leaderelection import LeaseTiming
from navarchos.testing.apiserver.handler import Call
from navarchos.testing.apiserver.store import Change

__all__ = ["LEASE", "LEASES", "TIMING", "LeaseWatcher", "is_guarded"]

LEASE: Final = ("kube-system", "navarchos-leader-election")
LEASES: Final = "leases"

TIMING: Final = LeaseTiming(retry_period=4.0)
"""As shipped, with half as many renewals, which are most of the requests of a run."""

_ON_THE_WAY: Final = 0.1
"""Seconds for which a write may be in the network: what has left cannot be called back."""

_FREE: Final = frozenset({LEASES, "events"})
_READS: Final = frozenset({"get", "list", "watch"})


def is_guarded(call: Call) -> bool:
    """Tell whether only a leader may send this."""
    return call.verb not in _READS and call.resource not in _FREE


class LeaseWatcher:
    """Knows the Lease as the server has it, and judges each write by it.

    Attributes:
        holder: The process that it names; empty for none.
    """

    def __init__(self, scheduler: Scheduler, report: Callable[[str], None]) -> None:
        self.holder = ""
        self._renewed_at = 0.0
        self._scheduler = scheduler
        self._report = report

    def on_change(self, change: Change) -> None:
        """Take in what somebody wrote to the Lease."""
        spec = change.object.get("spec") or {} if change.type != "DELETED" else {}
        self.holder = str(spec.get("holderIdentity") or "")
        self._renewed_at = self._scheduler.seconds

    def about_to_write(self, process: Process, call: Call) -> None:
        """Judge a request that leaves, or arrives: one may write, while its lease holds."""
        if not is_guarded(call):
            return
        if self.holder != process.name:
            self._report(
                f"{process.name} wrote ({call.verb} {call.resource} {call.name}), "
                f"and {self.holder or 'nobody'} holds the lease"
            )
        age = self._scheduler.seconds - self._renewed_at
        if age > TIMING.valid_for + _ON_THE_WAY:
            self._report(
                f"{process.name} wrote ({call.verb} {call.resource} {call.name}) {age:.1f} s "
                "after its lease was renewed"
            )
