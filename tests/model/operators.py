"""The operator's processes of a run: complete managers, one of which leads."""

import random
from collections.abc import Callable

from tests.model.judging import OPERATOR
from tests.model.leading import LEASE, TIMING
from tests.model.scheduling import Process, ProcessClock, Scheduler
from tests.model.serving import Connection, Server, Trouble

from navarchos.client import Client, ClientConfig
from navarchos.instrument import Instruments
from navarchos.leaderelection import LeaseLost
from navarchos.operator.setup import OperatorParts, add_operator
from navarchos.runtime import GracePeriodExceeded, LeaderElectionOptions, Manager, ManagerOptions
from navarchos.stopping import StopToken

__all__ = ["Operator"]


class Operator:
    """One process, from its start to its end.

    It competes for the Lease as in a deployment, by requests like all others.

    Attributes:
        failure: The exception that ended its manager, if there was one.
        failed_at: When it did, in the scheduler's seconds.
        has_ended: Whether the process has ended.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        server: Server,
        trouble: Trouble,
        number: int,
        further: Callable[[OperatorParts], None] = lambda _: None,
    ) -> None:
        self.process = Process(f"{OPERATOR}{number}")
        self.failure: BaseException | None = None
        self.failed_at = 0.0
        self.has_ended = False
        self._scheduler = scheduler
        self.clock = ProcessClock(scheduler, self.process)
        self.stop = StopToken(clock=self.clock)
        self.connection = Connection(server, self.process, trouble)
        config = ClientConfig(host="http://model", user_agent=self.process.name)
        instruments = Instruments()
        client = Client(
            config, transport=self.connection, clock=self.clock, instruments=instruments
        )
        namespace, lease = LEASE
        self._manager = Manager(
            client,
            # Resyncs would hide missing triggers. What a killed manager had
            # frozen would stay, and each process would first collect the whole memory.
            options=ManagerOptions(
                sync_period=0.0,
                graceful_shutdown_timeout=30.0,
                freeze_caches=False,
                leader_election=LeaderElectionOptions(
                    lease,
                    namespace,
                    identity=self.process.name,
                    timing=TIMING,
                ),
            ),
            clock=self.clock,
            instruments=instruments,
        )
        further(add_operator(self._manager, workers=2))

    def start(self) -> None:
        """Start the process."""
        self.clock.thread("nav-manager", self._run).start()

    @property
    def is_at_work(self) -> bool:
        """Whether it has been elected, has not ended, and is not stopped."""
        return self._manager.elected.is_set() and not (self.has_ended or self.process.is_frozen)

    def kill(self) -> None:
        """Kill the process at its present point."""
        self._scheduler.kill(self.process)
        self.has_ended = True

    def _run(self) -> None:
        try:
            self._manager.run(self.stop)
        except Exception as error:  # noqa: BLE001 - the run judges it
            # Killed threads make other threads fail, which is not a failure of the manager.
            self.failure = None if self.process.is_dead else error
            self.failed_at = self._scheduler.seconds
            if isinstance(error, LeaseLost | GracePeriodExceeded):
                self._scheduler.kill(self.process)  # the process exits, even if threads still run
        self.has_ended = True


def identities(rand: random.Random) -> Callable[[], str]:
    """Return a generator of uids that depend on the seed only."""
    return lambda: f"{rand.getrandbits(64):016x}"
