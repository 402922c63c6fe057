"""Puts the taint on a node, and takes it off."""

from typing import Final

import msgspec

from navarchos.client.rbac import PolicyRule
from navarchos.logs import get_logger
from navarchos.operator.nodes import NODES
from navarchos.operator.objects import NODE_INDEX, Objects
from navarchos.operator.taints.decide import desired_taints, is_wanted
from navarchos.runtime import DONE, OUTDATED_READ, Reconciler, Request, Result

__all__ = ["RBAC", "TaintReconciler"]

RBAC: Final = (PolicyRule(NODES, ("patch",)),)
"""What it asks of the server."""

_AFTER_CONFLICT: Final = 1.0
"""Seconds. A cache that is behind by longer makes every try in vain, and no taint is urgent."""

_log = get_logger(__name__)


class TaintReconciler(Reconciler):
    """Lets a node's taints follow its replacements. A request is the name of a node.

    Promises: a taint that no unfinished replacement wants is taken off, also one that a
    manager left which died, or whose replacement was deleted meanwhile; what others put
    among a node's taints, or take from them, at the same moment is kept.

    Threads: safe from any thread, for different nodes.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def reconcile(self, request: Request) -> Result:
        """Write the node's taints if they are not as they should be."""
        node = self._objects.nodes.find(request.name)
        if node is None:
            return DONE
        replacements = self._objects.replacements.by_index(NODE_INDEX, request.name)
        taints = desired_taints(node.spec.taints, wanted=is_wanted(node, replacements))
        if taints == node.spec.taints:
            return DONE
        # The list has no keys to merge by: it is written as a whole, at the version read.
        body = {"spec": {"taints": msgspec.to_builtins(taints) or None}}
        try:
            self._objects.nodes.patch(node, body)
        except OUTDATED_READ as error:
            _log.debug("node_overtaken", name=request.name, error=str(error))
            return Result(requeue_after=_AFTER_CONFLICT)
        return DONE
