"""Rollouts: which nodes, in which order, how far, and when to stop.

`plan`, `children`, `status` and `estimate` are pure; `creating` and `reconciler`
carry out what they decide.
"""

from navarchos.operator.rollouts.controller import add_to_manager

__all__ = ["add_to_manager"]
