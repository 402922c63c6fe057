"""Predict what rollouts will do, and what will block them, before they change anything.

`collect` reads the cluster, and evicts pods in a dry run if webhooks decide about
evictions. `predict` is pure. It uses the functions with which the operator decides: the
plan of a rollout, admission, and the classification of pods.
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
    with_findings,
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
    "with_findings",
]
