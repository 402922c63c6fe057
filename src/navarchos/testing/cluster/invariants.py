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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from navarchos.client.selectors import LabelSelectorSpec, Selector
from navarchos.client.taints import Toleration
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.placement.node_rules import tolerates_cordon
from navarchos.placement.pod_rules import LabelAnchor, anchor_of, anchors_of
from navarchos.testing.apiserver import Change
from navarchos.testing.cluster.budgets import RequiredHealth, required_health
from navarchos.testing.cluster.options import is_simulator

__all__ = [
    "BudgetRecord",
    "InvariantChecker",
    "InvariantState",
    "PodRecord",
    "Violation",
    "read_pod",
]

JsonObject = Mapping[str, Any]


@dataclass(slots=True, eq=False)
class BudgetRecord:
    """A budget with the current counts of its matching pods."""

    name: str
    spec: JsonObject
    selector: Selector
    anchor: LabelAnchor
    pods: int = 0
    healthy: int = 0
    owners: Counter[str] = field(default_factory=Counter)  # pods by their controller's uid


@dataclass(slots=True, eq=False)
class PodRecord:
    """The facts of a pod that the rules need.

    Attributes:
        uid: The uid.
        name: `namespace/name`.
        namespace: The namespace.
        labels: The labels.
        node: The node that the pod is bound to; empty for an unbound pod.
        is_terminating: Whether the pod is being deleted.
        is_healthy: Whether the pod is ready and not terminating.
        owner: The uid of the pod's controller.
        fixture: `DaemonSet` or `mirror` for a pod that must not be evicted, otherwise "".
        tolerates_cordon: Whether the pod may be bound to a cordoned node.
        budgets: The matching budgets.
    """

    uid: str
    name: str
    namespace: str
    labels: Mapping[str, str]
    node: str
    is_terminating: bool
    is_healthy: bool
    owner: str
    fixture: str
    tolerates_cordon: bool
    budgets: tuple[BudgetRecord, ...] = ()


class InvariantState:
    """The current counts of one cluster.

    Threads: not thread-safe; the owner holds a lock.
    """

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}
        self._pods_at: dict[LabelAnchor, dict[str, None]] = {}  # names in the order of arrival
        self._budgets: dict[str, BudgetRecord] = {}
        self._budgets_at: dict[LabelAnchor, dict[str, BudgetRecord]] = {}
        self._scales: dict[str, int] = {}  # wanted replicas by the owner's uid
        self._parents: dict[str, str] = {}  # Deployment by ReplicaSet, both by uid

    def set_pod(self, obj: JsonObject) -> tuple[PodRecord | None, PodRecord]:
        """Store the current state of a pod and return the records before and after."""
        new = read_pod(obj)
        old = self.pods.get(new.name)
        if old is not None and old.uid == new.uid and old.labels == new.labels:
            new.budgets = old.budgets
        else:
            if old is not None:
                self._unlist(old)
            self._list(new)
            new.budgets = tuple(self._matching(new))
        if old is not None:
            _count(old, -1)
        _count(new, 1)
        self.pods[new.name] = new
        return old, new

    def remove_pod(self, name: str) -> PodRecord | None:
        """Remove a pod and return its last record."""
        old = self.pods.pop(name, None)
        if old is not None:
            self._unlist(old)
            _count(old, -1)
        return old

    def set_budget(self, obj: JsonObject) -> None:
        """Store the current state of a budget and count its pods again if its spec changed."""
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        namespace = metadata["namespace"]
        name = f"{namespace}/{metadata['name']}"
        known = self._budgets.get(name)
        if known is not None and known.spec == spec:
            return  # almost all changes concern the status only
        self.remove_budget(name)
        selector = _selector(spec.get("selector"))
        record = BudgetRecord(name, spec, selector, anchor_of(namespace, selector))
        self._budgets[name] = record
        self._budgets_at.setdefault(record.anchor, {})[name] = record
        for pod in self._pods_by(record):
            pod.budgets = (*pod.budgets, record)
            _count_in(record, pod, 1)

    def remove_budget(self, name: str) -> None:
        """Remove the budget `namespace/name`."""
        gone = self._budgets.pop(name, None)
        if gone is None:
            return
        del self._budgets_at[gone.anchor][name]
        if not self._budgets_at[gone.anchor]:
            del self._budgets_at[gone.anchor]
        for pod in self._pods_by(gone):
            pod.budgets = tuple(budget for budget in pod.budgets if budget is not gone)

    def set_workload(self, obj: JsonObject) -> None:
        """Store the desired replicas of a ReplicaSet, Deployment or StatefulSet."""
        metadata = obj["metadata"]
        replicas = obj.get("spec", {}).get("replicas")
        self._scales[metadata["uid"]] = 1 if replicas is None else replicas
        parent = _controller(metadata)
        if parent.get("kind") == "Deployment":
            self._parents[metadata["uid"]] = parent["uid"]

    def remove_workload(self, uid: str) -> None:
        """Remove a workload."""
        self._scales.pop(uid, None)
        self._parents.pop(uid, None)

    def required(self, budget: BudgetRecord) -> RequiredHealth:
        """Return the health that a budget requires now."""
        return required_health(
            min_available=budget.spec.get("minAvailable"),
            max_unavailable=budget.spec.get("maxUnavailable"),
            pods=budget.pods,
            scale=lambda: self._scale(budget),
        )

    def _scale(self, budget: BudgetRecord) -> int:
        # A Deployment counts once, even if several of its ReplicaSets have pods.
        top = {self._parents.get(uid, uid) for uid in budget.owners}
        return sum(self._scales.get(uid, 0) for uid in top)

    def _matching(self, pod: PodRecord) -> Iterator[BudgetRecord]:
        for anchor in anchors_of(pod.namespace, pod.labels):
            for budget in self._budgets_at.get(anchor, {}).values():
                if budget.selector.matches(pod.labels):
                    yield budget

    def _pods_by(self, budget: BudgetRecord) -> Iterator[PodRecord]:
        for name in self._pods_at.get(budget.anchor, ()):
            pod = self.pods[name]
            if budget.selector.matches(pod.labels):
                yield pod

    def _list(self, pod: PodRecord) -> None:
        for anchor in anchors_of(pod.namespace, pod.labels):
            self._pods_at.setdefault(anchor, {})[pod.name] = None

    def _unlist(self, pod: PodRecord) -> None:
        for anchor in anchors_of(pod.namespace, pod.labels):
            listed = self._pods_at[anchor]
            del listed[pod.name]
            if not listed:
                del self._pods_at[anchor]


