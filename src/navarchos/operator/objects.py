"""The objects that rollouts and replacements are decided from."""

from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from navarchos.client import Resource
from navarchos.errors import NavarchosError
from navarchos.informers.source import informer_rbac
from navarchos.meta import Object
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
)
from navarchos.operator.kinds import OWNER_INDEX, Kind, index_by_owner
from navarchos.operator.nodes import NODES, Node
from navarchos.runtime import CachedClient

__all__ = [
    "NODE_INDEX",
    "RIGHTS",
    "CachesBehind",
    "Clients",
    "Objects",
    "index_by_node",
    "make_objects",
]

T = TypeVar("T", bound=Object)

NODE_INDEX: Final = "node"
"""The index of replacements by the name of their node."""

RIGHTS: Final = informer_rbac(NODE_ROLLOUTS, NODE_REPLACEMENTS, NODE_DRAINS, NODES)
"""What these caches need of the server; who writes declares that where it does."""


def index_by_node(replacement: NodeReplacement) -> tuple[str, ...]:
    """Return the name of the replacement's node."""
    return (replacement.spec.node_name,)


class CachesBehind(NavarchosError):
    """A cache could not be brought up to the server's present state in time.

    Attributes:
        resource: The kind whose cache is behind.
    """

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def __str__(self) -> str:
        return f"the cache of {self.resource} is behind the server; trying again"


@dataclass(frozen=True)
class Objects:
    """The kinds of this operator, and nodes.

    Threads: safe from any thread.
    """

    rollouts: Kind[NodeRollout]
    replacements: Kind[NodeReplacement]
    drains: Kind[NodeDrain]
    nodes: Kind[Node]


class Clients(Protocol):
    """Whoever has cached clients: a manager."""

    def writer(self, resource: Resource[T]) -> CachedClient[T]:
        """Return the cached client of a kind."""
        ...


def make_objects(clients: Clients) -> Objects:
    """Return the operator's kinds over shared informers, indexed as it needs them.

    Once per process: an informer has each index once.
    """
    objects = Objects(
        rollouts=Kind(clients.writer(NODE_ROLLOUTS)),
        replacements=Kind(clients.writer(NODE_REPLACEMENTS)),
        drains=Kind(clients.writer(NODE_DRAINS)),
        nodes=Kind(clients.writer(NODES)),
    )
    objects.replacements.informer.add_indexers(
        {OWNER_INDEX: index_by_owner, NODE_INDEX: index_by_node}
    )
    objects.drains.informer.add_indexers({OWNER_INDEX: index_by_owner})
    return objects
