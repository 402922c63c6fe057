"""The soft taint on nodes that are going to be replaced.

Pods that a drain evicts are so moved to nodes that stay, where there is room, instead of
to one that is drained next. Beside the pipeline, and never in its way: no node waits for
a taint, and none is drained because of one.
"""

from typing import Final

from navarchos.operator.taints import reconciler
from navarchos.operator.taints.controller import add_to_manager

__all__ = ["RBAC", "add_to_manager"]

RBAC: Final = reconciler.RBAC
"""What the taints ask of the server, besides the caches that all share."""
