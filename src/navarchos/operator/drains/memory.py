"""What this process remembers about drains: responses to evictions, and times of writes.

Hints only: a new process sends one more request for every pod, waits a second longer for late
pods, and may write a status earlier. No decision is wrong without them.
"""

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from navarchos.clock import Clock
from navarchos.drain import Budget, EvictionResult, Pod, budgets_of, full_name
from navarchos.informers import SharedInformer, Tombstone
from navarchos.operator.drains import successors
from navarchos.operator.drains.batch import EvictionAttempt
from navarchos.operator.throttle import DeferredWrites

__all__ = ["BudgetWatch", "DrainMemory", "Remembered", "budget_names"]

_STATUS_INTERVAL: Final = 1.0
"""Minimum seconds between two status updates of one drain (OP-47)."""

_MAX_COUNT_DELAY: Final = 5.0
"""Maximum seconds by which the number of remaining pods in status may be late. The pods of a node
that terminate at about the same time then cost one write, together with the end of the drain."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the process remembers about one drain.

    Attributes:
        attempts: The last request for each pod, by uid.
        cordoned_for: Seconds since this process cordoned the node; `None` if it did not.
        status_wait: Seconds until the status may be written; 0 if it may be written now.
        known_successors: What is known about the successors of pods, by uid of the pod.
    """

    attempts: Mapping[str, EvictionAttempt]
    cordoned_for: float | None = None
    status_wait: float = 0.0
    known_successors: Mapping[str, successors.Successor] = field(default_factory=dict)


class DrainMemory:
    """The memory of one process about its active drains.

    Threads: every method is safe from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts = DeferredWrites(_MAX_COUNT_DELAY, clock)
        self._memory_lock = threading.Lock()
        # guarded by _memory_lock; by drain, then by pod uid, in the order of the plan
        self._attempts: dict[str, dict[str, EvictionAttempt]] = {}
        # guarded by _memory_lock; by drain, then by pod uid: until when it is valid, monotonic
        self._successors: dict[str, dict[str, tuple[successors.Successor, float]]] = {}
        self._cordoned_at: dict[str, float] = {}  # guarded by _memory_lock; monotonic, by drain
        self._written_at: dict[str, float] = {}  # guarded by _memory_lock; monotonic, by drain
        self._version = 0  # guarded by _memory_lock; grows whenever a budget allows more
        # guarded by _memory_lock; by budget: the version at which it last allowed more
        self._released: dict[str, int] = {}

    def of(self, drain: str) -> Remembered:
        """Return the memory about one drain."""
        now = self._clock.monotonic()
        with self._memory_lock:
            cordoned_at = self._cordoned_at.get(drain)
            return Remembered(
                attempts=dict(self._attempts.get(drain, {})),
                cordoned_for=None if cordoned_at is None else now - cordoned_at,
                status_wait=self._status_wait_locked(drain, now),
                known_successors={
                    uid: successor
                    for uid, (successor, until) in self._successors.get(drain, {}).items()
                    if now < until
                },
            )

    def forget(self, drain: str) -> None:
        """Forget a drain that has ended."""
        self._counts.clear(drain)
        with self._memory_lock:
            self._cordoned_at.pop(drain, None)
            self._written_at.pop(drain, None)
            self._attempts.pop(drain, None)
            self._successors.pop(drain, None)
            if not self._attempts:
                self._released.clear()

    # Writes

    def node_cordoned(self, drain: str) -> None:
        """Remember that the drain's node has just been cordoned."""
        with self._memory_lock:
            self._cordoned_at[drain] = self._clock.monotonic()

    def status_wait(self, drain: str, *, only_counts: bool) -> float:
        """Return the seconds until a changed status may be written; 0 if it may be now.

        Args:
            drain: The drain's name.
            only_counts: Whether only the number of remaining pods has changed.
        """
        with self._memory_lock:
            wait = self._status_wait_locked(drain, self._clock.monotonic())
        return max(wait, self._counts.due_in(drain)) if only_counts else wait

    def status_written(self, drain: str, *, is_new: bool) -> None:
        """Remember that the status is stored.

        Args:
            drain: The drain's name.
            is_new: Whether it was just written; False if it was equal to the stored one.
        """
        self._counts.clear(drain)
        if is_new:
            with self._memory_lock:
                self._written_at[drain] = self._clock.monotonic()

    def _status_wait_locked(self, drain: str, now: float) -> float:
        written_at = self._written_at.get(drain, now - _STATUS_INTERVAL)
        return max(0.0, written_at + _STATUS_INTERVAL - now)

    # Evictions

    def version(self) -> int:
        """Return the present version, to pass to `record`."""
        with self._memory_lock:
            return self._version

    def record(self, drain: str, attempts: Mapping[str, EvictionAttempt], *, since: int) -> None:
        """Replace the attempts of these pods.

        Args:
            drain: The drain's name.
            attempts: The attempts, by pod uid.
            since: The `version` before the requests were sent. A budget that was released after
                it may have been released after the refusal, so the pods that it blocks are due
                at once: no release is lost.
        """
        now = self._clock.monotonic()
        with self._memory_lock:
            known = self._attempts.setdefault(drain, {})
            for uid, attempt in attempts.items():
                missed = any(self._released.get(budget, 0) > since for budget in attempt.budgets)
                known[uid] = replace(attempt, due_at=now) if missed else attempt

    def keep(self, drain: str, uids: Collection[str]) -> None:
        """Forget all other pods of the drain, which no longer need eviction."""
        with self._memory_lock:
            successors = self._successors.get(drain)
            if successors:
                kept = {uid: successors[uid] for uid in successors if uid in uids}
                self._successors[drain] = kept
            known = self._attempts.get(drain, {})
            self._attempts[drain] = {uid: known[uid] for uid in known if uid in uids}

    def found_successors(
        self, drain: str, found: Mapping[str, successors.Successor], *, retry_after: float
    ) -> None:
        """Remember what does not change about successors, and refusals until they are repeated.

        Args:
            drain: The drain's name.
            found: The successors, by uid of the pod.
            retry_after: Seconds until a refused request is repeated.
        """
        with self._memory_lock:
            retry_at = self._clock.monotonic() + retry_after
            known = self._successors.setdefault(drain, {})
            for uid, successor in found.items():
                match successor:
                    case successors.NoSuccessor() | successors.SuccessorAsked():
                        known[uid] = (successor, math.inf)
                    case successors.SuccessorRefused():
                        known[uid] = (successor, retry_at)
                    case successors.SuccessorDue():
                        pass
                    case _:
                        assert_never(successor)

    def release(self, budget: str, *, pods: int | None = None) -> frozenset[str]:
        """Make pods that a budget blocks due at once.

        Args:
            budget: The budget as `namespace/name`.
            pods: The maximum number of pods of each drain, since the budget allows no more
                evictions; `None` means all pods.

        Returns:
            The drains with a pod that is due now.
        """
        now = self._clock.monotonic()
        with self._memory_lock:
            self._version += 1
            self._released[budget] = self._version
            return frozenset(
                drain
                for drain, attempts in self._attempts.items()
                if _release(attempts, budget, now, pods)
            )


