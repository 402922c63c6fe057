"""What a step can decide. Values, so that decisions are tested without a server."""

from dataclasses import dataclass

from navarchos.operator.api.v1alpha1 import Step

__all__ = [
    "Action",
    "Advance",
    "CreateDrain",
    "DeleteDrain",
    "Drained",
    "FailAttempt",
    "KeepCordon",
    "Move",
    "NodeIsGone",
    "Released",
    "Stay",
]


@dataclass(frozen=True, slots=True)
class Stay:
    """Nothing is due; the next change of an object decides again."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Go on to another step."""

    to: Step


@dataclass(frozen=True, slots=True)
class CreateDrain:
    """Create the NodeDrain of this attempt."""


@dataclass(frozen=True, slots=True)
class Drained:
    """The node is empty: keep its cordon, label it, finish."""


@dataclass(frozen=True, slots=True)
class NodeIsGone:
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
class Released:
    """What the failed attempt held has been given back."""


Action = (
    Stay | CreateDrain | Drained | NodeIsGone | FailAttempt | DeleteDrain | KeepCordon | Released
)
"""What a step can have to do. It is done before the status says so."""

Move = Advance | Action
