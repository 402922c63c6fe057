"""Why a node has not started: the reasons of the `Waiting` condition."""

from enum import StrEnum
from typing import Final

__all__ = ["Wait"]


class Wait(StrEnum):
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
    def patience(self) -> float:
        """Seconds for which it is not written.

        A node whose reason ends by itself within them needs no write for it.
        """
        return _PATIENCE.get(self, 0.0)


_PATIENCE: Final = {
    Wait.QUEUED: 2.0,
    Wait.MAX_CONCURRENT: 2.0,
    # Its rollout says so too, and a large one takes its time.
    Wait.ROLLOUT_NOT_READY: 30.0,
}

_MESSAGES: Final = {
    Wait.QUEUED: "other nodes of this priority go first",
    Wait.HIGHER_PRIORITY: "a node of a higher priority is unfinished",
    Wait.MAX_CONCURRENT: "as many nodes are in flight as strategy.maxConcurrent allows",
    Wait.TOPOLOGY: "nodes in flight have another value of the label in strategy.topologyKey",
    Wait.CONTROL_PLANE: "another node of the control plane is not Ready, or is in flight; "
    "strategy.controlPlane: Ignore would not wait",
    Wait.SETTLING: "a node has just been finished, and its strategy.settleSeconds have not passed",
    Wait.PENDING_PODS: "pods are Pending that strategy.pendingPods says to wait for",
    Wait.NODE_IN_FLIGHT: "another replacement is working on this node",
    Wait.PAUSED: "spec.paused is set",
    Wait.ROLLOUT_PAUSED: "spec.paused of the rollout is set",
    Wait.ROLLOUT_HALTED: "the rollout is halted after too many failures; raise "
    "strategy.maxFailures or resume it",
    Wait.ROLLOUT_NOT_READY: "the rollout has not created all of its replacements yet",
    Wait.INVALID_STRATEGY: "strategy.maxConcurrent is neither a number nor a percentage",
}
