"""The manager's side of leader election."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from navarchos.client import Client
from navarchos.clock import Clock
from navarchos.errors import ConfigError
from navarchos.instrument import Instruments
from navarchos.leaderelection import LeaderElector, LeaseLock, unique_identity
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["Election", "LeaderElectionOptions"]


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
    """

    name: str
    namespace: str
    identity: str = ""
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    release_on_cancel: bool = True

    def __post_init__(self) -> None:
        for field in ("name", "namespace"):
            if not getattr(self, field):
                raise ConfigError(field, "", f"leader election needs the Lease's {field}")


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
        self._client = Client(
            replace(client.config, qps=None, burst=None), clock=clock, instruments=instruments
        )
        lock = LeaseLock(
            self._client, options.namespace, options.name, options.identity or unique_identity()
        )
        self._elector = LeaderElector(
            lock,
            on_started_leading=lead,
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

    def check(self) -> None:
        """Raise if we believe to lead with a lease that has expired."""
        self._elector.check()

    def _compete(self) -> None:
        try:
            self._elector.run(self._stop)
        except Exception as error:  # noqa: BLE001 - the manager raises it
            self._fail(error)
        finally:
            self._client.close()


def _nothing() -> None:
    pass
