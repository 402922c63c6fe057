"""Cordoning a node, and undoing a cordon without undoing one that another client set.

Only `spec.unschedulable` is patched; the node lifecycle controller adds and removes the
taint that belongs to it. An annotation, whose key the caller chooses, records the owner of
the cordon. A node that another client cordoned therefore stays cordoned after the drain.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.meta import Object

__all__ = [
    "LATE_BINDING",
    "NODE_SCHEDULING",
    "CordonState",
    "NodeScheduling",
    "SchedulingSpec",
    "cordon_patch",
    "cordon_state",
    "uncordon_patch",
]

LATE_BINDING: Final = 2.0
"""Seconds after the cordon before an empty node counts as drained.

A scheduler that chose the node just before the cordon may bind its pod just after it, and
nothing in the API announces such a binding.
"""


class SchedulingSpec(msgspec.Struct, frozen=True, gc=False):
    """Whether the scheduler may place pods on the node."""

    unschedulable: bool = False


class NodeScheduling(Object, frozen=True):
    """A node with the fields that cordoning needs."""

    spec: SchedulingSpec = SchedulingSpec()


NODE_SCHEDULING = Resource("", "v1", "nodes", "Node", namespaced=False, type=NodeScheduling)


class CordonState(StrEnum):
    """Who cordoned a node, if it is cordoned."""

    OPEN = "Open"
    OURS = "Ours"
    FOREIGN = "Foreign"


def cordon_state(
    *, unschedulable: bool, annotations: Mapping[str, str], key: str, owner: str
) -> CordonState:
    """Return who cordoned a node.

    Args:
        unschedulable: The node's `spec.unschedulable`.
        annotations: The node's annotations.
        key: The annotation that records the owner; empty if the caller records no owner,
            and then every cordon counts as foreign.
        owner: The annotation's value for cordons of the caller.
    """
    if not unschedulable:
        return CordonState.OPEN
    return CordonState.OURS if key and annotations.get(key) == owner else CordonState.FOREIGN


def cordon_patch(key: str = "", owner: str = "") -> dict[str, object]:
    """Return the merge patch that cordons a node and records the owner of the cordon.

    Send it with the resourceVersion that the decision was made on: the patch then fails
    with `Conflict` if another client cordoned the node in between.
    """
    body: dict[str, object] = {"spec": {"unschedulable": True}}
    if key:
        body["metadata"] = {"annotations": {key: owner}}
    return body


def uncordon_patch(key: str = "") -> dict[str, object]:
    """Return the merge patch that uncordons a node and removes the owner's annotation."""
    body: dict[str, object] = {"spec": {"unschedulable": None}}
    if key:
        body["metadata"] = {"annotations": {key: None}}
    return body
