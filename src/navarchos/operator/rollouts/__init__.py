"""Rollouts: which nodes, in which order, how far, and when to stop.

`plan`, `children`, `status` and `estimate` are pure; `creating` and `reconciler`
carry out what they decide.
"""

from typing import Final

from navarchos.operator.rollouts import children, reconciler
from navarchos.operator.rollouts.controller import add_to_manager

__all__ = ["RBAC", "add_to_manager"]

RBAC: Final = (*children.RBAC, *reconciler.RBAC)
"""What rollouts ask of the server, besides the caches that all share."""
