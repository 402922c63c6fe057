"""Sending evictions and deletions, several at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, assert_never

from navarchos.clock import Clock
from navarchos.drain import (
    DrainOptions,
    EvictionOutcome,
    EvictionResult,
    Evictor,
    full_name,
    retry_delay,
)
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains.batch import EvictionAttempt, EvictionRequest, RemovalMethod
from navarchos.operator.drains.events import DrainEvents
from navarchos.operator.drains.memory import BudgetWatch, DrainMemory, budget_names
from navarchos.operator.drains.pods import PodWatches
from navarchos.parallel import WorkerPool
from navarchos.stopping import StopToken

__all__ = ["DrainRuntime", "EvictionDispatcher"]

_LEFT: Final = frozenset({EvictionOutcome.EVICTED, EvictionOutcome.DELETED})


class DrainRuntime:
    """What all drains of a process share: threads for requests, and the watches on pods.

    Lifecycle: `run` once. Reconciles work without it, with one request at a time. When it is
    asked to stop, no further eviction is sent.
    """

    def __init__(self, workers: WorkerPool, watches: PodWatches, clock: Clock) -> None:
        self.workers = workers
        self.watches = watches
        self.clock = clock
        self._halted = StopToken(clock=clock)

    @property
    def is_halted(self) -> bool:
        """Whether no further eviction may be sent, because another process may lead."""
        return self._halted.is_set()

    def run(self, stop: StopToken) -> None:
        """Run the threads until `stop` is set; then end the threads and the watches."""
        withdraw = stop.on_stop(lambda: self._halted.stop(stop.reason or "asked to stop"))
        try:
            self.workers.run(stop)
        finally:
            withdraw()
            self.watches.close()


class EvictionDispatcher:
    """Sends requests, several at once, and records the responses. It decides nothing.

    Args:
        evictor: Sends one request.
        runtime: Has the threads that send several requests at once. When it is halted, no
            further request is sent.
        memory: Remembers the responses.
        budgets: Knows which budgets cover a pod.
        events: Records evictions and bypassed budgets.
        rand: Source of jitter.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        evictor: Evictor,
        runtime: DrainRuntime,
        memory: DrainMemory,
        budgets: BudgetWatch,
        events: DrainEvents,
        rand: Callable[[], float],
    ) -> None:
        self._evictor = evictor
        self._runtime = runtime
        self._memory = memory
        self._budgets = budgets
        self._events = events
        self._rand = rand

    def send(
        self, drain: api.NodeDrain, requests: Sequence[EvictionRequest], options: DrainOptions
    ) -> None:
        """Send these requests and record the responses; return when all have been answered."""
        name = drain.metadata.name

        def remove(request: EvictionRequest) -> EvictionResult | None:
            return None if self._runtime.is_halted else self._remove(request, options)

        since = self._memory.version()
        results = self._runtime.workers.map(remove, requests)
        answered = [
            (request, result)
            for request, result in zip(requests, results, strict=True)
            if result is not None
        ]
        before = self._memory.of(name).attempts
        attempts = {
            request.planned.uid: self._attempt(
                request, result, before.get(request.planned.uid), options
            )
            for request, result in answered
        }
        self._memory.record(name, attempts, since=since)
        left = [request for request, result in answered if result.outcome in _LEFT]
        self._events.pods_evicted(drain, [request.planned for request in left])
        for request, result in answered:
            bypassed = self._bypassed(request, result, before, options)
            if bypassed:
                self._events.budget_bypassed(drain, request.planned, bypassed)

    def _remove(self, request: EvictionRequest, options: DrainOptions) -> EvictionResult:
        pod = request.planned.pod
        method = request.method(disable_eviction=options.disable_eviction)
        match method:
            case RemovalMethod.EVICT:
                result = self._evictor.evict(pod, grace=options.grace)
            case RemovalMethod.DELETE:
                result = self._evictor.delete(pod, grace=options.grace)
            case _:
                assert_never(method)
        self._events.request_answered(result.outcome)
        return result

    def _attempt(
        self,
        request: EvictionRequest,
        result: EvictionResult,
        before: EvictionAttempt | None,
        options: DrainOptions,
    ) -> EvictionAttempt:
        pod = request.planned.pod
        failures = before.failures if before is not None else 0
        covering = self._budgets.covering(pod) if result.outcome.is_budget else ()
        delay = retry_delay(result, failures, base=options.eviction_retry, rand=self._rand)
        return EvictionAttempt(
            result=result,
            due_at=self._runtime.clock.monotonic() + delay,
            failures=0 if result.outcome.is_done else failures + 1,
            budgets=budget_names(pod, result, covering),
            requires_ready=any(
                budget.spec.unhealthy_pod_eviction_policy != "AlwaysAllow" for budget in covering
            ),
            stage=request.stage.number if request.stage is not None else 0,
        )

    def _bypassed(
        self,
        request: EvictionRequest,
        result: EvictionResult,
        before: Mapping[str, EvictionAttempt],
        options: DrainOptions,
    ) -> str:
        """Return which budgets the deletion bypassed and why; empty if none."""
        if result.outcome not in _LEFT:
            return ""
        method = request.method(disable_eviction=options.disable_eviction)
        if request.stage is not None and method is RemovalMethod.DELETE:
            refusal = _refusal(before.get(request.planned.uid))
            return f"{refusal} by stage {request.stage.number} of the escalation"
        budgets = self._budgets.covering(request.planned.pod)
        if result.outcome is not EvictionOutcome.DELETED or not budgets:
            return ""
        names = ", ".join(sorted(full_name(budget.metadata) for budget in budgets))
        rule = "disableEviction" if options.disable_eviction else "a server without evictions"
        return f"budget {names} by {rule}"


def _refusal(attempt: EvictionAttempt | None) -> str:
    if attempt is None or not attempt.budgets:
        return "the refusal of its eviction"
    return f"budget {', '.join(attempt.budgets)}"
