"""The node of a drain: found by uid, closed, opened. The only writer of nodes here."""

import threading
from typing import Final, TypeVar

from navarchos.client import Client, NotFound, ResourceClient
from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.drain import CordonState, cordon_patch, uncordon_patch
from navarchos.informers import SharedInformer
from navarchos.operator.api.v1alpha1 import NodeDrain
from navarchos.operator.drains.claims import CLAIMED_NODES, is_closed_by_others
from navarchos.operator.drains.cordoning import cordon_of, is_marked, owner_of
from navarchos.operator.names import CORDONED_BY_ANNOTATION, FIELD_MANAGER
from navarchos.operator.nodes import NODES, Node

__all__ = ["RBAC", "NodeGate"]

N = TypeVar("N", bound=Node)

_TIMEOUT: Final = 10.0

RBAC: Final = (PolicyRule(NODES, ("get", "patch")),)
"""What the gate asks of the server, besides the cache of nodes."""


class NodeGate:
    """Reads and patches nodes for drains.

    Every patch carries uid and resourceVersion of the node that the decision was
    made on: it fails with `Conflict` on a changed node, and on another node that
    bears the name by now.

    Threads: safe from any thread.
    """

    def __init__(self, client: Client, informer: SharedInformer[Node], *, clock: Clock) -> None:
        self._nodes = client.resource(NODES).with_defaults(field_manager=FIELD_MANAGER)
        self._claimed_nodes = client.resource(CLAIMED_NODES)
        self._informer = informer
        self._clock = clock
        self._closed_lock = threading.Lock()
        self._closed_at: dict[str, float] = {}  # guarded by _closed_lock; monotonic, by drain

    def target(self, drain: NodeDrain) -> Node | None:
        """Return the drain's node as last seen; `None` if it is gone for certain.

        A cache that does not know the node is not believed: it may be late.
        """
        node = self._informer.lister.find(drain.spec.node_name)
        if node is not None and _is_meant(node, drain):
            return node
        return self.live(drain)

    def live(self, drain: NodeDrain) -> Node | None:
        """Return the drain's node as the server has it now; `None` if it is gone.

        Another node under the same name counts as gone.
        """
        return _meant(self._nodes, drain)

    def cordon(self, node: Node, drain: NodeDrain) -> Node:
        """Close the node and say whose cordon it is, in one write.

        Raises:
            Conflict: The node has changed; decide again.
        """
        cordoned = self._patch(node, cordon_patch(CORDONED_BY_ANNOTATION, owner_of(drain)))
        with self._closed_lock:
            self._closed_at[drain.metadata.name] = self._clock.monotonic()
        return cordoned

    def closed_for(self, drain: NodeDrain) -> float | None:
        """Return the seconds since this process closed the drain's node, if it did."""
        with self._closed_lock:
            closed_at = self._closed_at.get(drain.metadata.name)
        return None if closed_at is None else self._clock.monotonic() - closed_at

    def forget(self, name: str) -> None:
        """Forget a drain that is over."""
        with self._closed_lock:
            self._closed_at.pop(name, None)

    def let_go(self, node: Node) -> Node:
        """Remove the annotation from a node that is no longer cordoned by us.

        Raises:
            Conflict: The node has changed; decide again.
        """
        forget: dict[str, object] = {"metadata": {"annotations": {CORDONED_BY_ANNOTATION: None}}}
        return self._patch(node, forget)

    def give_back(self, drain: NodeDrain) -> bool:
        """Undo this drain's cordon, if the node still bears it.

        Returns:
            Whether the node was opened; False if it is gone, another one, or its
            cordon somebody else's.

        Raises:
            Conflict: The node has changed; decide again.
        """
        node = _meant(self._claimed_nodes, drain)
        if node is None:
            return False
        if cordon_of(node, drain) is CordonState.OURS and not is_closed_by_others(node):
            self._patch(node, uncordon_patch(CORDONED_BY_ANNOTATION))
            return True
        if is_marked(node, drain):
            self.let_go(node)
        return False

    def _patch(self, node: Node, body: dict[str, object]) -> Node:
        meta = node.metadata
        patched = self._nodes.patch(
            meta.name,
            body,
            uid=meta.uid,
            resource_version=meta.resource_version,
            timeout=_TIMEOUT,
        )
        self._informer.observe_write(patched)
        return patched


def _meant(nodes: ResourceClient[N], drain: NodeDrain) -> N | None:
    try:
        node = nodes.get(drain.spec.node_name, timeout=_TIMEOUT)
    except NotFound:
        return None
    return node if _is_meant(node, drain) else None


def _is_meant(node: Node, drain: NodeDrain) -> bool:
    # An absent uid means whichever node bears the name now; it is filled in next.
    return drain.spec.node_uid in {"", node.metadata.uid}
