"""The elector: acquires a lease, keeps it, and reports when it is lost."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Gauge

from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.errors import AlreadyStarted, NavarchosError, Stopped, ThreadCrashed
from navarchos.instrument import Instruments
from navarchos.leaderelection import acquirer
from navarchos.leaderelection.candidacy import Candidacy
from navarchos.leaderelection.leader_task import InterruptibleSleep, LeaderTask
from navarchos.leaderelection.lease import JITTER, LeaseTiming
from navarchos.leaderelection.lock import Lock
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = [
    "HEALTH_CHECK",
    "ElectorOptions",
    "LeaderCallbacks",
    "LeaderElector",
    "LeaseLost",
    "LeaseNotRenewed",
    "NotLeading",
]

HEALTH_CHECK: Final = "leaderElection"
"""The name of the health check that calls `check`; the same as upstream (LE-19)."""

_log = get_logger(__name__)


class NotLeading(Stopped):
    """A request was not sent, because another process may be the leader by now.

    A kind of `Stopped`: the work of a leader ends with its leadership.

    Attributes:
        lease: `namespace/name` of the lease.
    """

    def __init__(self, lease: str) -> None:
        super().__init__(f"another process may hold lease {lease}")
        self.lease = lease


class LeaseLost(NavarchosError):
    """This process was the leader and lost the lease.

    The process should exit: another leader may already work on the same objects. After a
    restart it is a candidate like any other.

    Attributes:
        lease: `namespace/name` of the lease.
        identity: Of this process.
        holder: The last known holder; it may still be this process.
    """

    def __init__(self, lease: str, identity: str, holder: str) -> None:
        super().__init__(lease, identity, holder)
        self.lease = lease
        self.identity = identity
        self.holder = holder

    def __str__(self) -> str:
        cause = (
            "it could not be renewed in time"
            if self.holder == self.identity
            else f"its holder is {self.holder or 'no process'}"
        )
        return f"lost lease {self.lease}: {cause}; restart {self.identity}"


class LeaseNotRenewed(NavarchosError):
    """The health check failed: this process leads with a lease that has expired.

    Attributes:
        lease: `namespace/name` of the lease.
        age: Seconds since the last renewal.
    """

    def __init__(self, lease: str, age: float) -> None:
        super().__init__(lease, age)
        self.lease = lease
        self.age = age

    def __str__(self) -> str:
        return f"lease {self.lease} has not been renewed for {self.age:.0f} s"


def _ignore() -> None:
    pass


@dataclass(frozen=True, slots=True)
class LeaderCallbacks:
    """The functions that an elector calls.

    Attributes:
        on_started_leading: The leader's work, or a function that starts it. Runs on a separate
            thread, with a token that is set when the work must end. Returning does not end
            leadership; raising does.
        on_stopped_leading: Called last, on the thread of `run`.
        on_new_leader: Called with the identity of each new leader, this process included, on a
            separate thread; with `""` when the leader is gone.
    """

    on_started_leading: Callable[[StopToken], None]
    on_stopped_leading: Callable[[], None] = _ignore
    on_new_leader: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class ElectorOptions:
    """Settings of an elector.

    Attributes:
        timing: The durations of the election.
        release_on_cancel: Release the lease after a stop, so that another candidate can lead
            within its retry period.
        work_timeout: Seconds that the work may take to end after a stop. After that the lease is
            left to expire. `None` waits without limit.
        name: Label of the metrics; the lock's description when empty.
    """

    timing: LeaseTiming = field(default_factory=LeaseTiming)
    release_on_cancel: bool = True
    work_timeout: float | None = 30.0
    name: str = ""


class LeaderElector:
    """Competes for a lock and runs the leader's work while it holds the lock.

    Promises: if clocks run equally fast, `fence` raises, and the work's token is set as soon as
    a thread of this process runs, before another process may hold the lease;
    `on_stopped_leading` is called exactly once when `run` ends, even if this process never led
    or another callback raised; while the work ends after a stop the lease is still renewed, and
    it is released only after the work has ended.

    Does not promise: to interrupt the work. A request in flight when the lease is lost may still
    reach the server. Therefore let the work write through a client that is `fenced` by `fence`,
    and exit the process after `LeaseLost`.

    Lifecycle: `run` once. Threads: the queries are safe from any thread.

    Args:
        lock: The lock to compete for; not shared with another elector.
        callbacks: The work, and what to call when leadership changes.
        options: Durations and behaviour at the end.
        clock: Time and waiting.
        rand: Returns numbers in [0, 1) for jitter.
        instruments: Where leadership is shown as metrics.
    """

    def __init__(
        self,
        lock: Lock,
        callbacks: LeaderCallbacks,
        *,
        options: ElectorOptions = ElectorOptions(),
        clock: Clock = SYSTEM_CLOCK,
        rand: Callable[[], float] = uniform,
        instruments: Instruments | None = None,
    ) -> None:
        self._lock = lock
        self._callbacks = callbacks
        self._options = options
        self._timing = options.timing
        self._clock = clock
        self._rand = rand
        instruments = instruments or Instruments()
        name = options.name or lock.describe()
        self._status = _status_gauge(instruments, name)
        self._observed = acquirer.ObservedLease(lock.identity, self._timing.lease_duration, clock)
        self._slowpath = instruments.counter(
            "leader_election_slowpath_total",
            "Lease renewals that had to read the lease before writing it.",
            ("name",),
        ).labels(name=name)
        self._acquirer = acquirer.LeaseAcquirer(
            lock, self._timing, self._observed, clock, self._slowpath
        )
        self._sleep = InterruptibleSleep(clock)
        self._notifier = _LeaderChangeNotifier(callbacks.on_new_leader, clock)
        self._run_lock = threading.Lock()
        self._threads: ThreadGroup | None = None  # set once, by run(), under _run_lock

    def is_leader(self) -> bool:
        """Tell whether the last observed lease names this process (LE-20)."""
        return self._observed.is_ours

    def get_leader(self) -> str:
        """Return the last observed holder; for display, not for decisions."""
        return self._observed.holder

    def try_now(self) -> None:
        """Let a candidate try at once, because the lease may be free.

        Does nothing for a leader.
        """
        self._sleep.wake()

    def fence(self) -> float:
        """Return for how many more seconds no other process can hold the lease.

        For a client whose writes only a leader may send (`Client.fenced`). The answer depends on
        the clock only. So `fence` also raises when the elector's thread hangs in a request, or
        has not run yet after the process was suspended for a while (RT-20, RT-22).

        Raises:
            NotLeading: Another process may hold the lease.
        """
        left = self._left()
        if left <= 0:
            raise NotLeading(self._lock.describe())
        return left

    def check(self, tolerance: float = 0.0) -> None:
        """Return if the election is healthy: the health check (LE-19).

        A candidate that does not lead is healthy.

        Args:
            tolerance: Seconds by which a lease may have expired.

        Raises:
            LeaseNotRenewed: This process leads, with a lease that has expired.
        """
        if not self.is_leader():
            return
        age = self._clock.monotonic() - self._observed.at
        if age > self._timing.lease_duration + tolerance:
            raise LeaseNotRenewed(self._lock.describe(), age)

    def run(self, stop: StopToken, candidacy: Candidacy | None = None) -> None:
        """Wait for leadership, run the work, and keep the lease until the work has ended.

        Returns when `stop` is set, after the work has ended and the lease was released.

        Args:
            stop: Ends the election in order.
            candidacy: Let the API server elect, and hold the lease only when it names this
                process (LE-22). The candidacy is started, and always withdrawn.

        Raises:
            LeaseLost: The lease was lost; the work's token is set, and the work may still run:
                see `join`.
            ThreadCrashed: The work raised; chained. The lease was released.
            AlreadyStarted: Called a second time.
        """
        with self._run_lock:
            if self._threads is not None:
                raise AlreadyStarted(f"the elector for {self._lock.describe()}")
            # A separate token: the group outlives `stop` until the work has ended.
            token = StopToken(clock=self._clock)
            self._threads = ThreadGroup("elect", stop=token, clock=self._clock)
        with ExitStack() as ending:
            # Last in, first out; each callback runs even when an earlier one raises.
            ending.callback(self._callbacks.on_stopped_leading)
            ending.callback(self._notifier.end)
            ending.callback(self._status.set, 0)
            if candidacy is not None:
                self._acquirer = acquirer.CoordinatedLeaseAcquirer(
                    candidacy.withdraw,
                    *(self._lock, self._timing, self._observed, self._clock, self._slowpath),
                )
                ending.callback(candidacy.withdraw)
                candidacy.start()
            if self._acquire(stop):
                self._lead(stop, self._threads)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the work and the callbacks have ended; `run` may return before that.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit.

        Returns:
            Whether no thread of this elector runs any more.
        """
        return self._threads is None or self._threads.join(timeout)

    def _acquire(self, stop: StopToken) -> bool:
        """Try until this process holds the lease; False when stopped before (LE-11)."""
        if stop.is_set():
            return False
        _log.info("lease_awaited", lease=self._lock.describe(), identity=self._lock.identity)
        period = self._timing.retry_period
        # An answer that arrives after the lease's duration proves nothing: try again.
        while not (self._attempt() is acquirer.LeaseAttempt.HELD and self._left() > 0):
            if self._sleep.wait(stop, period + self._rand() * JITTER * period):
                return False
        if not stop.is_set():
            return True
        # Acquired while stopping: do not start the work any more (RT-29).
        if self._options.release_on_cancel:
            self._acquirer.release()
        self._observed.give_up()
        return False

    def _lead(self, stop: StopToken, threads: ThreadGroup) -> None:
        task = LeaderTask(
            self._callbacks.on_started_leading, stop, self._options.work_timeout, self._clock
        )
        with ExitStack() as ending:
            ending.callback(self._record_stopped)
            # The work must not continue after this block, also after an exception (PF-22).
            ending.callback(task.cancel, "no longer leading")
            ending.callback(self._observed.give_up)
            self._status.set(1)
            self._record_started()
            task.start(threads)
            kept = self._renew(task)
            if kept:
                self._release(task)
        if not kept:
            raise LeaseLost(self._lock.describe(), self._lock.identity, self._observed.holder)
        if task.failure is not None:
            raise ThreadCrashed("nav-elect-work") from task.failure

    def _renew(self, task: LeaderTask) -> bool:
        """Renew until the work is over; False when the lease is lost (LE-12)."""
        while task.wait(self._timing.retry_period):
            allowed = min(self._timing.renew_deadline, self._left())
            if not self._renew_once(self._clock.monotonic() + allowed, task):
                return False
        return True

    def _renew_once(self, deadline: float, task: LeaderTask) -> bool:
        while self._clock.monotonic() < deadline:
            attempt = self._attempt(deadline=deadline)
            if attempt is acquirer.LeaseAttempt.HELD and self._left() > 0:
                return True
            if attempt is acquirer.LeaseAttempt.TAKEN:
                break
            left = deadline - self._clock.monotonic()
            if not task.wait(min(self._timing.retry_period, max(left, 0.0))):
                return True  # the work is over, so the lease is not needed any more
        _log.error("lease_lost", lease=self._lock.describe(), holder=self._observed.holder)
        return False

    def _left(self) -> float:
        """Return the seconds until another process may hold the lease; at most 0 if it may now."""
        renewed_at = self._observed.renewed_at
        if renewed_at is None:
            return 0.0
        return renewed_at + self._timing.valid_for - self._clock.monotonic()

    def _attempt(self, *, deadline: float | None = None) -> acquirer.LeaseAttempt:
        assert self._threads is not None
        attempt = self._acquirer.attempt(deadline=deadline)
        self._notifier.report(self._observed.holder, self._threads)
        return attempt

    def _release(self, task: LeaderTask) -> None:
        """Release the lease, unless the work still runs (LE-17)."""
        if not self._options.release_on_cancel:
            return
        lease = self._lock.describe()
        if not task.join(0):
            _log.warning("lease_kept", lease=lease, reason="the leader's work has not ended")
            return
        if self._acquirer.release():
            _log.info("lease_released", lease=lease)

    def _record_started(self) -> None:
        _log.info("leading_started", lease=self._lock.describe(), identity=self._lock.identity)
        self._lock.record_event(f"{self._lock.identity} became leader")

    def _record_stopped(self) -> None:
        _log.info("leading_stopped", lease=self._lock.describe(), identity=self._lock.identity)
        self._lock.record_event(f"{self._lock.identity} stopped leading")


