"""The invariant checker's own books: pods, budgets, scales and cordons.

Kept from the server's changes alone and one step at a time, so that a rule is
judged by what really is, not by what a controller wrote into a status. Objects
come as decoded JSON: this is on the path of every write of the server.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from navarchos.client.selectors import LabelSelectorSpec, Selector
from navarchos.placement import LabelAnchor, anchor_of, anchors_of
from navarchos.testing.cluster.budgets import RequiredHealth, required_health

__all__ = ["BudgetRecord", "InvariantState", "PodRecord"]

JsonObject = Mapping[str, Any]


@dataclass(slots=True, eq=False)
class BudgetRecord:
    """A budget and the running counts of the pods that it matches."""

    name: str
    spec: JsonObject
    selector: Selector
    anchor: LabelAnchor
    pods: int = 0
    healthy: int = 0
    owners: Counter[str] = field(default_factory=Counter)  # pods by their controller's uid


@dataclass(slots=True, eq=False)
class PodRecord:
    """What the rules need of a pod.

    Attributes:
        uid: Its identity.
        name: `namespace/name`.
        namespace: Its namespace.
        labels: The labels by which budgets were matched.
        node: Where it is bound; empty while it is not.
        is_terminating: Whether its deletion has been asked for.
        is_healthy: Ready, and not terminating.
        owner: Uid of its controller.
        fixture: `DaemonSet` or `mirror` for a pod that no drain may move, or "".
        budgets: Those that match it.
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
    budgets: tuple[BudgetRecord, ...] = ()


class InvariantState:
    """Running counts over one cluster. Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}
        self._pods_at: dict[LabelAnchor, dict[str, None]] = {}  # names, in the order they came
        self._budgets: dict[str, BudgetRecord] = {}
        self._budgets_at: dict[LabelAnchor, dict[str, BudgetRecord]] = {}
        self._scales: dict[str, int] = {}  # wanted replicas by the owner's uid
        self._parents: dict[str, str] = {}  # Deployment by ReplicaSet, both by uid

    def set_pod(self, obj: JsonObject) -> tuple[PodRecord | None, PodRecord]:
        """Enter a pod as it is now; returns the records before and after."""
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
        """Strike a pod off; returns its last record."""
        old = self.pods.pop(name, None)
        if old is not None:
            self._unlist(old)
            _count(old, -1)
        return old

    def set_budget(self, obj: JsonObject) -> None:
        """Enter a budget as it is now, and count its pods anew if its spec changed."""
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        namespace = metadata["namespace"]
        name = f"{namespace}/{metadata['name']}"
        known = self._budgets.get(name)
        if known is not None and known.spec == spec:
            return  # nearly every change is one of status alone
        self.remove_budget(name)
        selector = _selector(spec.get("selector"))
        record = BudgetRecord(name, spec, selector, anchor_of(namespace, selector))
        self._budgets[name] = record
        self._budgets_at.setdefault(record.anchor, {})[name] = record
        for pod in self._pods_by(record):
            pod.budgets = (*pod.budgets, record)
            _count_in(record, pod, 1)

    def remove_budget(self, name: str) -> None:
        """Strike the budget `namespace/name` off."""
        gone = self._budgets.pop(name, None)
        if gone is None:
            return
        del self._budgets_at[gone.anchor][name]
        if not self._budgets_at[gone.anchor]:
            del self._budgets_at[gone.anchor]
        for pod in self._pods_by(gone):
            pod.budgets = tuple(budget for budget in pod.budgets if budget is not gone)

    def set_workload(self, obj: JsonObject) -> None:
        """Enter how many pods a ReplicaSet, Deployment or StatefulSet wants."""
        metadata = obj["metadata"]
        replicas = obj.get("spec", {}).get("replicas")
        self._scales[metadata["uid"]] = 1 if replicas is None else replicas
        parent = _controller(metadata)
        if parent.get("kind") == "Deployment":
            self._parents[metadata["uid"]] = parent["uid"]

    def remove_workload(self, uid: str) -> None:
        """Strike a workload off."""
        self._scales.pop(uid, None)
        self._parents.pop(uid, None)

    def required(self, budget: BudgetRecord) -> RequiredHealth:
        """Return what a budget asks for now."""
        return required_health(
            min_available=budget.spec.get("minAvailable"),
            max_unavailable=budget.spec.get("maxUnavailable"),
            pods=budget.pods,
            scale=lambda: self._scale(budget),
        )

    def _scale(self, budget: BudgetRecord) -> int:
        # A Deployment counts once, however many of its ReplicaSets have pods.
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
    """Return the record of a pod, budgets not filled in."""
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
    )


def _controller(metadata: JsonObject) -> JsonObject:
    owners = metadata.get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def _selector(spec: object) -> Selector:
    # policy/v1: without a selector a budget matches nothing, an empty one everything.
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
