"""The taints' controller: its watches, and the node that a change concerns."""

from collections.abc import Iterable
from typing import Final

from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS, NodeReplacement
from navarchos.operator.clients import OperatorClients
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.taints.decide import has_taint, wants_taint
from navarchos.operator.taints.reconciler import TaintReconciler
from navarchos.runtime import Builder, Controller, Manager, Request
from navarchos.runtime.predicates import changed, when

__all__ = ["add_to_manager"]

_WORKERS: Final = 2


def add_to_manager(manager: Manager, clients: OperatorClients) -> Controller:
    """Add the controller of taints to a manager.

    A node with the taint is reconciled, because perhaps no replacement wants the taint any
    more. If a user removes the taint by hand, that does not cause a reconcile: the taint is set
    again only when another replacement wants it, or when a manager starts.
    """
    return (
        Builder(manager, "taints", options=manager.options.controllers_with(workers=_WORKERS))
        .watches(NODE_REPLACEMENTS, map=_node_of, when=changed(_taint_inputs))
        .watches(NODES, map=_own_key, when=when(has_taint))
        .build(TaintReconciler(clients))
    )


def _node_of(replacement: NodeReplacement) -> Iterable[Request]:
    # When a replacement stops wanting the taint, this function is also called with its former
    # state, so that its node is reconciled. The node itself is watched while it has the taint.
    if wants_taint(replacement):
        yield Request("", replacement.spec.node_name)


def _own_key(node: Node) -> Iterable[Request]:
    yield Request("", node.metadata.name)


def _taint_inputs(replacement: NodeReplacement) -> object:
    return wants_taint(replacement), replacement.spec.node_uid
