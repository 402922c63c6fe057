"""The invariants of a cluster, checked after every write.

- **Budgets.** No voluntary disruption reduces the healthy pods of a budget below the
  required number. A disruption is the deletion of a healthy pod, through the eviction API
  or not. Deletions by the simulator's components, the garbage collector and an
  installation are not voluntary.
- **Cordons.** No pod is bound to a node that has been unschedulable for longer than a
  scheduler's cache may lag, except pods of DaemonSets and mirror pods.
- **Fixtures.** No pod of a DaemonSet and no mirror pod is evicted: it would be created
  again on the same node.

The checker computes the numbers of healthy and required pods itself and does not use the
status that the disruption controller writes.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.testing.apiserver import Change
from navarchos.testing.cluster.invariant_state import InvariantState, PodRecord
from navarchos.testing.cluster.options import is_simulator

__all__ = ["InvariantChecker", "Violation"]

JsonObject = Mapping[str, Any]

_WORKLOADS: Final = frozenset({"replicasets", "deployments", "statefulsets"})


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant.

    Attributes:
        what: `BudgetViolated`, `BoundToCordonedNode` or `FixtureEvicted`.
        object: The pod, as `namespace/name`.
        detail: The facts in one readable line.
        at: The time of the violation.
    """

    what: str
    object: str
    detail: str
    at: datetime


class InvariantChecker:
    """Observes a server's changes and records violations.

    Args:
        late_binding_tolerance: Seconds after a cordon during which a pod may still be
            bound to the node.
        clock: The clock.

    Threads: safe from any thread. The server calls `observe` while it holds the lock of
    its store; `observe` takes another lock after that one.

    Cost: a few dictionary look-ups per change. A changed selector of a budget counts the
    pods of its namespace once.
    """

    def __init__(self, *, late_binding_tolerance: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._tolerance = late_binding_tolerance
        self._clock = clock
        self._books_lock = threading.Lock()
        self._state = InvariantState()  # guarded by _books_lock
        self._cordons: dict[str, float] = {}  # guarded by _books_lock; since when, by node
        self._violations: list[Violation] = []  # guarded by _books_lock
        self._counts: Counter[str] = Counter()  # guarded by _books_lock
        self._handlers: Mapping[str, Callable[[Change], None]] = {
            "pods": self._pod_locked,
            "nodes": self._node_locked,
            "poddisruptionbudgets": self._budget_locked,
            **dict.fromkeys(_WORKLOADS, self._workload_locked),
        }

    @property
    def violations(self) -> list[Violation]:
        """What was broken so far, oldest first."""
        with self._books_lock:
            return list(self._violations)

    def count(self, what: str) -> int:
        """Return how often something happened: `evicted`, `scheduled`."""
        with self._books_lock:
            return self._counts[what]

    def observe(self, change: Change) -> None:
        """Enter a committed write into the books, and judge it."""
        handler = self._handlers.get(change.resource.plural)
        if handler is not None:
            with self._books_lock:
                handler(change)

    def _workload_locked(self, change: Change) -> None:
        if change.type == "DELETED":
            self._state.remove_workload(change.object["metadata"]["uid"])
        else:
            self._state.set_workload(change.object)

    def _budget_locked(self, change: Change) -> None:
        if change.type == "DELETED":
            metadata = change.object["metadata"]
            self._state.remove_budget(f"{metadata['namespace']}/{metadata['name']}")
        else:
            self._state.set_budget(change.object)

    def _node_locked(self, change: Change) -> None:
        name = change.object["metadata"]["name"]
        cordoned = change.object.get("spec", {}).get("unschedulable", False)
        if change.type == "DELETED" or not cordoned:
            self._cordons.pop(name, None)
        else:
            self._cordons.setdefault(name, self._clock.monotonic())

    def _pod_locked(self, change: Change) -> None:
        metadata = change.object["metadata"]
        if change.type == "DELETED":
            gone = self._state.remove_pod(f"{metadata['namespace']}/{metadata['name']}")
            if gone is not None and not gone.is_terminating:
                self._judge_end_locked(change, gone, gone)
            return
        old, new = self._state.set_pod(change.object)
        if old is None or old.uid != new.uid:
            self._judge_binding_locked(new)
            return
        if new.node and not old.node:
            self._counts["scheduled"] += 1
            self._judge_binding_locked(new)
        if new.is_terminating and not old.is_terminating:
            self._judge_end_locked(change, old, new)

    def _judge_binding_locked(self, pod: PodRecord) -> None:
        if not pod.node:
            return
        since = self._cordons.get(pod.node)
        if since is None or pod.fixture:
            return
        age = self._clock.monotonic() - since
        if age > self._tolerance:
            self._report_locked(
                "BoundToCordonedNode",
                pod,
                f"bound to node {pod.node}, which has been cordoned for {age:.1f} s",
            )

    def _judge_end_locked(self, change: Change, old: PodRecord, new: PodRecord) -> None:
        """Check a pod that starts to terminate, or that was removed without terminating."""
        if change.request is not None and change.request.verb == "evict":
            self._counts["evicted"] += 1
            if new.fixture:
                text = f"a {new.fixture} pod was evicted from {new.node}"
                self._report_locked("FixtureEvicted", new, text)
        if old.is_healthy:
            self._judge_disruption_locked(change, old, new)

    def _judge_disruption_locked(self, change: Change, old: PodRecord, new: PodRecord) -> None:
        """Check the deletion of a healthy pod; the state no longer counts it as healthy."""
        if change.request is None or is_simulator(change.request.user_agent):
            return
        for budget in old.budgets:
            required = self._state.required(budget)
            if budget.healthy < required.desired:
                self._report_locked(
                    "BudgetViolated",
                    new,
                    f"budget {budget.name} requires {required.desired} healthy pods of "
                    f"{required.expected} and has {budget.healthy} after "
                    f"{change.request.verb} by {change.request.user_agent or 'an unnamed client'}",
                )

    def _report_locked(self, what: str, pod: PodRecord, detail: str) -> None:
        self._violations.append(Violation(what, pod.name, detail, self._clock.now()))
