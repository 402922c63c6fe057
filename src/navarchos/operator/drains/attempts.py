"""What was heard when pods were asked to go, and when to ask again.

Hints, in memory only: a process that starts anew asks every pod once more. No
decision is wrong without them.
"""

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from navarchos.drain import EvictionResult

__all__ = ["Attempt", "Attempts"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last time that a pod was asked to go.

    Attributes:
        result: The response.
        due_at: Monotonic instant of the next request.
        failures: Answers in a row that did not move the pod, this one counted.
        budgets: Budgets in the way, as `namespace/name`.
        wants_ready: One of them counts pods that are not ready like others.
        stage: The stage of the escalation that asked; 0 for an ordinary request.
    """

    result: EvictionResult
    due_at: float
    failures: int = 0
    budgets: tuple[str, ...] = ()
    wants_ready: bool = False
    stage: int = 0


class Attempts:
    """The last attempt per pod of every active drain.

    Threads: every method is safe from any thread.
    """

    def __init__(self) -> None:
        self._attempts_lock = threading.Lock()
        # guarded by _attempts_lock; by drain, then by pod uid, in order of the plan
        self._by_drain: dict[str, dict[str, Attempt]] = {}
        self._wakes = 0  # guarded by _attempts_lock; how often budgets have become free
        # guarded by _attempts_lock; by budget: the count at its last time
        self._woken: dict[str, int] = {}

    def of(self, drain: str) -> Mapping[str, Attempt]:
        """Return a copy of a drain's attempts, by pod uid."""
        with self._attempts_lock:
            return dict(self._by_drain.get(drain, {}))

    def moment(self) -> int:
        """Return a mark in the history of wake-ups, to be handed to `record`."""
        with self._attempts_lock:
            return self._wakes

    def record(self, drain: str, attempts: Mapping[str, Attempt], *, since: int, at: float) -> None:
        """Replace the attempts of these pods.

        Args:
            drain: The drain's name.
            attempts: By pod uid.
            since: The `moment` before the pods were asked. A budget that has become
                free after it may have done so after its refusal: no wake-up is lost,
                those pods are due at once.
            at: The present monotonic instant.
        """
        with self._attempts_lock:
            known = self._by_drain.setdefault(drain, {})
            for uid, attempt in attempts.items():
                missed = any(self._woken.get(budget, 0) > since for budget in attempt.budgets)
                known[uid] = replace(attempt, due_at=at) if missed else attempt

    def keep(self, drain: str, uids: Collection[str]) -> None:
        """Forget the attempts of all other pods of the drain: they are gone."""
        with self._attempts_lock:
            known = self._by_drain.get(drain, {})
            self._by_drain[drain] = {uid: known[uid] for uid in known if uid in uids}

    def forget(self, drain: str) -> None:
        """Forget a drain that is over."""
        with self._attempts_lock:
            self._by_drain.pop(drain, None)
            if not self._by_drain:
                self._woken.clear()

    def wake(self, budget: str, *, at: float, pods: int | None = None) -> frozenset[str]:
        """Make pods that a budget holds up due at once.

        Args:
            budget: `namespace/name`.
            at: The present monotonic instant.
            pods: At most so many pods of each drain, as no more can succeed;
                `None` is all.

        Returns:
            The drains that have something to do now.
        """
        with self._attempts_lock:
            self._wakes += 1
            self._woken[budget] = self._wakes
            return frozenset(
                drain
                for drain, attempts in self._by_drain.items()
                if _wake(attempts, budget, at, pods)
            )


def _wake(attempts: dict[str, Attempt], budget: str, at: float, pods: int | None) -> bool:
    held = [uid for uid, attempt in attempts.items() if budget in attempt.budgets]
    for uid in held[:pods]:
        attempts[uid] = replace(attempts[uid], due_at=min(attempts[uid].due_at, at))
    return bool(held)
