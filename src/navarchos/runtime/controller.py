"""A controller: sources feed a queue, workers reconcile its keys."""

import threading
from contextlib import AbstractContextManager
from typing import Final

from navarchos import logs
from navarchos.client import ClientError, Conflict
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import AlreadyStarted, ConfigError, NavarchosError, Stopped
from navarchos.instrument import Instruments
from navarchos.runtime.options import CACHE_SYNC_TIMEOUT, ControllerOptions
from navarchos.runtime.reconcile_context import ReconcileContext, TimeLimit, reconcile_scope
from navarchos.runtime.reconciler import Reconciler, Request, Result, TerminalError
from navarchos.runtime.source_group import SourceGroup
from navarchos.runtime.sources import Source
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup
from navarchos.workqueue import Loan, PriorityQueue

__all__ = ["Controller"]

_log = logs.get_logger(__name__)


class Controller:
    """Runs a reconciler for every key that its sources deliver.

    Promises: workers start only after every source has delivered all existing objects (CT-04);
    one key is never reconciled twice at once; a key that fails is retried with growing delays;
    `run` returns only after every worker has finished its current key (CT-07).

    Every exception that a reconciler raises is an error, and its key is retried. An exception
    that is not a `NavarchosError` also counts as a panic, since no code raised it on purpose
    (CT-10).

    Does not promise: one reconcile per event. Events of a key collapse.

    Lifecycle: add sources, optionally `warm_up`, `run` once; sources that are added later start
    at once. Without `run`, `close` ends what `warm_up` started.

    Args:
        name: Unique in the process; a label of metrics.
        reconciler: Does the work.
        options: Workers, retries, timeouts; `workers_by_kind` is not used here.
        kind: The reconciled kind, for log lines.
        clock: Time and waiting.
        instruments: Where metrics go.
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        *,
        options: ControllerOptions | None = None,
        kind: str = "",
        clock: Clock = SYSTEM_CLOCK,
        instruments: Instruments | None = None,
    ) -> None:
        if not name:
            raise ConfigError("name", name, "a controller requires a name for its metrics")
        instruments = instruments or Instruments()
        self.name = name
        self.options = options or ControllerOptions()
        self.queue: PriorityQueue[Request] = PriorityQueue(
            limiter=self.options.limiter, name=name, clock=clock, instruments=instruments
        )
        self._reconciler = reconciler
        limit = self.options.reconcile_timeout
        self._limit = TimeLimit(limit, clock) if limit is not None else None
        self._kind = kind
        self._clock = clock
        sync_timeout = self.options.cache_sync_timeout
        self._sources = SourceGroup(
            name,
            self.queue,
            debounce=self.options.debounce,
            timeout=CACHE_SYNC_TIMEOUT if sync_timeout is None else sync_timeout,
            clock=clock,
        )
        self._started_lock = threading.Lock()
        self._started = False  # guarded by _started_lock
        self._metrics = _ControllerMetrics(instruments, name)
        self._metrics.max_concurrent.set(self.options.workers)

    def watch(self, source: Source) -> None:
        """Add a source; it starts at once if the controller runs already (CT-06).

        Raises:
            AlreadyStopped: The controller has ended.
        """
        self._sources.add(source)

    def warm_up(self, stop: StopToken) -> None:
        """Start the sources and wait until they have delivered all existing objects.

        Does not reconcile.

        Raises:
            SyncTimeout: Sources did not deliver all existing objects in time; names them.
            Stopped: `stop` was set first.
        """
        self._sources.start()
        self._sources.wait(stop)

    def close(self) -> None:
        """Stop the sources that `warm_up` started. `run` does this at its end."""
        self.queue.shut_down()
        self._sources.stop()

    def run(self, stop: StopToken) -> None:
        """Reconcile until stopped; then finish the current keys and return.

        Raises:
            AlreadyStarted: Called before.
            SyncTimeout: Sources did not deliver all existing objects in time; names them.
            ThreadCrashed: A worker ended by a panic without `recover`; chained.
        """
        with self._started_lock:
            if self._started:
                raise AlreadyStarted(f"controller {self.name}")
            self._started = True
        # A separate token: when one worker crashes, the others must end, too.
        working = stop.child()
        threads = ThreadGroup(f"work-{self.name}", stop=working, clock=self._clock)
        working.on_stop(self.queue.shut_down)
        if self._limit is not None:
            working.on_stop(self._limit.close)
        try:
            self.warm_up(stop)
            _log.info("controller_started", controller=self.name, workers=self.options.workers)
            if self._limit is not None:
                threads.start("limit", self._limit.watch)
            for number in range(self.options.workers):
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
            # The result is recorded before the loan is closed. Otherwise another worker could
            # start the same key with an outdated back-off (RT-15).
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
                if not stop.is_set():  # the time limit, or another token
                    self._failed(loan, error)
            except Exception as error:
                self._failed(loan, error)
                if not self.options.recover and not isinstance(error, NavarchosError):
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
            _log.error("reconcile_failed_terminally", error=str(error), exc_info=error)
            return
        self.queue.add(loan.key, rate_limited=True, priority=loan.priority)
        attempt = self.queue.num_requeues(loan.key)
        if isinstance(error, Conflict):
            # Another client wrote first; the next reconcile reads that state.
            _log.debug("reconcile_conflict", attempt=attempt, error=str(error))
        elif isinstance(error, ClientError):
            # The message is sufficient; a stack of framework frames adds no information.
            _log.warning("reconcile_failed", attempt=attempt, error=str(error))
        else:
            if not isinstance(error, NavarchosError | Stopped):
                self._metrics.panics.inc()
            _log.error("reconcile_failed", attempt=attempt, error=str(error), exc_info=error)


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
    """Refuse any other value: a forgotten `return` must not count as success."""
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


class _ControllerMetrics:
    """The metrics of one controller, named as in controller-runtime (MT-02 to MT-05).

    All series exist with value 0 from the start.
    """

    def __init__(self, instruments: Instruments, controller: str) -> None:
        total = instruments.counter(
            "controller_runtime_reconcile_total",
            "Reconciles, by result",
            (*_LABELS, "result"),
        )
        self.results: Final = {result: total.labels(controller, result) for result in _RESULTS}
        self.errors: Final = instruments.counter(
            "controller_runtime_reconcile_errors_total", "Reconciles that failed", _LABELS
        ).labels(controller)
        self.terminal_errors: Final = instruments.counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Reconciles that failed and are not retried",
            _LABELS,
        ).labels(controller)
        self.panics: Final = instruments.counter(
            "controller_runtime_reconcile_panics_total",
            "Reconciles that raised an unexpected exception",
            _LABELS,
        ).labels(controller)
        self.timeouts: Final = instruments.counter(
            "controller_runtime_reconcile_timeouts_total",
            "Reconciles that exceeded the reconcile timeout",
            _LABELS,
        ).labels(controller)
        self.seconds: Final = instruments.histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of reconciles in seconds",
            _LABELS,
            buckets=_BUCKETS,
        ).labels(controller)
        self.max_concurrent: Final = instruments.gauge(
            "controller_runtime_max_concurrent_reconciles", "Number of workers", _LABELS
        ).labels(controller)
        self.active_workers: Final = instruments.gauge(
            "controller_runtime_active_workers",
            "Number of workers that are reconciling a key",
            _LABELS,
        ).labels(controller)
