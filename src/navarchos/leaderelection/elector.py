"""The elector: becomes leader, stays it, and says when it no longer is."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from prometheus_client import Gauge

from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.errors import AlreadyStarted, ThreadCrashed
from navarchos.instrument import Instruments
from navarchos.leaderelection.acquirer import (
    CoordinatedLeaseAcquirer,
    LeaseAcquirer,
    LeaseAttempt,
    ObservedLease,
)
from navarchos.leaderelection.candidacy import Candidacy
from navarchos.leaderelection.errors import LeaseLost, LeaseNotRenewed, NotLeading
from navarchos.leaderelection.leader_task import InterruptibleSleep, LeaderTask
from navarchos.leaderelection.lease import JITTER, LeaseTiming
from navarchos.leaderelection.lock import Lock
from navarchos.logs import get_logger
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["HEALTH_CHECK", "LeaderChangeNotifier", "LeaderElector"]

HEALTH_CHECK: Final = "leaderElection"
"""The name under which `check` is registered, as upstream (LE-19)."""

_log = get_logger(__name__)


class LeaderElector:
    """Competes for a lock and runs the guarded work while it holds it.

    Promises: with equally fast clocks, before another process may hold the lease
    `fence` is shut, and our work's token is set as soon as a thread of ours runs;
    `on_stopped_leading` is called
    exactly once when `run` ends, also when we never led and whatever failed; while
    the work winds down after a stop the lease is still renewed, and it is given
    back only when the work has ended.

    Does not promise: to interrupt the work. A request that is under way when the
    lease is lost may still reach the server. So let the work write through a client
    that is `fenced` by `fence`, and end the process after `LeaseLost`.

    Life cycle: `run` once. Threads: the queries are safe from any thread.

    Args:
        lock: What is competed for; not shared with another elector.
        lease_duration: See `LeaseTiming`.
        renew_deadline: See `LeaseTiming`.
        retry_period: See `LeaseTiming`.
        release_on_cancel: Give the lease back after a stop, so that another
            candidate acts within its retry period.
        on_started_leading: The work, or what starts it. It has a thread of its own,
            and a token that is set when the work has to end. Returning does not
            end leadership; raising does.
        on_stopped_leading: Called last, on the thread of `run`.
        on_new_leader: Called with the identity of each new leader, ourselves
            included, on a thread of its own; with `""` when nobody leads.
        work_timeout: Seconds that the work may take to end after a stop; then the
            lease is left to expire. `None` waits for it without limit.
        clock: Time, for tests.
        rand: Numbers in [0, 1) for jitter.
        instruments: Where leadership is shown.
        name: Label of the metrics; the lock's description when empty.

    Raises:
        ConfigError: Durations that cannot work together (LE-01).
    """

    def __init__(
        self,
        lock: Lock,
        *,
        on_started_leading: Callable[[StopToken], None],
        on_stopped_leading: Callable[[], None],
        on_new_leader: Callable[[str], None] | None = None,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        release_on_cancel: bool = True,
        work_timeout: float | None = 30.0,
        clock: Clock = SYSTEM_CLOCK,
        rand: Callable[[], float] = uniform,
        instruments: Instruments | None = None,
        name: str = "",
    ) -> None:
        self._timing = LeaseTiming(lease_duration, renew_deadline, retry_period)
        self._lock = lock
        self._work = on_started_leading
        self._on_stopped_leading = on_stopped_leading
        self._release_on_cancel = release_on_cancel
        self._work_timeout = work_timeout
        self._clock = clock
        self._rand = rand
        instruments = instruments or Instruments()
        self._status = _status_gauge(instruments, name or lock.describe())
        self._observed = ObservedLease(lock.identity, lease_duration, clock)
        self._slowpath = instruments.counter(
            "leader_election_slowpath_total",
            "Renewals that had to read the lease first.",
            ("name",),
        ).labels(name=name or lock.describe())
        self._acquirer = LeaseAcquirer(lock, self._timing, self._observed, clock, self._slowpath)
        self._pause = InterruptibleSleep(clock)
        self._news = LeaderChangeNotifier(on_new_leader, clock)
        self._run_lock = threading.Lock()
        self._threads: ThreadGroup | None = None  # set once, by run(), under _run_lock

    def is_leader(self) -> bool:
        """Tell whether the lease named us when it was last seen (LE-20)."""
        return self._observed.is_ours

    def get_leader(self) -> str:
        """Return who held the lease when it was last seen; for people, not decisions."""
        return self._observed.holder

    def try_now(self) -> None:
        """Let a candidate try at once: there is news that the lease is free.

        Does nothing for a leader.
        """
        self._pause.wake()

    def fence(self) -> float:
        """Return for how many seconds the lease is ours beyond doubt.

        The gate of a client whose writes only a leader may send (`Client.fenced`). It
        asks nobody but the clock, so it shuts also when the elector's thread hangs in
        a request, or does not run yet after the process was stopped for a while
        (RT-20, RT-22).

        Raises:
            NotLeading: For none.
        """
        left = self._left()
        if left <= 0:
            raise NotLeading(self._lock.describe())
        return left

    def check(self, tolerance: float = 0.0) -> None:
        """Do nothing if all is well: the health check (LE-19).

        Candidates that do not lead are well.

        Args:
            tolerance: Seconds by which a lease may have expired.

        Raises:
            LeaseNotRenewed: We believe to lead, with a lease that has expired.
        """
        if not self.is_leader():
            return
        age = self._clock.monotonic() - self._observed.at
        if age > self._timing.lease_duration + tolerance:
            raise LeaseNotRenewed(self._lock.describe(), age)

    def run(self, stop: StopToken, candidacy: Candidacy | None = None) -> None:
        """Wait for leadership, run the work, and keep the lease until the end of it.

        Returns when `stop` is set, after the work has ended and the lease was
        given back.

        Args:
            stop: Ends it in order.
            candidacy: Let the API server elect, and hold the lease only when it names us
                (LE-22). It is started and, whatever happens, withdrawn.

        Raises:
            LeaseLost: Leadership ended by itself; the work's token is set, and the
                work may still run: see `join`.
            ThreadCrashed: The work raised; chained. The lease was given back.
            AlreadyStarted: Called a second time.
        """
        with self._run_lock:
            if self._threads is not None:
                raise AlreadyStarted(f"the elector for {self._lock.describe()}")
            # A token of its own: the group outlives `stop` until the work has ended.
            token = StopToken(clock=self._clock)
            self._threads = ThreadGroup("elect", stop=token, clock=self._clock)
        with ExitStack() as ending:
            # Last in, first out; each runs even when those before it raise.
            ending.callback(self._on_stopped_leading)
            ending.callback(self._news.end)
            ending.callback(self._status.set, 0)
            if candidacy is not None:
                self._acquirer = CoordinatedLeaseAcquirer(
                    candidacy.withdraw,
                    *(self._lock, self._timing, self._observed, self._clock, self._slowpath),
                )
                ending.callback(candidacy.withdraw)
                candidacy.start()
            if self._acquire(stop):
                self._lead(stop, self._threads)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the work and the callbacks have ended; `run` may not wait for it.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit.

        Returns:
            Whether no thread of this elector runs any more.
        """
        return self._threads is None or self._threads.join(timeout)

    def _acquire(self, stop: StopToken) -> bool:
        """Try until we hold the lease; False when stopped before (LE-11)."""
        if stop.is_set():
            return False
        _log.info("lease_awaited", lease=self._lock.describe(), identity=self._lock.identity)
        period = self._timing.retry_period
        # An answer that comes after the lease's time tells nothing: it is tried again.
        while not (self._attempt() is LeaseAttempt.HELD and self._left() > 0):
            if self._pause.wait(stop, period + self._rand() * JITTER * period):
                return False
        if not stop.is_set():
            return True
        # Won while stopping: nothing is started any more (RT-29).
        if self._release_on_cancel:
            self._acquirer.release()
        self._observed.give_up()
        return False

    def _lead(self, stop: StopToken, threads: ThreadGroup) -> None:
        work = LeaderTask(self._work, stop, self._work_timeout, self._clock)
        with ExitStack() as ending:
            ending.callback(self._tell_stopped)
            # Whatever ends this block, the work must not go on (PF-22).
            ending.callback(work.cancel, "no longer leading")
            ending.callback(self._observed.give_up)
            self._status.set(1)
            self._tell_started()
            work.start(threads)
            kept = self._renew(work)
            if kept:
                self._give_back(work)
        if not kept:
            raise LeaseLost(self._lock.describe(), self._lock.identity, self._observed.holder)
        if work.failure is not None:
            raise ThreadCrashed("nav-elect-work") from work.failure

    def _renew(self, work: LeaderTask) -> bool:
        """Renew until the work is over; False when the lease is lost (LE-12)."""
        while work.wait(self._timing.retry_period):
            allowed = min(self._timing.renew_deadline, self._left())
            if not self._renew_once(self._clock.monotonic() + allowed, work):
                return False
        return True

    def _renew_once(self, deadline: float, work: LeaderTask) -> bool:
        while self._clock.monotonic() < deadline:
            attempt = self._attempt(deadline=deadline)
            if attempt is LeaseAttempt.HELD and self._left() > 0:
                return True
            if attempt is LeaseAttempt.TAKEN:
                break
            left = deadline - self._clock.monotonic()
            if not work.wait(min(self._timing.retry_period, max(left, 0.0))):
                return True  # over in order: nothing to hold the lease for
        _log.error("lease_lost", lease=self._lock.describe(), holder=self._observed.holder)
        return False

    def _left(self) -> float:
        """Seconds for which the lease is ours whatever others see; not above 0 if it is not."""
        renewed_at = self._observed.renewed_at
        if renewed_at is None:
            return 0.0
        return renewed_at + self._timing.valid_for - self._clock.monotonic()

    def _attempt(self, *, deadline: float | None = None) -> LeaseAttempt:
        assert self._threads is not None
        attempt = self._acquirer.attempt(deadline=deadline)
        self._news.report(self._observed.holder, self._threads)
        return attempt

    def _give_back(self, work: LeaderTask) -> None:
        """Release the lease, unless guarded work still runs (LE-17)."""
        work.cancel("leadership is given back")
        if not self._release_on_cancel:
            return
        if not work.join(0):
            _log.warning("lease_kept", lease=self._lock.describe(), why="the work has not ended")
            return
        if self._acquirer.release():
            _log.info("lease_released", lease=self._lock.describe())

    def _tell_started(self) -> None:
        _log.info("leading_started", lease=self._lock.describe(), identity=self._lock.identity)
        self._lock.record_event(f"{self._lock.identity} became leader")

    def _tell_stopped(self) -> None:
        _log.info("leading_stopped", lease=self._lock.describe(), identity=self._lock.identity)
        self._lock.record_event(f"{self._lock.identity} stopped leading")


