"""Decides which nodes have which of the operator's taints. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from navarchos.client.taints import Taint
from navarchos.operator.api.v1alpha1 import NodeReplacement
from navarchos.operator.names import TO_BE_REPLACED_TAINT
from navarchos.operator.nodes import Node

__all__ = [
    "TAINT",
    "TO_BE_REPLACED",
    "TaintDeclaration",
    "desired_taints",
    "has_taint",
    "is_unfinished",
    "with_taint",
]

# `PreferNoSchedule`, because autoscalers copy hard taints from an existing node into the template
# of a new one: every new node would have the taint too.
TAINT: Final = Taint(TO_BE_REPLACED_TAINT, effect="PreferNoSchedule")
"""The taint of a node that will be replaced."""

_EFFECTS: Final = ("PreferNoSchedule", "NoSchedule", "NoExecute")
"""From the weakest to the strongest."""


@dataclass(frozen=True, slots=True)
class TaintDeclaration:
    """A taint that follows the replacements of a node.

    Any taint with this key is the operator's, with any value and effect.
    """

    key: str
    wanted: Callable[[NodeReplacement], Taint | None]
    """Returns the taint, with this key, that the node of a replacement should have now. Pure."""


def is_unfinished(replacement: NodeReplacement) -> bool:
    """Return whether a replacement is neither finished nor being deleted."""
    deleted = replacement.metadata.deletion_timestamp is not None
    return not replacement.status.current.is_finished and not deleted


def _to_be_replaced(replacement: NodeReplacement) -> Taint | None:
    wants = replacement.spec.strategy.taint_waiting_nodes and is_unfinished(replacement)
    return TAINT if wants else None


TO_BE_REPLACED: Final = TaintDeclaration(TAINT.key, _to_be_replaced)
"""The taint of `strategy.taintWaitingNodes`."""


def has_taint(node: Node, declared: Iterable[TaintDeclaration]) -> bool:
    """Return whether a node has a taint with one of the declared keys."""
    keys = {declaration.key for declaration in declared}
    return any(taint.key in keys for taint in node.spec.taints)


def desired_taints(
    node: Node,
    replacements: Sequence[NodeReplacement],
    declared: Iterable[TaintDeclaration],
) -> tuple[Taint, ...]:
    """Return the taints that a node should have. Other taints stay as they are, in order.

    Args:
        node: The node as it is.
        replacements: The replacements of the node's name. Those of an earlier node with this
            name do not count.
        declared: The taints that follow replacements. If replacements want different effects
            of one key, the strongest effect wins.
    """
    own = [r for r in replacements if r.spec.node_uid in {"", node.metadata.uid}]
    taints = node.spec.taints
    for declaration in declared:
        wanted = [taint for each in own if (taint := declaration.wanted(each)) is not None]
        strongest = max(wanted, key=lambda taint: _EFFECTS.index(taint.effect), default=None)
        taints = with_taint(taints, declaration.key, strongest)
    return taints


def with_taint(taints: tuple[Taint, ...], key: str, wanted: Taint | None) -> tuple[Taint, ...]:
    """Return taints in which the key has the wanted taint, or no taint."""
    if wanted is not None and wanted in taints:
        return taints
    others = tuple(taint for taint in taints if taint.key != key)
    return others if wanted is None else (*others, wanted)
