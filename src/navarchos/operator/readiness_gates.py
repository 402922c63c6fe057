"""Pods that become unready before their node is drained: `prepare.readinessGate` (IG-76).

A separate system, which is off by default: it watches all pods, and may write their status. The
mark on the node is the only state: a manager that starts computes the same conditions again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from navarchos.client import PatchType, Resource
from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.drain import BUDGETS, Budget, Pod, budgets_of
from navarchos.drain.pods import PodSpec
from navarchos.informers import KindOptions
from navarchos.informers.source import informer_rbac
from navarchos.meta import EPOCH, format_time
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.clients import OperatorClients
from navarchos.operator.marks import read_marks, readiness_mark
from navarchos.operator.names import UNREADY_ANNOTATION, UNREADY_PREFIX
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.setup import OperatorParts, Part
from navarchos.operator.systems import System
from navarchos.runtime import (
    DONE,
    OUTDATED_READ,
    Builder,
    CachedClient,
    Reconciler,
    Request,
    Result,
)
from navarchos.runtime.predicates import changed
from navarchos.structs import prepare_decoding

__all__ = [
    "GATED_PODS",
    "NODE_INDEX",
    "RBAC",
    "READINESS_GATES",
    "GateChange",
    "GatedPod",
    "ReadinessReason",
    "ReadinessReconciler",
    "changes_of",
    "gates_of",
    "index_by_node",
    "trim_pod",
    "unready_gates",
    "unready_since",
]

_PREFIX: Final = f"{api.GROUP}/"


class ReadinessReason(StrEnum):
    """Why a readiness gate of a pod is true or false."""

    IN_SERVICE = "InService"
    NODE_PREPARED = "NodePrepared"


class _Gate(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An entry of `spec.readinessGates`."""

    condition_type: str = ""


class _GatedPodSpec(PodSpec, frozen=True, gc=False):
    """The fields of a pod's spec that a drain needs, and its readiness gates."""

    readiness_gates: tuple[_Gate, ...] = ()


class _GateCondition(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An entry of `status.conditions`, with the time of its last change."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _GatedPodStatus(msgspec.Struct, frozen=True, gc=False):
    """The phase and conditions of a pod."""

    phase: str = ""
    conditions: tuple[_GateCondition, ...] = ()


@prepare_decoding
class GatedPod(Pod, frozen=True):
    """A pod with its readiness gates. Read-only."""

    spec: _GatedPodSpec = _GatedPodSpec()
    status: _GatedPodStatus = _GatedPodStatus()  # type: ignore[assignment]


GATED_PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True, type=GatedPod)


@dataclass(frozen=True, slots=True)
class GateChange:
    """A condition that has to be written.

    Attributes:
        type: The condition's type, which is the pod's readiness gate.
        is_true: Its status.
    """

    type: str
    is_true: bool

    def patch(self, now: datetime) -> dict[str, object]:
        """Return the strategic merge patch of the pod's status; it changes no other condition."""
        reason = ReadinessReason.IN_SERVICE if self.is_true else ReadinessReason.NODE_PREPARED
        message = "" if self.is_true else "the node is prepared for a drain"
        condition = {
            "type": self.type,
            "status": str(self.is_true),
            "reason": reason.value,
            "message": message,
            "lastTransitionTime": format_time(now),
        }
        return {"status": {"conditions": [condition]}}


def gates_of(pod: GatedPod) -> tuple[str, ...]:
    """Return the readiness gates of a pod that belong to Navarchos."""
    types = (gate.condition_type for gate in pod.spec.readiness_gates)
    return tuple(type_ for type_ in types if type_.startswith(_PREFIX))


