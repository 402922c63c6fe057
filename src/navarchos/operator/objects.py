"""The objects that rollouts and replacements are decided from."""

from dataclasses import dataclass
from typing import Final

from navarchos.informers.source import informer_rbac
from navarchos.meta import Object, controller_of
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
)
from navarchos.operator.nodes import NODES, Node
from navarchos.runtime import CachedClient, ClientProvider

__all__ = [
    "NODE_INDEX",
    "OWNER_INDEX",
    "RBAC",
    "Objects",
    "index_by_node",
    "index_by_owner",
    "make_objects",
]

OWNER_INDEX: Final = "owner"
"""The index by the uid of the controller."""

NODE_INDEX: Final = "node"
"""The index of replacements by the name of their node."""

RBAC: Final = informer_rbac(NODE_ROLLOUTS, NODE_REPLACEMENTS, NODE_DRAINS, NODES)
"""What these caches need of the server; who writes declares that where it does."""


def index_by_node(replacement: NodeReplacement) -> tuple[str, ...]:
    """Return the name of the replacement's node."""
    return (replacement.spec.node_name,)


def index_by_owner(obj: Object) -> tuple[str, ...]:
    """Return the uid of the object's controller, if it has one."""
    owner = controller_of(obj.metadata)
    return (owner.uid,) if owner is not None else ()


@dataclass(frozen=True)
class Objects:
    """The kinds of this operator, and nodes.

    Threads: safe from any thread.
    """

    rollouts: CachedClient[NodeRollout]
    replacements: CachedClient[NodeReplacement]
    drains: CachedClient[NodeDrain]
    nodes: CachedClient[Node]


def make_objects(clients: ClientProvider) -> Objects:
    """Return the operator's kinds over shared informers, indexed as it needs them.

    Once per process: an informer has each index once.
    """
    objects = Objects(
        rollouts=clients.cached_client(NODE_ROLLOUTS),
        replacements=clients.cached_client(NODE_REPLACEMENTS),
        drains=clients.cached_client(NODE_DRAINS),
        nodes=clients.cached_client(NODES),
    )
    objects.replacements.informer.add_indexers(
        {OWNER_INDEX: index_by_owner, NODE_INDEX: index_by_node}
    )
    objects.drains.informer.add_indexers({OWNER_INDEX: index_by_owner})
    return objects
