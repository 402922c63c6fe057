"""The reasons of every event that the operator writes (OP-64)."""

from enum import StrEnum

__all__ = ["EventReason"]


class EventReason(StrEnum):
    """Why an event was written. Each stands for a transition, never for a retry."""

    REPLACEMENTS_CREATED = "ReplacementsCreated"
    REPLACEMENT_STARTED = "ReplacementStarted"
    NODE_CORDONED = "NodeCordoned"
    NODE_UNCORDONED = "NodeUncordoned"
    POD_EVICTED = "PodEvicted"
    EVICTION_BLOCKED = "EvictionBlocked"
    BUDGET_BYPASSED = "BudgetBypassed"
    NODE_DRAINED = "NodeDrained"
    REPLACEMENT_COMPLETED = "ReplacementCompleted"
    REPLACEMENT_FAILED = "ReplacementFailed"
    REPLACEMENT_REQUEUE = "ReplacementRequeue"
    ROLLOUT_COMPLETED = "RolloutCompleted"
    ROLLOUT_HALTED = "RolloutHalted"
    ROLLOUT_PAUSED = "RolloutPaused"
    NODES_NOT_FOUND = "NodesNotFound"
