"""The taints' reconciler: adds the declared taints to nodes and removes them."""

from collections.abc import Sequence
from typing import Final

import msgspec

from navarchos.client.rbac import PolicyRule
from navarchos.logs import get_logger
from navarchos.operator.clients import NODE_INDEX, OperatorClients
from navarchos.operator.nodes import NODES
from navarchos.operator.taints.decide import TaintDeclaration, desired_taints
from navarchos.runtime import DONE, OUTDATED_READ, Reconciler, Request, Result

__all__ = ["RBAC", "TaintReconciler"]

RBAC: Final = (PolicyRule(NODES, ("patch",)),)
"""Permissions of the reconciler."""

_AFTER_CONFLICT: Final = 1.0
"""Seconds. If the cache is behind for longer, every attempt fails; and no taint is urgent."""

_log = get_logger(__name__)


class TaintReconciler(Reconciler):
    """Makes a node's taints follow its replacements. A request is the name of a node.

    Promises: a taint that no unfinished replacement wants is removed, also if an earlier
    manager set it, or if its replacement was deleted in the meantime. A taint that another
    client adds or removes at the same time is preserved.

    Threads: safe from any thread, for different nodes.
    """

    def __init__(self, clients: OperatorClients, declared: Sequence[TaintDeclaration]) -> None:
        self._clients = clients
        self._declared = declared

    def reconcile(self, request: Request) -> Result:
        """Write the node's taints if they differ from the desired ones."""
        node = self._clients.nodes.find(request.name)
        if node is None:
            return DONE
        replacements = self._clients.replacements.by_index(NODE_INDEX, request.name)
        taints = desired_taints(node, replacements, self._declared)
        if taints == node.spec.taints:
            return DONE
        # A merge patch replaces the whole list, so the patch requires the version that was read.
        body = {"spec": {"taints": msgspec.to_builtins(taints) or None}}
        try:
            self._clients.nodes.patch(node, body)
        except OUTDATED_READ as error:
            _log.debug("node_outdated", kind=NODES.kind, name=request.name, error=str(error))
            return Result(requeue_after=_AFTER_CONFLICT)
        return DONE
