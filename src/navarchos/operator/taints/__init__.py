"""The taints on nodes that follow their replacements.

The soft taint on nodes that will be replaced makes the scheduler prefer other nodes for evicted
pods, so that a pod is not moved to a node that is drained next. A controller adds a taint of its
own by a `TaintDeclaration`. The pipeline does not depend on taints: no node waits for one.
"""

from typing import Final

from navarchos.operator.taints import reconciler
from navarchos.operator.taints.controller import add_to_manager
from navarchos.operator.taints.decide import TO_BE_REPLACED, TaintDeclaration

__all__ = ["RBAC", "TO_BE_REPLACED", "TaintDeclaration", "add_to_manager"]

RBAC: Final = reconciler.RBAC
"""Permissions of the taints, besides the caches that all controllers share."""
