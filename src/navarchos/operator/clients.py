"""The operator's cached clients, and the indexes of their caches."""

from dataclasses import dataclass
from typing import Final

from navarchos.informers.source import informer_rbac
from navarchos.meta import Object, controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.nodes import NODES, Node
from navarchos.runtime import CachedClient, ClientProvider

__all__ = [
    "NODE_INDEX",
    "OWNER_INDEX",
    "RBAC",
    "OperatorClients",
    "operator_clients",
]

OWNER_INDEX: Final = "owner"
"""The index of replacements and drains by the uid of their controller."""

NODE_INDEX: Final = "node"
"""The index of replacements by the name of their node, and of the node in its place."""

RBAC: Final = informer_rbac(api.NODE_ROLLOUTS, api.NODE_REPLACEMENTS, api.NODE_DRAINS, NODES)
"""Permissions of these caches. The module that writes a kind declares its write permissions."""


@dataclass(frozen=True)
class OperatorClients:
    """The cached clients of the operator's kinds and of nodes.

    Threads: safe from any thread.
    """

    rollouts: CachedClient[api.NodeRollout]
    replacements: CachedClient[api.NodeReplacement]
    drains: CachedClient[api.NodeDrain]
    nodes: CachedClient[Node]


def operator_clients(provider: ClientProvider) -> OperatorClients:
    """Return the operator's clients, and add its indexes to their shared informers.

    Call it once per process: an informer accepts each index once.
    """
    clients = OperatorClients(
        rollouts=provider.cached_client(api.NODE_ROLLOUTS),
        replacements=provider.cached_client(api.NODE_REPLACEMENTS),
        drains=provider.cached_client(api.NODE_DRAINS),
        nodes=provider.cached_client(NODES),
    )
    clients.replacements.informer.add_indexers(
        {OWNER_INDEX: _index_by_owner, NODE_INDEX: _index_by_node}
    )
    clients.drains.informer.add_indexers({OWNER_INDEX: _index_by_owner})
    return clients


def _index_by_node(replacement: api.NodeReplacement) -> tuple[str, ...]:
    heir = replacement.status.heir
    own = replacement.spec.node_name
    return (own,) if heir is None or heir.node_name == own else (own, heir.node_name)


def _index_by_owner(obj: Object) -> tuple[str, ...]:
    owner = controller_of(obj.metadata)
    return (owner.uid,) if owner is not None else ()
