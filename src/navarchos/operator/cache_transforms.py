"""Transforms that leave out parts of cached objects which the operator does not read again.

A finished replacement or drain exists as long as its rollout, and lists every pod that was on
its node. The operator does not read these lists again, so its caches leave them out: the
memory for a finished node does not depend on its number of pods. The API server keeps the
lists for its users. A cached node has only the annotations that a part of the operator has
declared.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from navarchos.client import Resource
from navarchos.informers import KindOptions
from navarchos.meta import controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.names import MARKS_ANNOTATION
from navarchos.operator.nodes import NODES, Node, NodeCondition

__all__ = [
    "KINDS",
    "is_stripped",
    "kinds",
    "node_transform",
    "strip_drain",
    "strip_replacement",
]

S = TypeVar("S", bound=msgspec.Struct)

_OUR_ANNOTATIONS: Final = f"{api.GROUP}/*"

_MAX_TEXT: Final = 64
"""The longest text of a marked node that is kept whole. A time is shorter."""

_MAX_INTERNED: Final = 65_536
"""The largest number of interned values."""


def is_stripped(drain: api.NodeDrain) -> bool:
    """Return whether the cache keeps a drain without its pods.

    It does once the drain has ended and its replacement has stored the drain's report. After a
    crash between these two writes the report may be needed again: then read the drain from the
    API server.
    """
    if not drain.status.is_final:
        return False
    return drain.is_reported or controller_of(drain.metadata) is None


def strip_drain(drain: api.NodeDrain) -> api.NodeDrain:
    """Return a drain without its pods and their owners if it `is_stripped`."""
    if not is_stripped(drain):
        return drain
    status = replace(
        drain.status,
        blockers=(),
        node_pods=(),
        evicted_pods=(),
        ignored_pods=(),
        failed_pods=(),
        evicted_owners=(),
    )
    return replace(drain, status=status)


def strip_replacement(replacement: api.NodeReplacement) -> api.NodeReplacement:
    """Return a finished replacement without its pods; any other replacement unchanged.

    When `navarchos resume` restarts a failed replacement, the next change brings back the
    whole object. No write in between touches the lists, so the server keeps them. The owners
    of its pods stay, because admission waits for the pods that replace the evicted ones.
    """
    if not replacement.status.current.is_finished:
        return replacement
    status = replace(
        replacement.status,
        node_pods=(),
        evicted_pods=(),
        ignored_pods=(),
        failed_pods=(),
        evicted_owners=tuple(map(_intern, replacement.status.evicted_owners)),
    )
    metadata = replacement.metadata
    owners = tuple(map(_intern, metadata.owner_references))
    return replace(replacement, metadata=replace(metadata, owner_references=owners), status=status)


def node_transform(annotations: Iterable[str] = ()) -> Callable[[Node], Node]:
    """Return the transform of nodes: it keeps the declared annotations and the operator's own.

    Other tools write kilobytes of annotations on each node.

    Args:
        annotations: Keys to keep. A key that ends in `*` stands for all keys that begin with the
            text before it.
    """
    declared = (_OUR_ANNOTATIONS, *annotations)
    exact = frozenset(key for key in declared if not key.endswith("*"))
    prefixes = tuple(key.removesuffix("*") for key in declared if key.endswith("*"))

    def strip_node(node: Node) -> Node:
        found = node.metadata.annotations
        kept = {key: found[key] for key in found if key in exact or key.startswith(prefixes)}
        if MARKS_ANNOTATION in found:
            kept = {**_of_marked_node(found), **kept}
        info = node.status.node_info
        status = replace(
            node.status,
            conditions=tuple(map(_strip_condition, node.status.conditions)),
            # All nodes of a group have the same version.
            node_info=replace(info, kubelet_version=sys.intern(info.kubelet_version)),
        )
        return replace(node, metadata=replace(node.metadata, annotations=kept), status=status)

    return strip_node


def _of_marked_node(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of a marked node: its marks whole, and all others at most in part.

    Users choose the keys of marks, and of the times of detachers, in the spec of a rollout. A text
    that is too long for a time is kept in part, because a drain reports that it is not a time.
    """
    record = annotations[MARKS_ANNOTATION]
    return {
        key: value
        if len(value) <= _MAX_TEXT or f'"annotation:{key}"' in record
        else f"{value[:_MAX_TEXT]}..."
        for key, value in annotations.items()
    }


def _strip_condition(condition: NodeCondition) -> NodeCondition:
    """Return a condition without its time, shared by all nodes; `Ready` keeps its time."""
    if condition.type == "Ready":
        return condition
    return _intern(replace(condition, last_transition_time=None))


def _intern(part: S) -> S:
    """Return one object for all equal values: a workload has pods on many nodes."""
    return cast("S", _interned(part))


@lru_cache(maxsize=_MAX_INTERNED)
def _interned(part: msgspec.Struct) -> msgspec.Struct:
    return part


def kinds(*, node_annotations: Iterable[str] = ()) -> Mapping[Resource[Any], KindOptions[Any]]:
    """Return how the operator's manager caches its kinds.

    Args:
        node_annotations: Annotations of nodes that the caches keep, as for `node_transform`. A
            controller declares the annotations that it reads.
    """
    return {
        api.NODE_DRAINS: KindOptions(transform=strip_drain),
        api.NODE_REPLACEMENTS: KindOptions(transform=strip_replacement),
        NODES: KindOptions(transform=node_transform(node_annotations)),
    }


KINDS: Final[Mapping[Resource[Any], KindOptions[Any]]] = kinds()
"""How a manager that runs rollouts only caches these kinds."""
