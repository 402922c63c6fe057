"""The soft taint on nodes that will be replaced.

It makes the scheduler prefer other nodes for evicted pods, so that a pod is not moved to a node
that is drained next. The pipeline does not depend on it: no node waits for a taint.
"""

from typing import Final

from navarchos.operator.taints import reconciler
from navarchos.operator.taints.controller import add_to_manager

__all__ = ["RBAC", "add_to_manager"]

RBAC: Final = reconciler.RBAC
"""Permissions of the taints, besides the caches that all controllers share."""
