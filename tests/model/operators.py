"""The operator's processes of a run: real managers, one of which leads."""

import random
from collections.abc import Callable

from tests.model.judging import OPERATOR
from tests.model.scheduling import Process, ProcessClock, Scheduler
from tests.model.serving import Connection, Server, Trouble

from navarchos.client import Client, ClientConfig
from navarchos.leaderelection import NotLeading
from navarchos.operator.assembly import build
from navarchos.runtime import Manager, ManagerOptions
from navarchos.stopping import StopToken

__all__ = ["Operator"]


class Operator:
    """One process, from its start to its end.

    It has no lease: who leads is decided by the run, and its client has a fence as a
    manager with leader election has one.

    Attributes:
        failure: What ended its manager, if that was no order.
    """

    def __init__(self, scheduler: Scheduler, server: Server, trouble: Trouble, number: int) -> None:
        self.process = Process(f"{OPERATOR}{number}")
        self.failure: BaseException | None = None
        self.has_ended = False
        self._scheduler = scheduler
        self._leads = True
        self.clock = ProcessClock(scheduler, self.process)
        self.stop = StopToken(clock=self.clock)
        self.connection = Connection(server, self.process, trouble)
        config = ClientConfig(host="http://model", user_agent=self.process.name)
        client = Client(config, transport=self.connection, clock=self.clock)
        self._manager = Manager(
            client.gated(self._fence),
            # Resyncs would cover up wake-ups that are missing. What a killed manager had
            # frozen would stay, and each of them would collect what is in memory first.
            options=ManagerOptions(
                sync_period=0.0, graceful_shutdown_timeout=30.0, freeze_caches=False
            ),
            clock=self.clock,
        )
        build(self._manager, workers=2)

    def start(self) -> None:
        """Let it run."""
        self.clock.thread("nav-manager", self._run).start()

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._scheduler.kill(self.process)
        self._leads = False
        self.has_ended = True

    def depose(self) -> None:
        """Take the lease away: what it still wants to write stays here."""
        self._leads = False

    def _fence(self) -> float:
        if not self._leads:
            raise NotLeading("model")
        return 5.0

    def _run(self) -> None:
        try:
            self._manager.run(self.stop)
        except Exception as error:  # noqa: BLE001 - the run judges it
            # Threads that are killed fail each other: that is none of the manager's.
            self.failure = None if self.process.is_dead else error
        self.has_ended = True


def identities(rand: random.Random) -> Callable[[], str]:
    """Return what makes uids that a seed decides."""
    return lambda: f"{rand.getrandbits(64):016x}"
