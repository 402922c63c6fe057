"""Asks the pods that are due to go, a few at once, and notes the answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from navarchos.clock import Clock, uniform
from navarchos.drain import (
    PODS,
    DrainOptions,
    EvictionOutcome,
    EvictionResult,
    Evictor,
    full_name,
    retry_delay,
)
from navarchos.events import EventType, Recorder, Reference
from navarchos.operator.api.v1alpha1 import NODE_DRAINS, NodeDrain
from navarchos.operator.drains.attempts import Attempt, Attempts
from navarchos.operator.drains.budgets import BudgetWatch, budget_names
from navarchos.operator.drains.due import How, Request
from navarchos.operator.drains.metrics import DrainMetrics
from navarchos.operator.reasons import EventReason
from navarchos.parallel import WorkerPool
from navarchos.stopping import StopToken

__all__ = ["Sender"]

_LEFT: Final = frozenset({EvictionOutcome.EVICTED, EvictionOutcome.DELETED})


@dataclass(frozen=True, slots=True)
class _Answered:
    request: Request
    result: EvictionResult


class Sender:
    """Sends requests and remembers what was heard; decides nothing.

    Args:
        evictor: Sends one request.
        crew: Sends several at once.
        attempts: Where answers are remembered.
        budgets: Who holds a pod up.
        metrics: Where answers are counted.
        recorder: Where events go.
        stop: Once set, nothing is sent any more: another process may lead.
        clock: Time.
        rand: Source of jitter.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        *,
        evictor: Evictor,
        worker_pool: WorkerPool,
        attempts: Attempts,
        budgets: BudgetWatch,
        metrics: DrainMetrics,
        recorder: Recorder,
        stop: StopToken,
        clock: Clock,
        rand: Callable[[], float] = uniform,
    ) -> None:
        self._evictor = evictor
        self._worker_pool = worker_pool
        self._attempts = attempts
        self._budgets = budgets
        self._metrics = metrics
        self._recorder = recorder
        self._stop = stop
        self._clock = clock
        self._rand = rand

    def send(self, drain: NodeDrain, requests: Sequence[Request], options: DrainOptions) -> None:
        """Ask these pods to go; return when each has been answered."""

        def ask(request: Request) -> EvictionResult | None:
            return None if self._stop.is_set() else self._ask(request, options)

        since = self._attempts.moment()
        outcomes = self._worker_pool.map(ask, requests)
        answered = [
            _Answered(request, outcome)
            for request, outcome in zip(requests, outcomes, strict=True)
            if outcome is not None
        ]
        before = self._attempts.of(drain.metadata.name)
        now = self._clock.monotonic()
        attempts = {
            entry.request.planned.uid: self._attempt(entry, before, options, now)
            for entry in answered
        }
        self._attempts.record(drain.metadata.name, attempts, since=since, at=now)
        self._tell(drain, answered, before, options)

    def _ask(self, request: Request, options: DrainOptions) -> EvictionResult:
        ask = self._evictor.delete if request.how is How.DELETE else self._evictor.evict
        result = ask(request.planned.pod, grace=options.grace)
        self._metrics.answered(result.outcome)
        return result

    def _attempt(
        self,
        entry: _Answered,
        known: Mapping[str, Attempt],
        options: DrainOptions,
        now: float,
    ) -> Attempt:
        pod, result = entry.request.planned.pod, entry.result
        before = known.get(pod.metadata.uid)
        failures = before.failures if before is not None else 0
        covering = self._budgets.covering(pod) if result.outcome.is_budget else ()
        delay = retry_delay(result, failures, base=options.eviction_retry, rand=self._rand)
        return Attempt(
            result=result,
            due_at=now + delay,
            failures=0 if result.outcome.is_done else failures + 1,
            budgets=budget_names(pod, result, covering),
            wants_ready=any(
                budget.spec.unhealthy_pod_eviction_policy != "AlwaysAllow" for budget in covering
            ),
            stage=entry.request.stage.number if entry.request.stage is not None else 0,
        )

    def _tell(
        self,
        drain: NodeDrain,
        answered: Sequence[_Answered],
        before: Mapping[str, Attempt],
        options: DrainOptions,
    ) -> None:
        gone = [entry for entry in answered if entry.result.outcome in _LEFT]
        if gone:
            self._record(
                drain,
                EventType.NORMAL,
                EventReason.POD_EVICTED,
                f"evicted {len(gone)} pods of node {drain.spec.node_name}, "
                f"{gone[0].request.planned.name} first",
                "Evict",
            )
        for entry in gone:
            planned = entry.request.planned
            bypassed = self._bypassed(entry, before.get(planned.uid), options)
            if bypassed:
                # Related to the pod, so that each has an event: it is an audit trail.
                self._record(
                    drain,
                    EventType.WARNING,
                    EventReason.BUDGET_BYPASSED,
                    f"deleted pod {planned.name} past {bypassed}",
                    "Delete",
                    related=Reference.to(PODS, planned.pod),
                )

    def _bypassed(self, entry: _Answered, before: Attempt | None, options: DrainOptions) -> str:
        """Return past what a pod was deleted, and by which rule; empty if past nothing."""
        stage = entry.request.stage
        if stage is not None:
            return f"{_named(before)} by stage {stage.number} of the escalation"
        budgets = self._budgets.covering(entry.request.planned.pod)
        if entry.result.outcome is not EvictionOutcome.DELETED or not budgets:
            return ""
        names = ", ".join(sorted(full_name(budget.metadata) for budget in budgets))
        why = "disableEviction" if options.disable_eviction else "a server without evictions"
        return f"budget {names} by {why}"

    def _record(
        self,
        drain: NodeDrain,
        type_: EventType,
        reason: EventReason,
        message: str,
        action: str,
        related: Reference | None = None,
    ) -> None:
        self._recorder.record(
            NODE_DRAINS, drain, type_, str(reason), message, action=action, related=related
        )


def _named(attempt: Attempt | None) -> str:
    if attempt is None or not attempt.budgets:
        return "its refusal"
    return f"budget {', '.join(attempt.budgets)}"
