"""What a step decides from, and what it can decide: values, so that tests need no server."""

from dataclasses import dataclass
from typing import Final

from navarchos.operator.api.v1alpha1 import NodeDrain, NodeReplacement, Step
from navarchos.operator.nodes import Node
from navarchos.operator.reasons import Reason

__all__ = [
    "DRAIN_DELETED",
    "Action",
    "Advance",
    "Complete",
    "CompleteWithoutNode",
    "CreateDrain",
    "Decision",
    "DeleteDrain",
    "FailAttempt",
    "KeepCordon",
    "NoAction",
    "RecordNodeUid",
    "ReleaseSlot",
    "StepObservation",
]


@dataclass(frozen=True, slots=True)
class StepObservation:
    """The objects that a step decides from."""

    replacement: NodeReplacement
    drain: NodeDrain | None = None
    """The NodeDrain of the current attempt; in `Releasing`, of the failed attempt."""
    node: Node | None = None
    """The node of this name, in the steps that decide from it: Waiting, and Reserved without a
    drain. `None` there means that the API server has no such node."""
    is_abandoned: bool = False
    """Whether the replacement's rollout is deleted, so that the replacement soon is too."""


@dataclass(frozen=True, slots=True)
class NoAction:
    """Do nothing; the next change of an object decides again."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Continue with another step."""

    to: Step


@dataclass(frozen=True, slots=True)
class RecordNodeUid:
    """Write the node's uid into the spec of a replacement that a user created without it."""

    uid: str


@dataclass(frozen=True, slots=True)
class CreateDrain:
    """Create the NodeDrain of this attempt."""


@dataclass(frozen=True, slots=True)
class Complete:
    """The node is drained: keep its cordon, label it, and finish."""


@dataclass(frozen=True, slots=True)
class CompleteWithoutNode:
    """The node does not exist any more: finish, and change no node (OP-20)."""


@dataclass(frozen=True, slots=True)
class FailAttempt:
    """This attempt has failed: a reason for programs, and a message for users."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DeleteDrain:
    """Delete the NodeDrain, which uncordons the node."""


@dataclass(frozen=True, slots=True)
class KeepCordon:
    """Configure the NodeDrain to leave the node cordoned when it is deleted, then release."""


@dataclass(frozen=True, slots=True)
class ReleaseSlot:
    """Release the slot: the failed attempt has left nothing else to undo."""


Action = (
    NoAction
    | CreateDrain
    | Complete
    | CompleteWithoutNode
    | FailAttempt
    | DeleteDrain
    | KeepCordon
    | ReleaseSlot
)
"""What a step can do. An action is carried out before the status records its result."""

Decision = Advance | RecordNodeUid | Action

DRAIN_DELETED: Final = FailAttempt(Reason.DRAIN_DELETED, "its NodeDrain was deleted")