def _status_gauge(instruments: Instruments, name: str) -> Gauge:
    family = instruments.gauge(
        "leader_election_master_status",
        "Whether this process leads: 1, or 0 while it waits and when it has ended.",
        ("name",),
    )
    gauge = family.labels(name=name)
    gauge.set(0)
    return gauge


class LeaderChangeNotifier:
    """Calls a listener with each new leader, in order, on a thread of its own (LE-16).

    Threads: `report` and `end` from one thread.
    """

    def __init__(self, listener: Callable[[str], None] | None, clock: Clock) -> None:
        self._listener = listener
        self._clock = clock
        self._reported = ""
        self._running = False
        self._news = threading.Condition(threading.Lock())
        self._pending: deque[str] = deque()  # guarded by _news
        self._ended = False  # guarded by _news

    def report(self, holder: str, threads: ThreadGroup) -> None:
        """Pass the holder on if it is not the one that was reported last."""
        if holder == self._reported:
            return
        self._reported = holder
        _log.info("new_leader", holder=holder)
        if self._listener is None:
            return
        with self._news:
            self._pending.append(holder)
            self._news.notify_all()
        if not self._running:
            self._running = True
            threads.start("news", self._tell)

    def end(self) -> None:
        """Let the thread end once everything is told."""
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _tell(self) -> None:
        assert self._listener is not None
        while (holder := self._next()) is not None:
            try:
                self._listener(holder)
            except Exception as error:  # noqa: BLE001 - a listener must not end an election
                _log.error("new_leader_callback_failed", holder=holder, exc_info=error)

    def _next(self) -> str | None:
        with self._news:
            while not self._pending:
                if self._ended:
                    return None
                self._clock.wait(self._news, None)
            return self._pending.popleft()
