"""Check every change of a case for violations, independently of the operator.

The checker has a separate connection to the server and uses watch events only. Its rules,
in addition to the ones of `navarchos.testing.cluster.invariants`:

- **In flight.** No more nodes are reserved, cordoned or drained at once than the case
  declares. They are counted by replacements, and again by the cordons of the nodes. Each
  count uses one kind, so the order of events of different kinds does not matter.
- **Actions.** A pod of an action is bound to a node only when the pods that had to leave the node
  are gone, unless the action wants another state of the node.
- **Cordons.** When a case ends, no node has a cordon of the operator whose drain does
  not exist any more, unless the node has been drained.

A watch event does not say which client removed a pod, but the API server marks an evicted
pod. A pod without this mark was deleted, which bypasses its budget and is checked as
strictly. Pods whose node does not exist any more are excepted, because the cluster itself
deletes them.
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Self

from tests.cases.waiting import wait_for

from navarchos.client import Client, Resource
from navarchos.operator.api.v1alpha1 import NODE_DRAINS, NODE_REPLACEMENTS, NODE_ROLLOUTS
from navarchos.operator.names import ACTION_LABEL, CORDONED_BY_ANNOTATION, DRAIN_COMPLETED_LABEL
from navarchos.testing.apiserver import BucketId, Change, Origin
from navarchos.testing.cluster.invariants import InvariantChecker
from navarchos.testing.controlplane.subscription import Subscription

__all__ = ["LATE_BINDING", "WATCHED", "Checker", "Violation"]

JsonObject = dict[str, Any]


def _resource(group: str, plural: str, kind: str, *, namespaced: bool) -> Resource[JsonObject]:
    version = "v1"
    return Resource(group, version, plural, kind, namespaced=namespaced, type=dict)


# In the order in which they are read at the start: the checked kinds come last.
WATCHED: Final = (
    _resource("", "nodes", "Node", namespaced=False),
    _resource("policy", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True),
    _resource("apps", "deployments", "Deployment", namespaced=True),
    _resource("apps", "replicasets", "ReplicaSet", namespaced=True),
    _resource("apps", "statefulsets", "StatefulSet", namespaced=True),
    NODE_ROLLOUTS.projected(dict),
    NODE_REPLACEMENTS.projected(dict),
    NODE_DRAINS.projected(dict),
    _resource("", "pods", "Pod", namespaced=True),
)
"""The kinds whose changes are checked."""

_BUDGETS: Final = BucketId("poddisruptionbudgets", "policy")

# Deletions by the cluster itself are not voluntary disruptions.
_OF_THE_CLUSTER: Final = frozenset({"DeletionByTaintManager", "DeletionByPodGC"})

LATE_BINDING: Final = 30.0
"""Seconds after a cordon in which a scheduler may not know it yet. A real one was seen to
bind four seconds after a cordon on a busy machine. The operator drains such pods (OP-44)."""


@dataclass(frozen=True)
class Violation:
    """An invariant was violated."""

    what: str
    about: str
    detail: str


class Checker:
    """Checks one case from its beginning to its end.

    Lifecycle: a context manager; its watches are open when it is entered. `settle`
    waits until all events have arrived, `violations` has the result.

    Threads: safe from any thread.

    Args:
        client: A separate client, closed with the checker.
        in_flight: The largest number of nodes in flight; `None` for no limit.
        late_binding: Seconds after a cordon in which a pod may still be bound.
    """

    def __init__(
        self, client: Client, *, in_flight: int | None = 1, late_binding: float = LATE_BINDING
    ) -> None:
        self.in_flight = in_flight
        self.bypasses_budgets = False
        self._client = client
        self._invariants = InvariantChecker(late_binding_tolerance=late_binding)
        self._cleanup = ExitStack()
        self._seen_lock = threading.Lock()
        self._seen: dict[BucketId, dict[str, JsonObject]] = {}  # guarded by _seen_lock; by uid
        self._cordoned: list[str] = []  # guarded by _seen_lock
        self._drained: list[str] = []  # guarded by _seen_lock
        self._actions: list[str] = []  # guarded by _seen_lock
        self._most = 0  # guarded by _seen_lock
        self._found: list[Violation] = []  # guarded by _seen_lock
        self._evictions: Counter[str] = Counter()  # guarded by _seen_lock
        # The generations of announced budgets, by uid. Guarded by _seen_lock.
        self._expected: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._cleanup.callback(self._client.close)
        subscription = Subscription(self._client, WATCHED, self.observe, announce_present=True)
        self._cleanup.callback(subscription.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    @property
    def cordoned(self) -> Sequence[str]:
        """The nodes that the operator cordoned, in this order."""
        with self._seen_lock:
            return tuple(self._cordoned)

    @property
    def drained(self) -> Sequence[str]:
        """The nodes that were labelled as drained, in this order."""
        with self._seen_lock:
            return tuple(self._drained)

    @property
    def most_in_flight(self) -> int:
        """The largest number of nodes that were in flight at once."""
        with self._seen_lock:
            return self._most

    @property
    def actions(self) -> Sequence[str]:
        """The nodes to which pods of actions were bound, in this order."""
        with self._seen_lock:
            return tuple(self._actions)

    def evictions(self, namespace: str) -> int:
        """Return the number of evicted pods of a namespace."""
        with self._seen_lock:
            return self._evictions[namespace]

    @property
    def violations(self) -> list[Violation]:
        """The violations so far."""
        of_pods = [
            Violation(found.what, found.object, found.detail)
            for found in self._invariants.violations
            if not (self.bypasses_budgets and found.what == "BudgetViolated")
        ]
        with self._seen_lock:
            return [*of_pods, *self._found]

    def settle(self) -> None:
        """Wait until all events have arrived."""
        for resource in WATCHED:
            wait_for(f"the last events of {resource}", lambda: self._knows_all(resource))  # noqa: B023 - called at once

    def judge_the_end(self) -> None:
        """Check for cordons that nothing will undo. Call `settle` first."""
        with self._seen_lock:
            drains = {
                f"{drain['metadata']['name']}/{uid}"
                for uid, drain in self._of(NODE_DRAINS.plural).items()
            }
            for node in self._of("nodes").values():
                owner = _cordoned_by(node)
                if owner and not _is_drained(node) and owner not in drains:
                    self._report_locked(
                        "CordonLeft",
                        node["metadata"]["name"],
                        f"it was cordoned by drain {owner}, which does not exist any more",
                    )

    def expect(self, budget: JsonObject) -> None:
        """Use a budget that is about to be changed.

        The watch of pods may deliver the effects of the change before the watch of budgets
        delivers the change. Until then events with the former specification count for nothing.
        """
        metadata = budget["metadata"]
        with self._seen_lock:
            self._expected[metadata["uid"]] = metadata["generation"]
        self._invariants.observe(
            Change(
                type="MODIFIED",
                resource=_BUDGETS,
                object=budget,
                previous=None,
                resource_version=int(metadata["resourceVersion"]),
                request=None,
            )
        )

    def observe(self, change: Change) -> None:
        """Record a change and check it."""
        with self._seen_lock:
            kind = change.resource.plural
            origin = self._origin_locked(change) if kind == "pods" else None
            seen = self._seen.setdefault(change.resource, {})
            uid = change.object["metadata"]["uid"]
            before = seen.get(uid)
            if change.type == "DELETED":
                seen.pop(uid, None)
            else:
                seen[uid] = change.object
            if kind == "nodes" and change.type != "DELETED":
                self._node_locked(before, change.object)
            elif kind == NODE_REPLACEMENTS.plural:
                self._count_locked("replacements", self._replacements_in_flight())
            elif kind == "pods" and _is_bound(change.object) and not (before and _is_bound(before)):
                self._action_locked(change.object)
            is_former = self._is_former_locked(change)
        if is_former:
            return
        self._invariants.observe(
            Change(
                type=change.type,
                resource=change.resource,
                object=change.object,
                previous=change.previous,
                resource_version=change.resource_version,
                request=origin,
            )
        )

    def _is_former_locked(self, change: Change) -> bool:
        """Return whether a budget is reported with the specification before an announced one."""
        metadata = change.object["metadata"]
        expected = self._expected.get(metadata["uid"], 0)
        return change.type != "DELETED" and metadata.get("generation", 0) < expected

    def _origin_locked(self, change: Change) -> Origin | None:
        """Return the origin of a pod's deletion, as far as the pod shows it."""
        pod = change.object
        mark = next(
            (
                condition.get("reason", "")
                for condition in (pod.get("status") or {}).get("conditions") or ()
                if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"
            ),
            "",
        )
        if mark == "EvictionByEvictionAPI":
            if change.type == "MODIFIED" and _begins_to_end(change):
                self._evictions[pod["metadata"]["namespace"]] += 1
            return Origin("evict", "unknown")
        if mark in _OF_THE_CLUSTER or not self._node_exists(pod):
            return None
        return Origin("delete", "unknown")

    def _node_exists(self, pod: Mapping[str, Any]) -> bool:
        name = pod["spec"].get("nodeName", "")
        return any(node["metadata"]["name"] == name for node in self._of("nodes").values())

    def _node_locked(self, before: JsonObject | None, node: JsonObject) -> None:
        name = node["metadata"]["name"]
        if _cordoned_by(node) and not (before and _cordoned_by(before)):
            self._cordoned.append(name)
        if _is_drained(node) and not (before and _is_drained(before)):
            self._drained.append(name)
        busy = {
            each["metadata"]["name"]
            for each in self._of("nodes").values()
            if _cordoned_by(each) and not _is_drained(each)
        }
        self._count_locked("cordoned nodes", busy)

    def _action_locked(self, pod: JsonObject) -> None:
        """Check a pod that was bound to a node just now, if it is of an action."""
        uid, node = _labels(pod).get(ACTION_LABEL), pod["spec"]["nodeName"]
        if not uid:
            return
        self._actions.append(node)
        replacement = self._of(NODE_REPLACEMENTS.plural).get(uid)
        action = (replacement or {}).get("spec", {}).get("action") or {}
        if replacement is None or action.get("node", "Drained") != "Drained":
            return
        left = [
            each["metadata"]["name"]
            for each in self._of("pods").values()
            if each["spec"].get("nodeName") == node and _must_leave(each)
        ]
        if left:
            detail = f"it was bound while {', '.join(sorted(left))} were on node {node}"
            self._report_locked("ActionTooEarly", pod["metadata"]["name"], detail)

    def _replacements_in_flight(self) -> set[str]:
        return {
            each["spec"]["nodeName"]
            for each in self._of(NODE_REPLACEMENTS.plural).values()
            if (each.get("status") or {}).get("phase") == "InProgress"
            and "stalledSince" not in each["status"]
        }

    def _count_locked(self, what: str, names: set[str]) -> None:
        self._most = max(self._most, len(names))
        if self.in_flight is not None and len(names) > self.in_flight:
            self._report_locked(
                "TooManyInFlight",
                ", ".join(sorted(names)),
                f"{len(names)} {what} at once, at most {self.in_flight} allowed",
            )

    def _report_locked(self, what: str, about: str, detail: str) -> None:
        violation = Violation(what, about, detail)
        if violation not in self._found:
            self._found.append(violation)

    def _of(self, plural: str) -> Mapping[str, JsonObject]:
        return next((seen for kind, seen in self._seen.items() if kind.plural == plural), {})

    def _knows_all(self, resource: Resource[JsonObject]) -> bool:
        listed = self._client.resource(resource).list().items
        with self._seen_lock:
            seen = self._seen.get(BucketId(resource.plural, resource.group), {})
            return _versions(listed) == _versions(seen.values())


def _versions(objects: Any) -> dict[str, str]:
    return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in objects}


def _begins_to_end(change: Change) -> bool:
    before = change.previous
    return bool(change.object["metadata"].get("deletionTimestamp")) and not (
        before and before["metadata"].get("deletionTimestamp")
    )


def _labels(pod: JsonObject) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}


def _is_bound(pod: JsonObject) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _must_leave(pod: JsonObject) -> bool:
    """Return whether a drain of the node removes the pod."""
    owners = pod["metadata"].get("ownerReferences") or ()
    has_ended = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    is_of_node = any(owner["kind"] in {"DaemonSet", "Node"} for owner in owners)
    return not has_ended and not is_of_node and ACTION_LABEL not in _labels(pod)


def _cordoned_by(node: Mapping[str, Any]) -> str:
    """Return the drain that cordoned the node; empty if no drain did."""
    if not node.get("spec", {}).get("unschedulable"):
        return ""
    annotations: Mapping[str, str] = node["metadata"].get("annotations") or {}
    return annotations.get(CORDONED_BY_ANNOTATION, "")


def _is_drained(node: Mapping[str, Any]) -> bool:
    return DRAIN_COMPLETED_LABEL in (node["metadata"].get("labels") or {})
