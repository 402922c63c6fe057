"""The taints' controller: what it watches, and which node a change is about."""

from collections.abc import Iterable
from typing import Final

from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS, NodeReplacement
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.objects import Objects
from navarchos.operator.taints.decide import has_taint, wants_taint
from navarchos.operator.taints.reconciler import TaintReconciler
from navarchos.runtime import Builder, Controller, Manager, Request
from navarchos.runtime.predicates import changed, when

__all__ = ["add_to_manager"]

_WORKERS: Final = 2


def add_to_manager(manager: Manager, objects: Objects) -> Controller:
    """Add the controller of taints to a manager.

    A node is looked at when it bears the taint: perhaps nobody wants it any more. Whoever
    takes the taint off a node is not contradicted for that: it is put on when a
    replacement comes to want it, and when a manager begins.
    """
    return (
        Builder(manager, "taints")
        .watches(NODE_REPLACEMENTS, map=_node_of, when=changed(_want))
        .watches(NODES, map=_own_key, when=when(has_taint))
        .with_workers(_WORKERS)
        .build(TaintReconciler(objects))
    )


def _node_of(replacement: NodeReplacement) -> Iterable[Request]:
    # One that never wanted it is nobody's business here. One that did and no longer does
    # brings its node about all the same: this is asked of its former state as well, and
    # the node, which bears the taint, is watched itself.
    if wants_taint(replacement):
        yield Request("", replacement.spec.node_name)


def _own_key(node: Node) -> Iterable[Request]:
    yield Request("", node.metadata.name)


def _want(replacement: NodeReplacement) -> object:
    return wants_taint(replacement), replacement.spec.node_uid
