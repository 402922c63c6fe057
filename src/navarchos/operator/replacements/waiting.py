"""Why a node has not started: the reasons of the `Waiting` condition."""

from enum import StrEnum
from typing import Final

__all__ = ["WaitReason"]


class WaitReason(StrEnum):
    """A reason to wait.

    The message says what would end the wait, and holds nothing that changes
    while the reason stays: an unchanged reason must cause no write.
    """

    QUEUED = "Queued"
    HIGHER_PRIORITY = "HigherPriority"
    MAX_CONCURRENT = "MaxConcurrent"
    TOPOLOGY = "Topology"
    CONTROL_PLANE = "ControlPlane"
    SETTLING = "Settling"
    PENDING_PODS = "PendingPods"
    NODE_IN_FLIGHT = "NodeInFlight"
    PAUSED = "Paused"
    ROLLOUT_PAUSED = "RolloutPaused"
    ROLLOUT_HALTED = "RolloutHalted"
    ROLLOUT_NOT_READY = "RolloutNotReady"
    INVALID_STRATEGY = "InvalidStrategy"

    @property
    def message(self) -> str:
        """The reason in words."""
        return _MESSAGES[self]

    @property
    def report_delay(self) -> float:
        """Seconds for which it is not written.

        A node whose reason ends by itself within them needs no write for it.
        """
        return _PATIENCE.get(self, 0.0)


_PATIENCE: Final = {
    WaitReason.QUEUED: 2.0,
    WaitReason.MAX_CONCURRENT: 2.0,
    # Its rollout says so too, and a large one takes its time.
    WaitReason.ROLLOUT_NOT_READY: 30.0,
}

_MESSAGES: Final = {
    WaitReason.QUEUED: "other nodes of this priority go first",
    WaitReason.HIGHER_PRIORITY: "a node of a higher priority is unfinished",
    WaitReason.MAX_CONCURRENT: "as many nodes are in flight as strategy.maxConcurrent allows",
    WaitReason.TOPOLOGY: "nodes in flight have another value of the label in strategy.topologyKey",
    WaitReason.CONTROL_PLANE: "another node of the control plane is not Ready, or is in flight; "
    "strategy.controlPlane: Ignore would not wait",
    WaitReason.SETTLING: "strategy.settleSeconds have not passed since the last node finished",
    WaitReason.PENDING_PODS: "pods are Pending that strategy.pendingPods says to wait for",
    WaitReason.NODE_IN_FLIGHT: "another replacement is working on this node",
    WaitReason.PAUSED: "spec.paused is set",
    WaitReason.ROLLOUT_PAUSED: "spec.paused of the rollout is set",
    WaitReason.ROLLOUT_HALTED: "the rollout is halted after too many failures; raise "
    "strategy.maxFailures or resume it",
    WaitReason.ROLLOUT_NOT_READY: "the rollout has not created all of its replacements yet",
    WaitReason.INVALID_STRATEGY: "strategy.maxConcurrent is neither a number nor a percentage",
}