class _LeaderChangeNotifier:
    """Calls a function with each new leader, in order, on a separate thread (LE-16).

    So a slow callback does not delay a renewal.

    Threads: `report` and `end` from one thread.
    """

    def __init__(self, callback: Callable[[str], None] | None, clock: Clock) -> None:
        self._callback = callback
        self._clock = clock
        self._reported = ""
        self._running = False
        self._changed = threading.Condition(threading.Lock())
        self._pending: deque[str] = deque()  # guarded by _changed
        self._ended = False  # guarded by _changed

    def report(self, holder: str, threads: ThreadGroup) -> None:
        """Report a holder, unless it was reported last."""
        if holder == self._reported:
            return
        self._reported = holder
        _log.info("leader_changed", holder=holder)
        if self._callback is None:
            return
        with self._changed:
            self._pending.append(holder)
            self._changed.notify_all()
        if not self._running:
            self._running = True
            threads.start("leader-changes", self._notify)

    def end(self) -> None:
        """Let the thread end after it has reported all changes."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _notify(self) -> None:
        assert self._callback is not None
        while (holder := self._next()) is not None:
            try:
                self._callback(holder)
            except Exception as error:  # noqa: BLE001 - a callback must not end the election
                _log.error("leader_callback_failed", holder=holder, exc_info=error)

    def _next(self) -> str | None:
        with self._changed:
            while not self._pending:
                if self._ended:
                    return None
                self._clock.wait(self._changed, None)
            return self._pending.popleft()


def _status_gauge(instruments: Instruments, name: str) -> Gauge:
    family = instruments.gauge(
        "leader_election_master_status",
        "Whether this process is the leader: 1 if it is, 0 if not.",
        ("name",),
    )
    gauge = family.labels(name=name)
    gauge.set(0)
    return gauge
