"""Replacements: one node on its way out, from waiting for its turn to being empty.

`admission` decides who may start, `steps` what is due for a node that has, both
without a server; `admitting` and `pipeline` carry it out on one worker.
"""

from typing import Final

from navarchos.operator.replacements import admission_loop, budgets, pipeline, snapshot
from navarchos.operator.replacements.controller import add_to_manager

__all__ = ["RBAC", "add_to_manager"]

RBAC: Final = (*admission_loop.RBAC, *budgets.RBAC, *snapshot.RBAC, *pipeline.RBAC)
"""What replacements ask of the server, besides the caches that all share."""
