"""The manager's side of leader election."""

from collections.abc import Callable
from dataclasses import dataclass

from navarchos.client import Client, ClientError
from navarchos.clock import Clock
from navarchos.instrument import Instruments
from navarchos.leaderelection import (
    LEASE_CANDIDATES,
    Candidacy,
    ElectorOptions,
    LeaderCallbacks,
    LeaderElector,
    LeaseLock,
    LeaseWatch,
    candidate_identity,
    unique_identity,
)
from navarchos.logs import get_logger
from navarchos.runtime.options import LeaderElectionOptions
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["Election", "LeaderWork"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaderWork:
    """What an election runs while this process leads.

    Attributes:
        lead: The work; returns after its token was set.
        fail: Called with `LeaseLost`, and with any other error that ends the election.
        timeout: Seconds that the work may take to end after a stop; `None` for no limit.
    """

    lead: Callable[[StopToken], None]
    fail: Callable[[BaseException], None]
    timeout: float | None


class Election:
    """Competes for the lease on a separate thread, and runs the work while leading.

    Args:
        options: The lease, and how fast it changes hands.
        client: Its server and user are used. The lock gets a separate client, so that neither
            a rate limit nor busy connections delay a renewal (RT-21).
        work: What needs leadership.
        clock: Time and waiting.
        instruments: Where leadership is shown as metrics.
    """

    def __init__(
        self,
        options: LeaderElectionOptions,
        client: Client,
        *,
        work: LeaderWork,
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        self._client = client.dedicated(clock=clock, instruments=instruments)
        generated = unique_identity() if options.coordination is None else candidate_identity()
        self._identity = options.identity or generated
        self._options = options
        self._clock = clock
        self._work = work
        self._elector = LeaderElector(
            LeaseLock(self._client, options.namespace, options.name, self._identity),
            LeaderCallbacks(on_started_leading=self._lead),
            options=ElectorOptions(
                timing=options.timing,
                release_on_cancel=options.release_on_cancel,
                work_timeout=work.timeout,
                name=options.name,
            ),
            clock=clock,
            instruments=instruments,
        )
        self._lease_watch = LeaseWatch(
            self._client,
            options.namespace,
            options.name,
            self._identity,
            self._elector.try_now,
            clock=clock,
        )
        self._stop = StopToken(clock=clock)
        self._threads = ThreadGroup("election", stop=self._stop, clock=clock)

    def start(self) -> None:
        """Start to compete."""
        self._threads.start("", self._compete)

    def stop(self, reason: str) -> None:
        """End the work, release the lease, and stop competing. Does not wait."""
        self._stop.stop(reason)

    def join(self, timeout: float | None) -> bool:
        """Wait for the end; False if the time passed first."""
        return self._threads.join(timeout)

    def fence(self) -> float:
        """Return how long writes may take; raises `NotLeading` if none may be sent."""
        return self._elector.fence()

    def check(self) -> None:
        """Raise if this process leads with a lease that has expired."""
        self._elector.check()

    def _compete(self) -> None:
        try:
            self._lease_watch.start()
            self._elector.run(self._stop, self._candidacy())
        except Exception as error:  # noqa: BLE001 - the manager raises it
            self._work.fail(error)
        finally:
            self._client.close()
            self._lease_watch.stop(None)

    def _candidacy(self) -> Candidacy | None:
        """Return the candidacy if the server elects, else `None`."""
        coordination = self._options.coordination
        if coordination is None or not self._server_elects():
            return None
        return Candidacy(
            self._client,
            self._options.namespace,
            self._options.name,
            self._identity,
            coordination,
            clock=self._clock,
        )

    def _server_elects(self) -> bool:
        while not self._stop.is_set():
            try:
                served = self._client.has_kind(LEASE_CANDIDATES)
            except ClientError as error:
                _log.warning("election_mode_unknown", error=str(error))
                self._stop.wait(self._options.timing.retry_period)
                continue
            if not served:
                _log.info("election_not_coordinated", reason=f"{LEASE_CANDIDATES} is not served")
            return served
        return False

    def _lead(self, stop: StopToken) -> None:
        # A leader does not need the watch: it would only see its own renewals.
        self._lease_watch.stop(0)
        self._work.lead(stop)
