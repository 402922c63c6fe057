"""The taints' controller: its watches, and the node that a change concerns."""

from collections.abc import Iterable, Sequence
from typing import Final

from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS, NodeReplacement
from navarchos.operator.clients import OperatorClients
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.taints.decide import TO_BE_REPLACED, TaintDeclaration, has_taint
from navarchos.operator.taints.reconciler import TaintReconciler
from navarchos.runtime import Builder, Controller, Manager, Request
from navarchos.runtime.predicates import changed, when

__all__ = ["add_to_manager"]

_WORKERS: Final = 2


def add_to_manager(
    manager: Manager,
    clients: OperatorClients,
    declared: Sequence[TaintDeclaration] = (TO_BE_REPLACED,),
) -> Controller:
    """Add the controller of taints to a manager.

    A node with such a taint is reconciled, because perhaps no replacement wants the taint any
    more. If a user removes the taint by hand, that does not cause a reconcile: the taint is set
    again only when another replacement wants it, or when a manager starts.
    """

    def node_of(replacement: NodeReplacement) -> Iterable[Request]:
        # When a replacement stops wanting the taint, this function is also called with its former
        # state, so that its node is reconciled. The node itself is watched while it has the taint.
        if any(declaration.wanted(replacement) for declaration in declared):
            yield Request("", replacement.spec.node_name)

    def inputs(replacement: NodeReplacement) -> object:
        wanted = tuple(declaration.wanted(replacement) for declaration in declared)
        return wanted, replacement.spec.node_uid

    return (
        Builder(manager, "taints", options=manager.options.controllers_with(workers=_WORKERS))
        .watches(NODE_REPLACEMENTS, map=node_of, when=changed(inputs))
        .watches(NODES, map=_own_key, when=when(lambda node: has_taint(node, declared)))
        .build(TaintReconciler(clients, declared))
    )


def _own_key(node: Node) -> Iterable[Request]:
    yield Request("", node.metadata.name)
