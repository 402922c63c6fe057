"""The operator's processes of a run: real managers, one of which leads."""

import random
from collections.abc import Callable

from tests.model.judging import OPERATOR
from tests.model.leading import LEASE, TIMING
from tests.model.scheduling import Process, ProcessClock, Scheduler
from tests.model.serving import Connection, Server, Trouble

from navarchos.client import Client, ClientConfig
from navarchos.instrument import Instruments
from navarchos.leaderelection import LeaseLost
from navarchos.operator.setup import add_operator
from navarchos.runtime import GracePeriodExceeded, LeaderElectionOptions, Manager, ManagerOptions
from navarchos.stopping import StopToken

__all__ = ["Operator"]


class Operator:
    """One process, from its start to its end.

    It competes for the Lease as the shipped one does, with requests like all others.

    Attributes:
        failure: What ended its manager, if that was no order.
        has_ended: Whether the process is gone.
    """

    def __init__(self, scheduler: Scheduler, server: Server, trouble: Trouble, number: int) -> None:
        self.process = Process(f"{OPERATOR}{number}")
        self.failure: BaseException | None = None
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
            # Resyncs would cover up wake-ups that are missing. What a killed manager had
            # frozen would stay, and each of them would collect what is in memory first.
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
        add_operator(self._manager, workers=2)

    def start(self) -> None:
        """Let it run."""
        self.clock.thread("nav-manager", self._run).start()

    @property
    def is_at_work(self) -> bool:
        """Whether it has been elected, and neither ended nor stands still."""
        return self._manager.elected.is_set() and not (self.has_ended or self.process.is_frozen)

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._scheduler.kill(self.process)
        self.has_ended = True

    def _run(self) -> None:
        try:
            self._manager.run(self.stop)
        except Exception as error:  # noqa: BLE001 - the run judges it
            # Threads that are killed fail each other: that is none of the manager's.
            self.failure = None if self.process.is_dead else error
            if isinstance(error, LeaseLost | GracePeriodExceeded):
                self._scheduler.kill(self.process)  # it exits, whatever still runs
        self.has_ended = True


def identities(rand: random.Random) -> Callable[[], str]:
    """Return what makes uids that a seed decides."""
    return lambda: f"{rand.getrandbits(64):016x}"
