"""Condition types, and the reasons of conditions, waits and events: all closed sets.

`docs/operations.md` has an entry for each member, which a test checks.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, assert_never

__all__ = [
    "ConditionType",
    "CordonReason",
    "EventReason",
    "PrepareReason",
    "Reason",
    "WaitReason",
]


class ConditionType(StrEnum):
    """The type of a condition in the status of a rollout, a replacement or a drain."""

    REPLACEMENTS_CREATED = "ReplacementsCreated"
    REPLACEMENTS_IN_PROGRESS = "ReplacementsInProgress"
    NODES_FOUND = "NodesFound"
    HALTED = "Halted"
    PAUSED = "Paused"
    CANCELLED = "Cancelled"
    STRATEGY_INVALID = "StrategyInvalid"
    APPROVAL_REFUSED = "ApprovalRefused"
    WAITING = "Waiting"
    PREPARED = "Prepared"
    NODE_CORDONED = "NodeCordoned"
    NODE_DRAINED = "NodeDrained"
    ACTION_COMPLETED = "ActionCompleted"
    NODE_VERIFIED = "NodeVerified"


class Reason(StrEnum):
    """The reason of a condition, a finished step or a failed attempt.

    The reasons of the condition `Waiting` while it is true are `WaitReason`.
    """

    # Of a rollout.
    CREATED = "CreatedNodeReplacements"
    CREATION_FAILED = "ErrorCreatingNodeReplacements"
    NO_NODES_MATCHED = "NoNodesMatched"
    NODES_NOT_FOUND = "NodesNotFound"
    IN_PROGRESS = "StillProgressing"
    COMPLETED = "ReplacementsCompleted"
    COMPLETED_WITH_FAILURES = "CompletedWithSkipped"
    ROLLOUT_CANCELLED = "RolloutCancelled"
    ROLLOUT_HALTED = "RolloutHalted"
    TOO_MANY_FAILURES = "TooManyFailures"
    INVALID_STRATEGY = "InvalidStrategy"
    STRATEGY_VALID = "StrategyValid"
    WRONG_APPROVAL = "WrongApproval"
    APPROVAL_ENDED = "ApprovalEnded"
    GATE_TIMEOUT = "GateTimeout"
    # Of a replacement.
    STARTED = "Started"
    DRAINED = "Drained"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    PENDING_PODS_TIMEOUT = "PendingPodsTimeout"
    DRAIN_DELETED = "DrainDeleted"
    DRAIN_FAILED = "DrainFailed"
    NAME_TAKEN = "NameTaken"
    WINDOW_CLOSED = "WindowClosed"
    RETURNED = "Returned"
    ACTION_WAITING = "ActionWaiting"
    ACTION_RUNNING = "ActionRunning"
    ACTION_COMPLETED = "ActionCompleted"
    ACTION_ENDING = "ActionEnding"
    VERIFYING = "Verifying"
    NODE_VERIFIED = "NodeVerified"
    NOT_READY_AGAIN = "NotReadyAgain"
    JOB_FAILED = "JobFailed"
    JOB_REFUSED = "JobRefused"
    JOB_DELETED = "JobDeleted"
    # Of a drain; its replacement takes them over.
    PAUSED = "Paused"
    RESUMED = "Resumed"
    DRAINING = "Draining"
    HOLDING = "TimeoutHold"
    NODE_DRAINED = "NodeDrained"
    NODE_GONE = "NodeGone"
    PODS_REFUSED = "PodsRefused"
    TIMEOUT = "Timeout"
    INVALID_SPEC = "InvalidSpec"
    PODS_CAME_LATE = "PodsCameLate"
    CORDONED_ONLY = "CordonedOnly"
    PREPARE_TIMEOUT = "PrepareTimeout"


class PrepareReason(StrEnum):
    """The reason of the condition `Prepared`."""

    WAITING_FOR_LOAD_BALANCERS = "WaitingForLoadBalancers"
    WAITING_FOR_TIMESTAMP = "WaitingForTimestamp"
    WAITING_FOR_HOOKS = "WaitingForHooks"
    MARK_REMOVED_BY_OTHERS = "MarkRemovedByOthers"
    PREPARED = "Prepared"
    SKIPPED = "PreparationSkipped"


class CordonReason(StrEnum):
    """The reason of the condition `NodeCordoned`."""

    CORDONED = "NodeCordoned"
    CORDONED_BEFORE = "CordonedBefore"
    CORDONED_AGAIN = "CordonedAgain"
    CORDON_FAILED = "ErrorCordoningNode"
    UNCORDONED_BY_OTHERS = "UncordonedByOthers"


class WaitReason(StrEnum):
    """Why a node has not started: the reasons of the condition `Waiting`."""

    QUEUED = "Queued"
    HIGHER_PRIORITY = "HigherPriority"
    MAX_CONCURRENT = "MaxConcurrent"
    TOPOLOGY = "Topology"
    CONTROL_PLANE = "ControlPlane"
    SETTLING = "Settling"
    PENDING_PODS = "PendingPods"
    NODE_IN_FLIGHT = "NodeInFlight"
    NODE_NEEDED = "NodeNeeded"
    GATE = "Gate"
    PAUSED = "Paused"
    ROLLOUT_PAUSED = "RolloutPaused"
    ROLLOUT_HALTED = "RolloutHalted"
    ROLLOUT_NOT_READY = "RolloutNotReady"
    INVALID_STRATEGY = "InvalidStrategy"
    ACTION_UNAVAILABLE = "ActionUnavailable"
    PREPARING = "Preparing"
    OUTSIDE_WINDOW = "OutsideWindow"
    DOES_NOT_FIT = "DoesNotFit"
    WAVE = "Wave"

    @property
    def message(self) -> str:
        """The reason in words, with what ends the wait.

        It contains nothing that changes while the reason stays: an unchanged reason must not
        cause a write.
        """
        return _MESSAGES[self]

    @property
    def is_for_window(self) -> bool:
        """Whether the nodes wait until a window opens."""
        return self in {WaitReason.OUTSIDE_WINDOW, WaitReason.DOES_NOT_FIT}

    @property
    def report_delay(self) -> float:
        """Seconds for which the reason is not written to the status.

        A node whose wait ends within this time needs no write.
        """
        match self:
            case (
                WaitReason.QUEUED
                | WaitReason.MAX_CONCURRENT
                | WaitReason.NODE_NEEDED
                | WaitReason.GATE
            ):
                return 2.0
            case WaitReason.ROLLOUT_NOT_READY:
                # The status of the rollout says so too, and a large rollout takes time.
                return 30.0
            case (
                WaitReason.HIGHER_PRIORITY
                | WaitReason.TOPOLOGY
                | WaitReason.CONTROL_PLANE
                | WaitReason.SETTLING
                | WaitReason.PENDING_PODS
                | WaitReason.NODE_IN_FLIGHT
                | WaitReason.PAUSED
                | WaitReason.ROLLOUT_PAUSED
                | WaitReason.ROLLOUT_HALTED
                | WaitReason.INVALID_STRATEGY
                | WaitReason.ACTION_UNAVAILABLE
                | WaitReason.PREPARING
                | WaitReason.OUTSIDE_WINDOW
                | WaitReason.DOES_NOT_FIT
                | WaitReason.WAVE
            ):
                return 0.0
            case _:
                assert_never(self)


_MESSAGES: Final[Mapping[WaitReason, str]] = {
    WaitReason.QUEUED: "other nodes of this priority start first",
    WaitReason.HIGHER_PRIORITY: "a node of a higher priority has not finished",
    WaitReason.MAX_CONCURRENT: "as many nodes are in flight as strategy.maxConcurrent allows",
    WaitReason.TOPOLOGY: "nodes in flight have another value of the label that "
    "strategy.topologyKey names",
    WaitReason.CONTROL_PLANE: "another control-plane node is not Ready or is in flight; with "
    "strategy.controlPlane: Ignore this node would not wait",
    WaitReason.SETTLING: "strategy.settleSeconds have not passed since the last node finished",
    WaitReason.PENDING_PODS: "pods that strategy.pendingPods selects are Pending",
    WaitReason.NODE_IN_FLIGHT: "another replacement is working on this node",
    WaitReason.NODE_NEEDED: "another system needs this node in service now",
    WaitReason.GATE: "a gate of the rollout is closed; status.gates of the rollout says why",
    WaitReason.PAUSED: "spec.paused is set",
    WaitReason.ROLLOUT_PAUSED: "spec.paused of the rollout is set",
    WaitReason.ROLLOUT_HALTED: "the rollout is halted after too many failures; raise "
    "strategy.maxFailures or resume the rollout",
    WaitReason.ROLLOUT_NOT_READY: "the rollout has not created all of its replacements yet",
    WaitReason.ACTION_UNAVAILABLE: "no running controller carries out the action",
    WaitReason.PREPARING: "the action prepares the node",
    WaitReason.INVALID_STRATEGY: "strategy.maxConcurrent is neither a number nor a percentage",
    WaitReason.OUTSIDE_WINDOW: "no window of strategy.windows is open, or a blackout has not ended",
    WaitReason.DOES_NOT_FIT: "the window closes before a node would have finished",
    WaitReason.WAVE: "the current wave of the rollout is not over",
}


class EventReason(StrEnum):
    """The reason of an event. Each event reports a transition, never a retry (OP-64)."""

    REPLACEMENTS_CREATED = "ReplacementsCreated"
    REPLACEMENT_STARTED = "ReplacementStarted"
    NODE_PREPARED = "NodePrepared"
    PREPARATION_SKIPPED = "PreparationSkipped"
    MARK_REMOVED_BY_OTHERS = "MarkRemovedByOthers"
    TIMESTAMP_UNREADABLE = "TimestampUnreadable"
    NODE_CORDONED = "NodeCordoned"
    NODE_UNCORDONED = "NodeUncordoned"
    POD_REPLACED_FIRST = "PodReplacedFirst"
    POD_EVICTED = "PodEvicted"
    EVICTION_BLOCKED = "EvictionBlocked"
    BUDGET_BYPASSED = "BudgetBypassed"
    DRAIN_FAILED = "DrainFailed"
    NODE_DRAINED = "NodeDrained"
    ACTION_STARTED = "ActionStarted"
    ACTION_COMPLETED = "ActionCompleted"
    NODE_VERIFIED = "NodeVerified"
    REPLACEMENT_COMPLETED = "ReplacementCompleted"
    REPLACEMENT_FAILED = "ReplacementFailed"
    REPLACEMENT_CANCELLED = "ReplacementCancelled"
    REPLACEMENT_REQUEUE = "ReplacementRequeue"
    ROLLOUT_COMPLETED = "RolloutCompleted"
    ROLLOUT_HALTED = "RolloutHalted"
    ROLLOUT_PAUSED = "RolloutPaused"
    GATE_CLOSED = "GateClosed"
    GATE_OPENED = "GateOpened"
    ROLLOUT_CANCELLED = "RolloutCancelled"
    WAVE_COMPLETED = "WaveCompleted"
    WAVE_AWAITS_APPROVAL = "WaveAwaitsApproval"
    WAVE_APPROVED = "WaveApproved"
    APPROVAL_REFUSED = "ApprovalRefused"
    NODES_NOT_FOUND = "NodesNotFound"
