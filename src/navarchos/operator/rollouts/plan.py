"""Which nodes a rollout replaces, and in which order. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from navarchos.client.selectors import LabelSelectorSpec, Selector
from navarchos.meta import EPOCH, Object
from navarchos.operator.api.v1alpha1 import NodeRolloutSpec, NodeSelectorEntry, PlannedNode

__all__ = ["Plan", "make_plan", "reprioritize", "selector_of"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The node set of a rollout, fixed when it starts (OP-03)."""

    nodes: tuple[PlannedNode, ...] = ()
    """In the order in which they are replaced (OP-09)."""
    not_found: tuple[str, ...] = ()
    """Names in the spec that no node has, sorted."""


def make_plan(spec: NodeRolloutSpec, nodes: Iterable[Object]) -> Plan:
    """Select and order nodes.

    The highest priority among all matching selectors wins for a node; an entry of
    `nodeNames` overrides selectors (OP-01). The order is priority, value of the
    topology label, oldest first, name; it does not depend on the order of `nodes`.
    """
    priority_of = _prioritizer(spec)
    chosen = [(node, priority) for node in nodes if (priority := priority_of(node)) is not None]
    chosen.sort(key=lambda pair: _sort_key(*pair, topology_key=spec.strategy.topology_key))
    found = {node.metadata.name for node, _ in chosen}
    return Plan(
        nodes=tuple(
            PlannedNode(node.metadata.name, node.metadata.uid, priority)
            for node, priority in chosen
        ),
        not_found=tuple(sorted({entry.name for entry in spec.node_names} - found)),
    )


def reprioritize(
    spec: NodeRolloutSpec, planned: Sequence[PlannedNode], nodes: Mapping[str, Object]
) -> tuple[PlannedNode, ...]:
    """Give planned nodes the priority that an edited spec gives them (OP-10).

    The set stays: a node that the spec no longer matches, or that is gone, keeps
    the priority it had.
    """
    priority_of = _prioritizer(spec)
    return tuple(_with_priority(entry, nodes.get(entry.name), priority_of) for entry in planned)


_Prioritizer = Callable[[Object], "int | None"]


def _with_priority(
    entry: PlannedNode, node: Object | None, priority_of: _Prioritizer
) -> PlannedNode:
    if node is None or node.metadata.uid != entry.uid:
        return entry
    priority = priority_of(node)
    return entry if priority is None else msgspec.structs.replace(entry, priority=priority)


def _prioritizer(spec: NodeRolloutSpec) -> _Prioritizer:
    """Return a function that gives a node's priority, or `None` when nothing matches."""
    named: dict[str, int] = {}
    for entry in spec.node_names:
        known = named.get(entry.name, entry.replacement.priority)
        named[entry.name] = max(known, entry.replacement.priority)
    selectors = [(selector_of(entry), entry.replacement.priority) for entry in spec.node_selectors]
    # The first match is then the highest; equal priorities keep the spec's order.
    selectors.sort(key=lambda pair: -pair[1])

    def priority_of(node: Object) -> int | None:
        if (by_name := named.get(node.metadata.name)) is not None:
            return by_name
        labels = node.metadata.labels
        return next(
            (priority for selector, priority in selectors if selector.matches(labels)), None
        )

    return priority_of


def selector_of(entry: NodeSelectorEntry) -> Selector:
    """Return the entry's selector; without conditions it needs `matchAll` (N-21)."""
    if not entry.match_labels and not entry.match_expressions:
        return Selector.everything() if entry.match_all else Selector.nothing()
    return Selector.from_spec(
        LabelSelectorSpec(
            match_labels=entry.match_labels, match_expressions=entry.match_expressions
        )
    )


def _sort_key(node: Object, priority: int, *, topology_key: str) -> tuple[int, str, datetime, str]:
    metadata = node.metadata
    topology = metadata.labels.get(topology_key, "") if topology_key else ""
    return (-priority, topology, metadata.creation_timestamp or EPOCH, metadata.name)
