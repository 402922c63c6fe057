"""Transforms that leave out parts of cached objects which the operator does not read again.

A finished replacement or drain exists as long as its rollout, and lists every pod that was on
its node. The operator does not read these lists again, so its caches leave them out: the
memory for a finished node does not depend on its number of pods. The API server keeps the
lists for its users.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from navarchos.client import Resource
from navarchos.informers import KindOptions
from navarchos.meta import controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.nodes import NODES, Node

__all__ = ["KINDS", "is_stripped", "strip_drain", "strip_node", "strip_replacement"]

S = TypeVar("S", bound=msgspec.Struct)

_OUR_ANNOTATIONS: Final = f"{api.GROUP}/"

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


def strip_node(node: Node) -> Node:
    """Return a node with the operator's annotations only; other tools write kilobytes of them."""
    annotations = node.metadata.annotations
    ours = {name: text for name, text in annotations.items() if name.startswith(_OUR_ANNOTATIONS)}
    conditions = tuple(map(_intern, node.status.conditions))
    return replace(
        node,
        metadata=replace(node.metadata, annotations=ours),
        status=replace(node.status, conditions=conditions),
    )


def _intern(part: S) -> S:
    """Return one object for all equal values: a workload has pods on many nodes."""
    return cast("S", _interned(part))


@lru_cache(maxsize=_MAX_INTERNED)
def _interned(part: msgspec.Struct) -> msgspec.Struct:
    return part


KINDS: Final[Mapping[Resource[Any], KindOptions[Any]]] = {
    api.NODE_DRAINS: KindOptions(transform=strip_drain),
    api.NODE_REPLACEMENTS: KindOptions(transform=strip_replacement),
    NODES: KindOptions(transform=strip_node),
}
"""How the operator's manager caches these kinds."""
