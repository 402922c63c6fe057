"""What the operator's caches keep of objects that are finished, or that others write to.

A finished replacement or drain stays for as long as its rollout does, and has the name
of every pod that was on its node. Nobody here reads those names again, so the caches do
without them: what a finished node costs does not depend on how many pods it had. The
server keeps them, for people.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from navarchos.client import Resource
from navarchos.informers import KindOptions
from navarchos.meta import controller_of
from navarchos.operator.api.v1alpha1 import (
    GROUP,
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NodeDrain,
    NodeReplacement,
)
from navarchos.operator.drains.aftercare import is_handed_over
from navarchos.operator.nodes import NODES, Node

__all__ = ["KINDS", "is_stripped", "strip_drain", "strip_node", "strip_replacement"]

S = TypeVar("S", bound=msgspec.Struct)

_OUR_ANNOTATIONS: Final = f"{GROUP}/"

_SHARED: Final = 65_536
"""Parts of objects that are kept once, however many objects have them."""


def is_stripped(drain: NodeDrain) -> bool:
    """Tell whether a drain has ended, and its replacement has taken over its report.

    Who finds the mark of the latter and needs the report all the same, after a crash in
    between, asks the server.
    """
    if not drain.status.is_final:
        return False
    return is_handed_over(drain) or controller_of(drain.metadata) is None


def strip_drain(drain: NodeDrain) -> NodeDrain:
    """Return a settled drain without its pods and their owners; others as they are."""
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


def strip_replacement(replacement: NodeReplacement) -> NodeReplacement:
    """Return a finished replacement without its pods; others as they are.

    A failed one that a person resumes comes back whole with its next change: nothing
    that is written in between touches the lists, so what is absent here stays there.
    The owners of its pods stay, because admission waits for what replaces those pods.
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
    """Return a node with our annotations only: others write kilobytes of theirs."""
    annotations = node.metadata.annotations
    ours = {name: text for name, text in annotations.items() if name.startswith(_OUR_ANNOTATIONS)}
    conditions = tuple(map(_intern, node.status.conditions))
    return replace(
        node,
        metadata=replace(node.metadata, annotations=ours),
        status=replace(node.status, conditions=conditions),
    )


def _intern(part: S) -> S:
    """Return one object for all equal ones: a workload has pods on many nodes."""
    return cast("S", _shared(part))


@lru_cache(maxsize=_SHARED)
def _shared(part: msgspec.Struct) -> msgspec.Struct:
    return part


KINDS: Final[Mapping[Resource[Any], KindOptions[Any]]] = {
    NODE_DRAINS: KindOptions(transform=strip_drain),
    NODE_REPLACEMENTS: KindOptions(transform=strip_replacement),
    NODES: KindOptions(transform=strip_node),
}
"""How the operator's manager caches these kinds."""
