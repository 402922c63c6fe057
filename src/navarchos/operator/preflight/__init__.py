"""What rollouts would do and what would stop them, before anything is touched. Pure.

It foresees with the functions that decide: the plan of a rollout, admission, and the
classification of pods. What only a server knows, such as a webhook's mind, it does not.
"""

from navarchos.operator.preflight.findings import Finding, Reason, Severity
from navarchos.operator.preflight.foresee import (
    Facts,
    ForeseenBudget,
    ForeseenNode,
    ForeseenRollout,
    PodCounts,
    foresee,
)

__all__ = [
    "Facts",
    "Finding",
    "ForeseenBudget",
    "ForeseenNode",
    "ForeseenRollout",
    "PodCounts",
    "Reason",
    "Severity",
    "foresee",
]
