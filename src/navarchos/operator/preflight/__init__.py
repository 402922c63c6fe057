"""What rollouts would do and what would stop them, before anything is touched.

`foresee` is pure: it uses the functions that decide, which are the plan of a rollout,
admission, and the classification of pods. What only a server knows, such as a webhook's
mind, `gather` asks it, and changes nothing.
"""

from navarchos.operator.preflight.foresee import (
    Facts,
    ForeseenBudget,
    ForeseenNode,
    ForeseenRollout,
    PodCounts,
    foresee,
    to_rehearse,
)
from navarchos.operator.preflight.gathering import gather
from navarchos.operator.preflight.wording import Finding, Reason, Severity

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
    "gather",
    "to_rehearse",
]