def read_pod(obj: JsonObject) -> PodRecord:
    """Return the record of a pod without its budgets."""
    metadata = obj["metadata"]
    conditions = (obj.get("status") or {}).get("conditions") or ()
    terminating = metadata.get("deletionTimestamp") is not None
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    owner = _controller(metadata)
    fixture = "DaemonSet" if owner.get("kind") == "DaemonSet" else ""
    if "kubernetes.io/config.mirror" in (metadata.get("annotations") or ()):
        fixture = "mirror"
    namespace = metadata.get("namespace", "")
    return PodRecord(
        uid=metadata["uid"],
        name=f"{namespace}/{metadata['name']}",
        namespace=namespace,
        labels=metadata.get("labels") or {},
        node=(obj.get("spec") or {}).get("nodeName") or "",
        is_terminating=terminating,
        is_healthy=ready and not terminating,
        owner=owner.get("uid", ""),
        fixture=fixture,
        tolerates_cordon=_tolerates_cordon(obj.get("spec") or {}),
    )


def _tolerates_cordon(spec: JsonObject) -> bool:
    given = spec.get("tolerations")
    return bool(given) and tolerates_cordon(msgspec.convert(given, tuple[Toleration, ...]))


def _controller(metadata: JsonObject) -> JsonObject:
    owners = metadata.get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def _selector(spec: object) -> Selector:
    # policy/v1: a budget without a selector matches no pod, an empty selector all pods.
    if spec is None:
        return Selector.nothing()
    return Selector.from_spec(msgspec.convert(spec, LabelSelectorSpec))


def _count(pod: PodRecord, sign: int) -> None:
    for budget in pod.budgets:
        _count_in(budget, pod, sign)


def _count_in(budget: BudgetRecord, pod: PodRecord, sign: int) -> None:
    budget.pods += sign
    budget.healthy += sign * pod.is_healthy
    if pod.owner:
        budget.owners[pod.owner] += sign
        if not budget.owners[pod.owner]:
            del budget.owners[pod.owner]


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
        if since is None or pod.fixture or pod.tolerates_cordon:
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
