"""Budgets of the whole cluster: who holds a pod up, and when it no longer does."""

from collections.abc import Callable

from navarchos.clock import Clock
from navarchos.drain import Budget, EvictionResult, Pod, budgets_of
from navarchos.informers import SharedInformer, Tombstone
from navarchos.operator.drains.attempts import Attempts

__all__ = ["BudgetWatch", "budget_names"]


def budget_names(pod: Pod, result: EvictionResult, covering: tuple[Budget, ...]) -> tuple[str, ...]:
    """Return the budgets that hold a pod up, as `namespace/name`; none if none does."""
    if not result.outcome.is_budget:
        return ()
    names = {budget.metadata.name for budget in covering} | {result.budget}
    return tuple(f"{pod.metadata.namespace}/{name}" for name in sorted(names - {""}))


class BudgetWatch:
    """Wakes drains when a budget that holds them up allows something again.

    So nobody waits for the next try of an eviction that would succeed now.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        informer: SharedInformer[Budget],
        attempts: Attempts,
        *,
        wake: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._informer = informer
        self._attempts = attempts
        self._wake = wake
        self._clock = clock
        informer.add_handler(on_update=self._updated, on_delete=self._deleted)

    def covering(self, pod: Pod) -> tuple[Budget, ...]:
        """Return the budgets that cover a pod, as far as they have been seen."""
        return budgets_of(pod, self._informer.lister.list(namespace=pod.metadata.namespace))

    def _updated(self, old: Budget, new: Budget) -> None:
        if old.spec != new.spec:
            self._free(new, None)
        elif old.status != new.status and new.allows_one:
            self._free(new, new.status.disruptions_allowed)

    def _deleted(self, gone: Budget | Tombstone[Budget]) -> None:
        budget = gone.obj if isinstance(gone, Tombstone) else gone
        if budget is not None:
            self._free(budget, None)

    def _free(self, budget: Budget, pods: int | None) -> None:
        name = f"{budget.metadata.namespace}/{budget.metadata.name}"
        for drain in self._attempts.wake(name, at=self._clock.monotonic(), pods=pods):
            self._wake(drain)
