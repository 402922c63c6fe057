"""Replacements: each takes one node from waiting for a slot to being drained.

`admission` decides which nodes may start, and `steps` what a started node does next; both are
pure. `admission_loop` and `pipeline` observe, decide, act and persist, on one worker.
"""

from typing import Final

from navarchos.operator.replacements import admission_loop, budgets, pipeline, snapshot
from navarchos.operator.replacements.controller import add_to_manager

__all__ = ["RBAC", "add_to_manager"]

RBAC: Final = (*admission_loop.RBAC, *budgets.RBAC, *snapshot.RBAC, *pipeline.RBAC)
"""Permissions of replacements, besides the caches that all controllers share."""
