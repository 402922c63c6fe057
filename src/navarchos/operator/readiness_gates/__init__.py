"""Pods that become unready before their node is drained: `prepare.readinessGate` (IG-76).

A system of its own, which is off by default: it watches all pods, and may write their status.
"""

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from navarchos.drain import BUDGETS, Budget
from navarchos.informers import KindOptions
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.readiness_gates.decide import (
    GATED_PODS,
    GatedPod,
    gates_of,
    trim_pod,
    unready_gates,
)
from navarchos.operator.readiness_gates.reconciler import (
    NODE_INDEX,
    RBAC,
    ReadinessReconciler,
    index_by_node,
)
from navarchos.operator.setup import OperatorParts, Part
from navarchos.operator.systems import System
from navarchos.runtime import Builder, Request
from navarchos.runtime.predicates import changed

__all__ = ["READINESS_GATES"]

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
    if unready_gates(node):
        yield Request("", node.metadata.name)


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
