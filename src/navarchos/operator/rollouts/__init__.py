"""Rollouts: which nodes are replaced, in which order, and when a rollout halts.

`plan` and `status` are pure. `reconciler` observes, lets `children` create and update the
replacements, and persists one status.
"""

from typing import Final

from navarchos.operator.rollouts import children, reconciler
from navarchos.operator.rollouts.controller import add_to_manager

__all__ = ["RBAC", "add_to_manager"]

RBAC: Final = (*children.RBAC, *reconciler.RBAC)
"""Permissions of rollouts, besides the caches that all controllers share."""
