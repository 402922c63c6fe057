"""Which nodes bear the taint, and their taints with and without it. Pure."""

from collections.abc import Iterable
from typing import Final

from navarchos.client.taints import Taint
from navarchos.operator.api.v1alpha1 import NodeReplacement
from navarchos.operator.names import TO_BE_REPLACED_TAINT
from navarchos.operator.nodes import Node

__all__ = ["TAINT", "desired_taints", "has_taint", "is_wanted", "wants_taint"]

TAINT: Final = Taint(TO_BE_REPLACED_TAINT, effect="PreferNoSchedule")
"""Its key is ours: a taint of that key is never somebody else's, whatever its effect."""


def wants_taint(replacement: NodeReplacement) -> bool:
    """Tell whether a replacement wants its node to bear the taint."""
    return (
        replacement.spec.strategy.taint_waiting_nodes
        and not replacement.status.current.is_finished
        and replacement.metadata.deletion_timestamp is None
    )


def is_wanted(node: Node, replacements: Iterable[NodeReplacement]) -> bool:
    """Tell whether one of the replacements of a node's name wants this very node's taint."""
    return any(
        wants_taint(replacement) and replacement.spec.node_uid in {"", node.metadata.uid}
        for replacement in replacements
    )


def has_taint(node: Node) -> bool:
    """Tell whether a node has a taint of our key."""
    return any(taint.key == TAINT.key for taint in node.spec.taints)


def desired_taints(taints: tuple[Taint, ...], *, wanted: bool) -> tuple[Taint, ...]:
    """Return a node's taints as they should be; those of others as they are, in their order."""
    if wanted and TAINT in taints:
        return taints
    others = tuple(taint for taint in taints if taint.key != TAINT.key)
    return (*others, TAINT) if wanted else others