def _release(
    attempts: dict[str, EvictionAttempt], budget: str, now: float, pods: int | None
) -> bool:
    blocked = [uid for uid, attempt in attempts.items() if budget in attempt.budgets]
    for uid in blocked[:pods]:
        attempts[uid] = replace(attempts[uid], due_at=min(attempts[uid].due_at, now))
    return bool(blocked)


def budget_names(pod: Pod, result: EvictionResult, covering: Iterable[Budget]) -> tuple[str, ...]:
    """Return the budgets that prevented an eviction, as `namespace/name`."""
    if not result.outcome.is_budget:
        return ()
    names = {budget.metadata.name for budget in covering} | {result.budget}
    return tuple(f"{pod.metadata.namespace}/{name}" for name in sorted(names - {""}))


class BudgetWatch:
    """Reconciles drains when a budget that blocks them allows evictions again.

    An eviction that would succeed now therefore does not wait for its next retry.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        informer: SharedInformer[Budget],
        memory: DrainMemory,
        *,
        wake: Callable[[str], None],
    ) -> None:
        self._informer = informer
        self._memory = memory
        self._wake = wake
        informer.add_handler(on_update=self._updated, on_delete=self._deleted)

    def covering(self, pod: Pod) -> tuple[Budget, ...]:
        """Return the cached budgets that cover a pod."""
        return budgets_of(pod, self._informer.lister.list(namespace=pod.metadata.namespace))

    def _updated(self, old: Budget, new: Budget) -> None:
        if old.spec != new.spec:
            self._release(new, None)
        elif old.status != new.status and new.allows_one:
            self._release(new, new.status.disruptions_allowed)

    def _deleted(self, deleted: Budget | Tombstone[Budget]) -> None:
        budget = deleted.obj if isinstance(deleted, Tombstone) else deleted
        if budget is not None:
            self._release(budget, None)

    def _release(self, budget: Budget, pods: int | None) -> None:
        for drain in self._memory.release(full_name(budget.metadata), pods=pods):
            self._wake(drain)
