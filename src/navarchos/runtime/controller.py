"""A controller: sources feed a queue, workers reconcile what comes out."""

import threading
from contextlib import AbstractContextManager
from typing import Final

from navarchos import logs
from navarchos.client import ClientError, Conflict
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import AlreadyStarted, ConfigError, NavarchosError, Stopped
from navarchos.instrument import Instruments
from navarchos.runtime.reconcile_context import ReconcileContext, TimeLimit, reconcile_scope
from navarchos.runtime.reconciler import Reconciler, Request, Result, TerminalError
from navarchos.runtime.source_group import SourceGroup
from navarchos.runtime.sources import Source
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup
from navarchos.workqueue import Loan, PriorityQueue, RateLimiter

__all__ = ["Controller", "ControllerMetrics"]

_log = logs.get_logger(__name__)

CACHE_SYNC_TIMEOUT: Final = 120.0


class Controller:
    """Runs a reconciler over whatever its sources name.

    Promises: workers start only after every source has fed what exists (CT-04);
    one key is never reconciled twice at once; a key that fails is tried again with
    growing pauses; whoever runs the controller gets it back only when every worker
    has finished the key in hand (CT-07).

    Which exceptions are errors: whatever a reconciler raises is one, and its key is
    tried again. Those that are not a `NavarchosError` count as panics besides, since
    nobody meant them (CT-10).

    Does not promise: one reconcile per event. Events of a key collapse.

    Lifecycle: give it sources, `warm_up` if you like, `run` once; sources given later
    start at once. Without `run`, `close` ends what `warm_up` began.

    Args:
        name: Unique in the process; a label of metrics.
        reconciler: Does the work.
        workers: Keys that are reconciled at the same time.
        limiter: Pauses after failures; doubling from 5 ms to 1000 s by default.
        cache_sync_timeout: Seconds that sources may take to start and to feed what
            exists.
        needs_leader_election: Run only while leading.
        warm_up: Let a manager start the sources before it leads, so that the queue
            is filled when workers start (CT-08).
        debounce: Seconds by which every request of a source is delayed: those that
            come for a key in the meantime cost nothing. The first one counts, so
            that a key that never rests is reconciled all the same. Each counts as a
            retry in the queue's metrics, as every delayed add does.
        reconcile_timeout: Seconds that a reconcile may take until its stop token is
            set (see `ReconcileContext`); `None` for no limit. It then ends in an error like any
            other, as soon as it looks.
        recover: Go on after a panic; without, it ends the controller and with it
            the manager.
        kind: What is reconciled, for log lines.
        clock: Time and waiting.
        instruments: Where metrics go.
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        *,
        workers: int = 1,
        limiter: RateLimiter[Request] | None = None,
        cache_sync_timeout: float = CACHE_SYNC_TIMEOUT,
        needs_leader_election: bool = True,
        warm_up: bool = False,
        debounce: float = 0.0,
        reconcile_timeout: float | None = None,
        recover: bool = True,
        kind: str = "",
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        if not name:
            raise ConfigError("name", name, "a controller requires a name for its metrics")
        if workers < 1:
            raise ConfigError("workers", workers, "a controller requires at least one worker")
        # Written this way round so that it refuses NaN too.
        if not debounce >= 0:
            raise ConfigError("debounce", debounce, "it must not be negative")
        instruments = instruments or Instruments()
        self.name = name
        self.needs_leader_election = needs_leader_election
        self.wants_warm_up = warm_up
        self.queue: PriorityQueue[Request] = PriorityQueue(
            limiter=limiter, name=name, clock=clock, instruments=instruments
        )
        self._reconciler = reconciler
        self._workers = workers
        self._limit = TimeLimit(reconcile_timeout, clock) if reconcile_timeout is not None else None
        self._recover = recover
        self._kind = kind
        self._clock = clock
        self._sources = SourceGroup(
            name, self.queue.add, debounce=debounce, timeout=cache_sync_timeout, clock=clock
        )
        self._started_lock = threading.Lock()
        self._started = False  # guarded by _started_lock
        self._metrics = ControllerMetrics(instruments, name)
        self._metrics.max_concurrent.set(workers)

    def watch(self, source: Source) -> None:
        """Let a source feed this controller; from now on, if it runs already (CT-06).

        Raises:
            AlreadyStopped: The controller has ended.
        """
        self._sources.add(source)

    def warm_up(self, stop: StopToken) -> None:
        """Start the sources and wait until they have fed what exists; reconcile nothing.

        Raises:
            SyncTimeout: Sources did not feed what exists in time; names them.
            Stopped: `stop` was set first.
        """
        self._sources.begin()
        self._sources.wait(stop)

    def close(self) -> None:
        """End what `warm_up` began; `run` does so by itself."""
        self.queue.shut_down()
        self._sources.stop()

    def run(self, stop: StopToken) -> None:
        """Reconcile until told to stop; then finish what is in hand and return.

        Raises:
            AlreadyStarted: Called before.
            SyncTimeout: Sources did not feed what exists in time; names them.
            ThreadCrashed: A worker died: a panic without `recover`, chained.
        """
        with self._started_lock:
            if self._started:
                raise AlreadyStarted(f"controller {self.name}")
            self._started = True
        # A token of our own: a worker that dies takes the others with it.
        working = stop.child()
        threads = ThreadGroup(f"work-{self.name}", stop=working, clock=self._clock)
        working.on_stop(self.queue.shut_down)
        if self._limit is not None:
            working.on_stop(self._limit.close)
        try:
            self.warm_up(stop)
            _log.info("controller_started", controller=self.name, workers=self._workers)
            if self._limit is not None:
                threads.start("limit", self._limit.watch)
            for number in range(self._workers):
                threads.start(str(number), lambda: self._work(working))
            threads.join()
            threads.raise_failure()
        except Stopped:
            _log.debug("controller_stopped_before_sync", controller=self.name)
        finally:
            working.stop("the controller has ended")
            self._sources.stop()
            _log.info("controller_stopped", controller=self.name)

    def _work(self, stop: StopToken) -> None:
        while (loan := self.queue.get()) is not None:
            # What becomes of the key is decided before the loan is closed: closed
            # first, another worker could start it with a stale back-off (RT-15).
            with loan, self._metrics.active_workers.track_inprogress():
                self._reconcile(loan, stop)

    def _reconcile(self, loan: Loan[Request], stop: StopToken) -> None:
        opened = reconcile_scope(
            self.name, self._kind, loan.key, stop=stop, limit=self._limit, clock=self._clock
        )
        with opened as current, _log_lines_of(current):
            started = self._clock.monotonic()
            try:
                result = _checked(self._reconciler.reconcile(loan.key))
            except Stopped as error:
                if not stop.is_set():  # its time is over, or another token was set
                    self._failed(loan, error)
            except Exception as error:
                self._failed(loan, error)
                if not self._recover and not isinstance(error, NavarchosError):
                    raise
            else:
                self._succeeded(loan, result)
            finally:
                self._metrics.seconds.observe(max(0.0, self._clock.monotonic() - started))
                if self._limit is not None and self._limit.has_ended(current.stop):
                    self._metrics.timeouts.inc()

    def _succeeded(self, loan: Loan[Request], result: Result) -> None:
        priority = loan.priority if result.priority is None else result.priority
        if result.requeue_after:
            self._metrics.results["requeue_after"].inc()
            self.queue.forget(loan.key)
            self.queue.add(loan.key, after=result.requeue_after, priority=priority)
        elif result.requeue:
            self._metrics.results["requeue"].inc()
            self.queue.add(loan.key, rate_limited=True, priority=priority)
        else:
            self._metrics.results["success"].inc()
            self.queue.forget(loan.key)

    def _failed(self, loan: Loan[Request], error: BaseException) -> None:
        self._metrics.results["error"].inc()
        self._metrics.errors.inc()
        if isinstance(error, TerminalError):
            self._metrics.terminal_errors.inc()
            _log.error("reconcile_given_up", exc_info=error)
            return
        self.queue.add(loan.key, rate_limited=True, priority=loan.priority)
        attempt = self.queue.num_requeues(loan.key)
        if isinstance(error, Conflict):
            # Somebody else was faster; the next look sees what they wrote.
            _log.debug("reconcile_conflict", attempt=attempt, error=str(error))
        elif isinstance(error, ClientError):
            # The message says everything; a stack of our own frames adds nothing.
            _log.warning("reconcile_failed", attempt=attempt, error=str(error))
        else:
            if not isinstance(error, NavarchosError | Stopped):
                self._metrics.panics.inc()
            _log.error("reconcile_failed", attempt=attempt, exc_info=error)


def _log_lines_of(current: ReconcileContext) -> AbstractContextManager[None]:
    fields = {
        "controller": current.controller,
        "kind": current.kind,
        "namespace": current.request.namespace,
        "name": current.request.name,
        "reconcile_id": current.id,
    }
    return logs.bound(**{key: value for key, value in fields.items() if value})


def _checked(result: object) -> Result:
    """Refuse what is no answer: a forgotten `return` must not count as success."""
    if not isinstance(result, Result):
        raise TypeError(f"reconcile returned {result!r} instead of a Result: return DONE")
    return result


_LABELS: Final = ("controller",)
_RESULTS: Final = ("success", "error", "requeue", "requeue_after")
_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0),
    *(6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)


class ControllerMetrics:
    """The series of one controller; all exist with value 0 from the start."""

    def __init__(self, instruments: Instruments, controller: str) -> None:
        total = instruments.counter(
            "controller_runtime_reconcile_total",
            "Reconciles, by how they ended",
            (*_LABELS, "result"),
        )
        self.results: Final = {result: total.labels(controller, result) for result in _RESULTS}
        self.errors: Final = instruments.counter(
            "controller_runtime_reconcile_errors_total", "Reconciles that failed", _LABELS
        ).labels(controller)
        self.terminal_errors: Final = instruments.counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Reconciles that failed for good",
            _LABELS,
        ).labels(controller)
        self.panics: Final = instruments.counter(
            "controller_runtime_reconcile_panics_total",
            "Reconciles that raised what is no error of ours or of the client",
            _LABELS,
        ).labels(controller)
        self.timeouts: Final = instruments.counter(
            "controller_runtime_reconcile_timeouts_total",
            "Reconciles that took longer than the controller allows",
            _LABELS,
        ).labels(controller)
        self.seconds: Final = instruments.histogram(
            "controller_runtime_reconcile_time_seconds",
            "Seconds per reconcile",
            _LABELS,
            buckets=_BUCKETS,
        ).labels(controller)
        self.max_concurrent: Final = instruments.gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers", _LABELS
        ).labels(controller)
        self.active_workers: Final = instruments.gauge(
            "controller_runtime_active_workers", "Workers that reconcile now", _LABELS
        ).labels(controller)
