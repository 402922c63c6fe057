"""What rollouts would do and what would stop them, before anything is touched.

`predict` is pure: it uses the functions that decide, which are the plan of a rollout,
admission, and the classification of pods. What only a server knows, such as a webhook's
mind, `collect` asks it, and changes nothing.
"""

from navarchos.operator.preflight.collector import collect
from navarchos.operator.preflight.findings import FindingReason, PlanFinding, Severity
from navarchos.operator.preflight.prediction import (
    ClusterState,
    PodCounts,
    PredictedBudget,
    PredictedNode,
    PredictedRollout,
    dry_run_candidates,
    predict,
)

__all__ = [
    "ClusterState",
    "FindingReason",
    "PlanFinding",
    "PodCounts",
    "PredictedBudget",
    "PredictedNode",
    "PredictedRollout",
    "Severity",
    "collect",
    "dry_run_candidates",
    "predict",
]