def trim_pod(pod: GatedPod) -> GatedPod:
    """Return a pod as caches keep it: only its identity, unless it has gates of Navarchos."""
    if gates_of(pod):
        spec = _GatedPodSpec(node_name=pod.spec.node_name, readiness_gates=pod.spec.readiness_gates)
        return msgspec.structs.replace(pod, spec=spec)
    meta = pod.metadata
    return GatedPod(
        metadata=type(meta)(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
    )


def unready_gates(node: Node) -> frozenset[str]:
    """Return the gates whose pods must be unready on a node."""
    keys = (key for key, value in node.metadata.annotations.items() if value == "true")
    names = (key.removeprefix(UNREADY_PREFIX) for key in keys if key.startswith(UNREADY_PREFIX))
    return frozenset(f"{_PREFIX}{name}" for name in names)


def changes_of(
    pod: GatedPod, unready: frozenset[str], budgets: Iterable[Budget]
) -> Iterator[GateChange]:
    """Yield the conditions of a pod that have to change.

    A pod under a PodDisruptionBudget stays ready: unready, it would count against the budget, and
    no eviction has asked that budget. A pod that has ended or is being deleted stays as it is, and
    so does a pod on a node with the mark that was not ready before.

    Args:
        pod: The pod.
        unready: The gates whose pods must be unready on its node.
        budgets: The budgets of its namespace.
    """
    if pod.is_finished or pod.is_terminating:
        return
    affected = [type_ for type_ in gates_of(pod) if type_ in unready]
    is_kept = bool(affected) and bool(budgets_of(pod, budgets))  # mutant: budgets-not-asked
    for type_ in gates_of(pod):
        is_true = is_kept or type_ not in unready
        found = _condition(pod, type_)
        was_true = found is not None and found.status == str(True)
        # A pod without the condition is not ready. Its time would prolong the wait of a drain
        # whose node gets one new pod after the other.
        if is_true != was_true:  # mutant: late-pods-settle
            yield GateChange(type_, is_true)


def unready_since(pods: Iterable[GatedPod], gate: str) -> datetime:
    """Return when the last pod of a gate became unready; `EPOCH` without any unready pod."""
    found = [_condition(pod, gate) for pod in pods if gate in gates_of(pod)]
    times = [each.last_transition_time for each in found if each and each.status == "False"]
    return max((at for at in times if at is not None), default=EPOCH)


def _condition(pod: GatedPod, type_: str) -> _GateCondition | None:
    return next((each for each in pod.status.conditions if each.type == type_), None)


NODE_INDEX: Final = "gated-node"
"""The index of pods with a readiness gate of Navarchos by the name of their node."""

RBAC: Final = (
    *informer_rbac(GATED_PODS, BUDGETS),
    PolicyRule(GATED_PODS, ("patch",), subresource="status"),
    PolicyRule(api.NODE_DRAINS, ("patch",)),
)
"""Permissions of the reconciler and its caches; the controller of drains has others."""

_AGAIN: Final = Result(requeue_after=1.0)
"""A pod was not written. No event may follow: the other write may be of another condition."""


class ReadinessReconciler(Reconciler):
    """Makes the readiness gates of pods follow their nodes. A request is the name of a node.

    Promises: a condition whose type does not belong to Navarchos is never written, and neither is
    any other condition of a pod. A drain is answered only after the API server has stored that all
    pods of its gate are unready.

    Threads: safe from any thread, for different nodes.
    """

    def __init__(
        self,
        clients: OperatorClients,
        pods: CachedClient[GatedPod],
        budgets: CachedClient[Budget],
        clock: Clock,
    ) -> None:
        self._clients = clients
        self._pods = pods
        self._budgets = budgets
        self._clock = clock

    def reconcile(self, request: Request) -> Result:
        """Write the conditions that differ, then answer the drains that wait for them."""
        node = self._clients.nodes.find(request.name)
        if node is None:
            return DONE  # the event of the node comes later
        unready = unready_gates(node)
        pods = self._pods.by_index(NODE_INDEX, request.name)
        now = self._clock.now()
        is_complete = True
        for pod in pods:
            budgets = self._budgets.list(namespace=pod.metadata.namespace) if unready else ()
            for change in changes_of(pod, unready, budgets):
                if not self._write(pod, change.patch(now)):
                    is_complete = False
                    break
        return self._answer(node, unready) if is_complete else _AGAIN

    def _write(self, pod: GatedPod, body: dict[str, object]) -> bool:
        """Patch the status of a pod; return whether it was written."""
        meta = pod.metadata
        try:
            written = self._pods.client.patch(
                meta.name,
                body,
                meta.namespace,
                type=PatchType.STRATEGIC,
                subresource="status",
                uid=meta.uid,
            )
        except OUTDATED_READ:
            return False  # gone, replaced, or changed by many clients at once
        self._pods.observe(written)
        return True

    def _answer(self, node: Node, unready: frozenset[str]) -> Result:
        """Answer the drains of a node whose gate is done."""
        waits, marks = [], read_marks(node)
        for drain in self._clients.drains.list() if unready else ():
            spec = drain.spec.prepare
            if drain.spec.node_name != node.metadata.name or spec is None:
                continue
            if not _is_preparing(drain) or spec.readiness_gate not in unready:
                continue
            entry = marks.get(readiness_mark(spec.readiness_gate).id)
            answer = format_time(entry.since) if entry is not None else ""
            if drain.metadata.annotations.get(UNREADY_ANNOTATION, "") == answer:
                continue
            since = unready_since(self._all_of(node, spec.readiness_gate), spec.readiness_gate)
            left = since + timedelta(seconds=spec.settle_seconds) - self._clock.now()
            if left > timedelta():  # mutant: pods-not-settled
                waits.append(left.total_seconds())
                continue
            body = {"metadata": {"annotations": {UNREADY_ANNOTATION: answer}}}
            self._clients.drains.patch_any_version(drain, body)
        return Result(requeue_after=min(waits)) if waits else DONE

    def _all_of(self, node: Node, gate: str) -> Sequence[GatedPod]:
        pods = self._pods.by_index(NODE_INDEX, node.metadata.name)
        return [pod for pod in pods if gate in gates_of(pod) and not pod.is_terminating]


def _is_preparing(drain: api.NodeDrain) -> bool:
    """Return whether a drain prepares its node."""
    is_deleted = drain.metadata.deletion_timestamp is not None
    return drain.status.phase is api.DrainPhase.PREPARING and not is_deleted


def index_by_node(pod: GatedPod) -> tuple[str, ...]:
    """Return the node of a pod that has a readiness gate of Navarchos."""
    return (pod.spec.node_name,) if pod.spec.node_name and gates_of(pod) else ()


_WORKERS: Final = 2


def _add(operator: OperatorParts) -> None:
    manager = operator.manager
    pods, budgets = manager.cached_client(GATED_PODS), manager.cached_client(BUDGETS)
    pods.informer.add_indexers({NODE_INDEX: index_by_node})

    def nodes_of_budget(budget: Budget) -> Iterable[Request]:
        found = pods.list(namespace=budget.metadata.namespace)
        return {Request("", pod.spec.node_name) for pod in found if index_by_node(pod)}

    reconciler = ReadinessReconciler(operator.clients, pods, budgets, manager.clock)
    options = manager.options.controllers_with(workers=_WORKERS)
    (
        Builder(manager, "readiness-gates", options=options)
        .watches(GATED_PODS, map=_node_of_pod, when=changed(_inputs))
        .watches(NODES, map=_node, when=changed(unready_gates))
        .watches(api.NODE_DRAINS, map=_node_of_drain, when=changed(_phase))
        .watches(BUDGETS, map=nodes_of_budget, when=changed(_selector))
        .build(reconciler)
    )


def _node_of_pod(pod: GatedPod) -> Iterable[Request]:
    return [Request("", name) for name in index_by_node(pod)]


def _inputs(pod: GatedPod) -> object:
    gates = frozenset(gates_of(pod))
    conditions = tuple(each for each in pod.status.conditions if each.type in gates)
    labels = tuple(sorted(pod.metadata.labels.items())) if gates else ()
    return index_by_node(pod), gates, conditions, labels, pod.is_terminating, pod.is_finished


def _node(node: Node) -> Iterable[Request]:
    # Also without a mark: pods may have been seen before their node.
    # mutant: late-nodes-ignored
    return [Request("", node.metadata.name)]


def _node_of_drain(drain: api.NodeDrain) -> Iterable[Request]:
    if drain.spec.prepare is not None and drain.spec.prepare.readiness_gate:
        yield Request("", drain.spec.node_name)


def _phase(drain: api.NodeDrain) -> object:
    return drain.status.phase, drain.metadata.deletion_timestamp


def _selector(budget: Budget) -> object:
    return budget.spec.selector


READINESS_GATES: Final = System(
    name="readiness-gates",
    about="pods with a readiness gate of Navarchos (drain.prepare.readinessGate)",
    parts=frozenset({Part.DRAINS}),
    cached_kinds=MappingProxyType({GATED_PODS: KindOptions(transform=trim_pod)}),
    rbac=MappingProxyType({"": RBAC}),
    add=_add,
)
"""Keeps readiness gates true, and makes them false on nodes that are prepared for a drain."""
