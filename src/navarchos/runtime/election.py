"""The manager's side of leader election."""

from collections.abc import Callable
from dataclasses import dataclass

from navarchos.client import Client, ClientError
from navarchos.clock import Clock
from navarchos.errors import ConfigError
from navarchos.instrument import Instruments
from navarchos.leaderelection import (
    LEASE_CANDIDATES,
    Candidacy,
    Coordination,
    LeaderElector,
    LeaseLock,
    LeaseWatch,
    candidate_identity,
    unique_identity,
)
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["Election", "LeaderElectionOptions"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaderElectionOptions:
    """Which lease, and how fast it moves.

    Attributes:
        name: The Lease's name.
        namespace: The Lease's namespace.
        identity: Who we are; host name and a random part if empty (LE-05).
        lease_duration: Seconds after which others may take a lease that is not renewed.
        renew_deadline: Seconds of failed renewals after which we give up.
        retry_period: Seconds between attempts.
        release_on_cancel: Give the lease back at the end, so that others need not wait.
        coordination: Let the API server elect, where it can; everywhere else, and by
            default, candidates compete (LE-22).
    """

    name: str
    namespace: str
    identity: str = ""
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    release_on_cancel: bool = True
    coordination: Coordination | None = None

    def __post_init__(self) -> None:
        for field in ("name", "namespace"):
            if not getattr(self, field):
                raise ConfigError(field, "", f"leader election requires the {field} of the Lease")


class Election:
    """Competes for the lease on a thread of its own, and runs the work while leading.

    Args:
        options: Which lease, and how fast it moves.
        client: Whose server and user are used. The lock gets a client of its own, so
            that neither a limit on requests nor busy connections delay a renewal
            (RT-21).
        lead: What needs leadership; returns after its token was set.
        fail: Told of a lost lease, and of anything else that ends the election.
        work_timeout: Seconds that the work may take to end after a stop.
        clock: Time and waiting.
        instruments: Where leadership is shown.
    """

    def __init__(
        self,
        options: LeaderElectionOptions,
        client: Client,
        *,
        lead: Callable[[StopToken], None],
        fail: Callable[[BaseException], None],
        work_timeout: float | None,
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        self._client = client.dedicated(clock=clock, instruments=instruments)
        generated = unique_identity() if options.coordination is None else candidate_identity()
        identity = options.identity or generated
        lock = LeaseLock(self._client, options.namespace, options.name, identity)
        self._options = options
        self._identity = identity
        self._clock = clock
        self._lead = lead
        self._elector = LeaderElector(
            lock,
            on_started_leading=self._begin,
            on_stopped_leading=_nothing,
            lease_duration=options.lease_duration,
            renew_deadline=options.renew_deadline,
            retry_period=options.retry_period,
            release_on_cancel=options.release_on_cancel,
            work_timeout=work_timeout,
            clock=clock,
            instruments=instruments,
            name=options.name,
        )
        self._lease_watch = LeaseWatch(
            self._client,
            options.namespace,
            options.name,
            identity,
            self._elector.try_now,
            clock=clock,
        )
        self._fail = fail
        self._stop = StopToken(clock=clock)
        self._threads = ThreadGroup("election", stop=self._stop, clock=clock)

    def start(self) -> None:
        """Begin to compete."""
        self._threads.start("", self._compete)

    def stop(self, reason: str) -> None:
        """End the work, give the lease back, and stop competing. Does not wait."""
        self._stop.stop(reason)

    def join(self, timeout: float | None) -> bool:
        """Wait for the end; False if the time passed first."""
        return self._threads.join(timeout)

    def fence(self) -> float:
        """Say how long writes may be under way; raises `NotLeading` for not at all."""
        return self._elector.fence()

    def check(self) -> None:
        """Raise if we believe to lead with a lease that has expired."""
        self._elector.check()

    def _compete(self) -> None:
        try:
            self._lease_watch.start()
            self._elector.run(self._stop, self._candidacy())
        except Exception as error:  # noqa: BLE001 - the manager raises it
            self._fail(error)
        finally:
            self._client.close()
            self._lease_watch.stop(None)

    def _candidacy(self) -> Candidacy | None:
        """Return what we stand for election with, where the server elects."""
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
                _log.warning("election_not_known", error=str(error))
                self._stop.wait(self._options.retry_period)
                continue
            if not served:
                _log.info("election_not_coordinated", why=f"{LEASE_CANDIDATES} is not served")
            return served
        return False

    def _begin(self, stop: StopToken) -> None:
        # A leader knows who leads; its own renewals would be all that it heard.
        self._lease_watch.stop(0)
        self._lead(stop)


def _nothing() -> None:
    pass
