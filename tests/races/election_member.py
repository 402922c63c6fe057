"""One candidate of the election chaos test: a manager whose leader only writes.

    python -m tests.races.election_member URL IDENTITY

It prints `ready` when it competes. Lines on standard input are steps of its wall clock in
seconds, or `AMBUSH`: then a writer that has passed its check as leader stops the whole
process just before it sends. The process stops when standard input ends, and exits with
`LOST` when the lease was lost.
"""

import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from navarchos.client import Client, ClientConfig, ClientError, Resource
from navarchos.clock import SystemClock
from navarchos.leaderelection import LEASES, LeaseLost, LeaseTiming
from navarchos.meta import Object
from navarchos.runtime import LeaderElectionOptions, Manager, ManagerOptions
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

LEASE: Final = ("chaos", "kube-system")
BOOK: Final = ("book", "default")

# The fence closes 1.75 s after a renewal was sent, 1.25 s before another process may take
# over. The machine of the test may be that late with a request that was sent in time.
LEASE_DURATION: Final = 3.0
RENEW_DEADLINE: Final = 1.5
RETRY_PERIOD: Final = 0.25

LOST: Final = 3
AMBUSH: Final = "ambush"

MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=Object)

_WRITERS: Final = 3
_PAUSE: Final = 0.05
_REQUEST_TIMEOUT: Final = 1.0


class SteppingClock(SystemClock):
    """The machine's clock, except for the date, which a test changes."""

    def __init__(self) -> None:
        self.offset = timedelta()

    def now(self) -> datetime:
        """Return the date, with all steps."""
        return super().now() + self.offset

    def follow(self, lines: Iterable[str]) -> None:
        """Step by the seconds in each line."""
        for line in lines:
            self.offset += timedelta(seconds=float(line))


class Ambush:
    """A point between a writer's last check and its request, where it can be stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._laid = False  # guarded by _lock

    def lay(self, lines: Iterable[str]) -> Iterable[str]:
        """Filter the lines that concern the ambush out of the others."""
        for line in lines:
            if line.strip() == AMBUSH:
                with self._lock:
                    self._laid = True
            else:
                yield line

    def pass_by(self) -> None:
        """Stop the process once if an ambush is set."""
        with self._lock:
            caught, self._laid = self._laid, False
        if caught:
            os.kill(os.getpid(), signal.SIGSTOP)


class Writer:
    """Writes continuously as the leader, signed with the transition that made it leader."""

    def __init__(self, manager: Manager, identity: str, ambush: Ambush) -> None:
        self._leases = manager.client.resource(LEASES)
        self._maps = manager.client.resource(MAPS)
        self._identity = identity
        self._ambush = ambush

    def run(self, stop: StopToken) -> None:
        """Write until stopped. Failed writes are repeated, because the network is faulty."""
        signature: dict[str, str] = {}
        for number in itertools.count():
            if stop.wait(_PAUSE):
                return
            if signature:
                self._ambush.pass_by()
            try:
                if not signature:
                    signature = self._signature()
                data = signature | {"number": str(number)}  # a patch without changes is not written
                self._maps.patch(BOOK[0], {"data": data}, BOOK[1], timeout=_REQUEST_TIMEOUT)
            except ClientError as error:
                sys.stderr.write(f"not written: {error}\n")

    def _signature(self) -> dict[str, str]:
        spec = self._leases.get(*LEASE, timeout=_REQUEST_TIMEOUT)["spec"]
        assert isinstance(spec, dict)
        return {"holder": self._identity, "transitions": str(spec["leaseTransitions"])}


class _Ready:
    def run(self, stop: StopToken) -> None:
        """Report that this process competes."""
        sys.stdout.write("ready\n")
        sys.stdout.flush()


def main(url: str, identity: str) -> int:
    """Compete until standard input ends or the lease is lost."""
    # The manager handles signals while it runs. A signal to a process that is ending already
    # must not change its exit status.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    clock, stop, ambush = SteppingClock(), StopToken(), Ambush()
    with Client(ClientConfig(url, user_agent=identity, timeout=2.0), clock=clock) as client:
        lease = LeaderElectionOptions(
            *LEASE,
            identity=identity,
            timing=LeaseTiming(LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD),
        )
        manager = Manager(client, options=ManagerOptions(leader_election=lease), clock=clock)
        for _ in range(_WRITERS):
            manager.add(Writer(manager, identity, ambush))
        manager.add(_Ready(), needs_leader=False)

        def listen() -> None:
            clock.follow(ambush.lay(sys.stdin))
            stop.stop("standard input has ended")

        ThreadGroup("stdin", stop=StopToken()).start("", listen)
        try:
            manager.run(stop, install_signals=True)
        except LeaseLost as error:
            sys.stderr.write(f"{error}\n")
            return LOST
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
