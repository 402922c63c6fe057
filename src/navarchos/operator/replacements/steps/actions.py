"""What a step can decide. Values, so that decisions are tested without a server."""

from dataclasses import dataclass

from navarchos.operator.api.v1alpha1 import Step

__all__ = [
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
    "ReleaseSlot",
]


@dataclass(frozen=True, slots=True)
class NoAction:
    """Nothing is due; the next change of an object decides again."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Go on to another step."""

    to: Step


@dataclass(frozen=True, slots=True)
class CreateDrain:
    """Create the NodeDrain of this attempt."""


@dataclass(frozen=True, slots=True)
class Complete:
    """The node is empty: keep its cordon, label it, finish."""


@dataclass(frozen=True, slots=True)
class CompleteWithoutNode:
    """There is no such node any more: finish, and touch nothing (OP-20)."""


@dataclass(frozen=True, slots=True)
class FailAttempt:
    """This attempt has failed: reason for programs, message for people."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DeleteDrain:
    """Delete the NodeDrain, which undoes its cordon."""


@dataclass(frozen=True, slots=True)
class KeepCordon:
    """Tell the NodeDrain to leave the cordon when it is deleted."""


@dataclass(frozen=True, slots=True)
class ReleaseSlot:
    """What the failed attempt held has been given back."""


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
"""What a step can have to do. It is done before the status says so."""

Decision = Advance | Action
