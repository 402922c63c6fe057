"""The operator's Deployment: keeps as many processes running as there are replicas."""

import random
from collections.abc import Callable
from typing import Final

from tests.model.judging import Judge, Verdict
from tests.model.operators import Operator
from tests.model.scheduling import Process, Scheduler
from tests.model.serving import Server
from tests.model.trouble import Shaken, Trace

from navarchos.leaderelection import LeaseLost
from navarchos.operator.setup import OperatorParts
from navarchos.runtime import GracePeriodExceeded

__all__ = ["Deployment"]

_WITHOUT_LEADER: Final = 60.0
"""Seconds without a leader that are accepted when there are no faults: a killed process is
started again within 15, and its lease ends in as many."""


class Deployment:
    """Starts processes, and applies faults of machine and network to them.

    Attributes:
        operators: All processes that were started.
        further: Adds further systems to a process before it starts.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        server: Server,
        trouble: Shaken,
        judge: Judge,
        rand: random.Random,
        trace: Trace,
        replicas: int,
    ) -> None:
        self.operators: list[Operator] = []
        self.further: Callable[[OperatorParts], None] = lambda _: None
        self._replicas = replicas
        self._next_start = 0.0
        self._led_at = 0.0
        self._thaw_at: dict[Process, float] = {}
        self._stood_still: set[Process] = set()
        self._shaky_until = 0.0
        self._scheduler = scheduler
        self._server = server
        self._trouble = trouble
        self._judge = judge
        self._rand = rand
        self._trace = trace
        trouble.on_kill = self._killed

    @property
    def leader(self) -> Operator | None:
        """The processes that lead and run."""
        holder = self._judge.lease.holder
        return next((o for o in self._running() if o.process.name == holder and o.is_at_work), None)

    def step(self) -> None:
        """Start missing processes, continue stopped ones, and record whether one leads."""
        now = self._scheduler.seconds
        for process in [process for process, at in self._thaw_at.items() if at <= now]:
            self._thaw(process)
        if len(self._running()) < self._replicas and now >= self._next_start:
            self.start()
        if self.leader is not None:
            self._led_at = now
        else:
            self._judge.disturbed(now + 2.0)

    def start(self) -> None:
        """Start another process."""
        number = len(self.operators) + 1
        operator = Operator(self._scheduler, self._server, self._trouble, number, self.further)
        self.operators.append(operator)
        self._trace.add(operator.process.name, "is started")
        operator.start()

    def begin_trouble(self) -> None:
        """Accept lost leases from now on."""
        self._shaky_until = float("inf")

    def heal(self) -> None:
        """Continue every stopped process. After some time leases must not be lost any more."""
        self._shaky_until = self._scheduler.seconds + 30.0
        for process in list(self._thaw_at):
            self._thaw(process)

    def tell_to_go(self, leader: Operator) -> None:
        """Stop the leader in order, as the rollout of a Deployment does."""
        self._trace.add(leader.process.name, "is stopped")
        if self._rand.random() < 0.5:
            self.start()
        else:
            self._next_start = self._scheduler.seconds + self._rand.choice([0.0, 0.5, 5.0])
        leader.stop.stop("stopped")

    def freeze(self, leader: Operator) -> None:
        """Stop the leader's process as `SIGSTOP` does; another one may lead meanwhile."""
        # A write that was sent arrives even if its process is stopped.
        while leader.connection.writes_under_way and not leader.has_ended:
            self._scheduler.sleep(0.05)
        if leader.has_ended:
            return
        seconds = self._rand.choice([3.0, 20.0, 40.0])
        self._trace.add(leader.process.name, f"is stopped for {seconds:.0f} s")
        self._judge.disturbed()
        if self._rand.random() < 0.7:
            self.start()
        if self._rand.random() < 0.5:
            # It gets no news of the lease when it continues; only its clock shows the time.
            self._trouble.silence(leader.process, seconds + 8.0, only_leases=True)
        self._scheduler.freeze(leader.process)
        self._stood_still.add(leader.process)
        self._thaw_at[leader.process] = self._scheduler.seconds + seconds

    def silence(self, leader: Operator) -> None:
        """Let requests of the leader get no answer."""
        seconds = self._rand.choice([4.0, 9.0, 25.0])
        only_leases = self._rand.random() < 0.5
        what = "its lease" if only_leases else "anything"
        self._trace.add(leader.process.name, f"gets no answer about {what} for {seconds:.0f} s")
        self._trouble.silence(leader.process, seconds, only_leases=only_leases)

    def look(self) -> None:
        """Check how processes ended, and that one of them leads.

        Raises:
            Verdict: A process failed, or no process leads.
        """
        now = self._scheduler.seconds
        is_shaky = now <= self._shaky_until
        for operator in self.operators:
            if operator.failure is None:
                continue
            failure, operator.failure = operator.failure, None
            # A process that is stopped while it ends has no time left when it continues, and
            # nothing ends a request without an answer sooner than its timeout.
            is_late = isinstance(failure, GracePeriodExceeded)
            waits = operator.connection.unanswered_until >= operator.failed_at
            excused = operator.process in self._stood_still or waits if is_late else is_shaky
            if not (isinstance(failure, LeaseLost | GracePeriodExceeded) and excused):
                raise Verdict(f"{operator.process.name} failed: {failure!r}")
            self._trace.add(operator.process.name, f"ends: {failure}")
        if not is_shaky and now - max(self._led_at, self._shaky_until) > _WITHOUT_LEADER:
            raise Verdict(f"no process has led for {_WITHOUT_LEADER:.0f} s")

    def close(self) -> None:
        """End every process, so that nothing of the run remains."""
        for operator in self.operators:
            operator.kill()
        while any(self._scheduler.threads_of(operator.process) for operator in self.operators):
            self._scheduler.sleep(0.0)

    def _running(self) -> list[Operator]:
        return [operator for operator in self.operators if not operator.has_ended]

    def _thaw(self, process: Process) -> None:
        del self._thaw_at[process]
        self._trace.add(process.name, "continues")
        self._scheduler.thaw(process)

    def _killed(self, process: Process) -> None:
        for operator in self.operators:
            if operator.process is process:
                operator.kill()
        delay = self._rand.choice([0.0, 1.0, 15.0])
        self._next_start = self._scheduler.seconds + delay
