"""Closing a node to new pods, and giving back exactly what was taken.

Only `spec.unschedulable` is touched; the taint that belongs to it is the node
controller's business. An annotation, whose key the caller chooses, says that the
cordon is ours and whose exactly, so that a node that somebody else had cordoned
stays cordoned when we are done.
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
"""Seconds after the cordon before an empty node is believed to be empty.

A scheduler that chose the node just before the cordon may bind its pod just after
it; nothing in the API tells that this is still to come.
"""


class SchedulingSpec(msgspec.Struct, frozen=True, gc=False):
    """Whether new pods may come."""

    unschedulable: bool = False


class NodeScheduling(Object, frozen=True):
    """A node, as far as cordoning needs it."""

    spec: SchedulingSpec = SchedulingSpec()


NODE_SCHEDULING = Resource("", "v1", "nodes", "Node", namespaced=False, type=NodeScheduling)


class CordonState(StrEnum):
    """Whose cordon a node bears."""

    OPEN = "Open"
    OURS = "Ours"
    FOREIGN = "Foreign"


def cordon_state(
    *, unschedulable: bool, annotations: Mapping[str, str], key: str, owner: str
) -> CordonState:
    """Tell whose cordon a node bears.

    Args:
        unschedulable: The node's `spec.unschedulable`.
        annotations: The node's annotations.
        key: The annotation that records ownership; empty if none is kept, and
            then every cordon is foreign.
        owner: Who "we" are: the annotation's value.
    """
    if not unschedulable:
        return CordonState.OPEN
    return CordonState.OURS if key and annotations.get(key) == owner else CordonState.FOREIGN


def cordon_patch(key: str = "", owner: str = "") -> dict[str, object]:
    """Return the merge patch that cordons a node and says whose cordon it is.

    To be sent with the resourceVersion that the decision was made on: then nobody
    else can have cordoned the node in between.
    """
    body: dict[str, object] = {"spec": {"unschedulable": True}}
    if key:
        body["metadata"] = {"annotations": {key: owner}}
    return body


def uncordon_patch(key: str = "") -> dict[str, object]:
    """Return the merge patch that opens a node and forgets whose cordon it was."""
    body: dict[str, object] = {"spec": {"unschedulable": None}}
    if key:
        body["metadata"] = {"annotations": {key: None}}
    return body
