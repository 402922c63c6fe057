"""Decides which nodes have the taint. Pure."""

from collections.abc import Iterable
from typing import Final

from navarchos.client.taints import Taint
from navarchos.operator.api.v1alpha1 import NodeReplacement
from navarchos.operator.names import TO_BE_REPLACED_TAINT
from navarchos.operator.nodes import Node

__all__ = ["TAINT", "desired_taints", "has_taint", "is_wanted", "wants_taint"]

# `PreferNoSchedule`, because autoscalers copy hard taints from an existing node into the template
# of a new one: every new node would have the taint too.
TAINT: Final = Taint(TO_BE_REPLACED_TAINT, effect="PreferNoSchedule")
"""The operator's taint. Any taint with this key is the operator's, with any effect."""


def wants_taint(replacement: NodeReplacement) -> bool:
    """Return whether the node of a replacement should have the taint."""
    return (
        replacement.spec.strategy.taint_waiting_nodes
        and not replacement.status.current.is_finished
        and replacement.metadata.deletion_timestamp is None
    )


def is_wanted(node: Node, replacements: Iterable[NodeReplacement]) -> bool:
    """Return whether one of the replacements of a node's name wants the taint on this node."""
    return any(
        wants_taint(replacement) and replacement.spec.node_uid in {"", node.metadata.uid}
        for replacement in replacements
    )


def has_taint(node: Node) -> bool:
    """Return whether a node has a taint with the operator's key."""
    return any(taint.key == TAINT.key for taint in node.spec.taints)


def desired_taints(taints: tuple[Taint, ...], *, wanted: bool) -> tuple[Taint, ...]:
    """Return the taints that a node should have. Other taints stay as they are, in order."""
    if wanted and TAINT in taints:
        return taints
    others = tuple(taint for taint in taints if taint.key != TAINT.key)
    return (*others, TAINT) if wanted else others
