"""What a step decides from, and what it can decide: values, so that tests need no server."""

from dataclasses import dataclass
from typing import Final, TypeVar, assert_never

from navarchos.operator.actions import ActionRunning
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.nodes import Node
from navarchos.operator.reasons import Reason
from navarchos.operator.replacements.verification import Verification

__all__ = [
    "DRAIN_DELETED",
    "Action",
    "Advance",
    "AwaitVerification",
    "Complete",
    "CompleteReturned",
    "CompleteWithoutNode",
    "ContinueAction",
    "CreateDrain",
    "Decision",
    "DeleteDrain",
    "Ending",
    "FailAttempt",
    "GiveBack",
    "KeepCordon",
    "NoAction",
    "RecordBootId",
    "RecordNodeUid",
    "ReleaseSlot",
    "ReportAction",
    "StepObservation",
    "after",
    "cordon_is_undone",
    "has_drain",
    "steps_of",
    "through_gates",
]


@dataclass(frozen=True, slots=True)
class StepObservation:
    """The objects that a step decides from."""

    replacement: api.NodeReplacement
    drain: api.NodeDrain | None = None
    """The NodeDrain of the current attempt; in `Releasing`, of the failed attempt."""
    node: Node | None = None
    """The node of this name, in the steps that decide from it: Waiting, Reserved without a
    drain, and the steps of an action. `None` there means that the API server has no such
    node."""
    verification: Verification | None = None
    """What the node still lacks, in Verifying; `None` if it was not read."""
    is_abandoned: bool = False
    """Whether the replacement's rollout is deleted, so that the replacement soon is too."""
    is_window_closed: bool = False
    """Whether a node that is not empty yet must be given back."""


@dataclass(frozen=True, slots=True)
class NoAction:
    """Do nothing; the next change of an object decides again."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Continue with another step."""

    to: api.Step


@dataclass(frozen=True, slots=True)
class RecordNodeUid:
    """Write the node's uid into the spec of a replacement that a user created without it."""

    uid: str


@dataclass(frozen=True, slots=True)
class RecordBootId:
    """Record the boot id of the node before its action begins."""

    boot_id: str


@dataclass(frozen=True, slots=True)
class AwaitVerification:
    """The node is not well yet: record what is missing, and look again when time changes it."""

    found: Verification


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
class CompleteReturned:
    """The node is in service: finish without its label."""


@dataclass(frozen=True, slots=True)
class ContinueAction:
    """Call the action; its result decides what follows."""


@dataclass(frozen=True, slots=True)
class ReportAction:
    """The action has not ended: record what it waits for."""

    outcome: ActionRunning


@dataclass(frozen=True, slots=True)
class FailAttempt:
    """This attempt has failed: a reason for programs, and a message for users."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The window has closed: release the node. No attempt has failed."""


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
    | CompleteReturned
    | CompleteWithoutNode
    | ContinueAction
    | ReportAction
    | RecordBootId
    | AwaitVerification
    | FailAttempt
    | GiveBack
    | DeleteDrain
    | KeepCordon
    | ReleaseSlot
)
"""What a step can do. An action is carried out before the status records its result."""

Decision = Advance | RecordNodeUid | Action

D = TypeVar("D", bound=Decision)

Ending = Complete | CompleteReturned
"""How a node is done."""

DRAIN_DELETED: Final = FailAttempt(Reason.DRAIN_DELETED, "its NodeDrain was deleted")


def through_gates(step: api.Step, decision: D) -> D | Advance:
    """Return the decision of a step for a node that counts as done only behind gates.

    Such a node is in Verifying before it returns or ends, whatever its action is.
    """
    is_end = isinstance(decision, Complete | CompleteReturned)
    if not is_end and decision != Advance(api.Step.RETURNING):
        return decision
    behind = {api.Step.VERIFYING, api.Step.RETURNING}
    return decision if step in behind else Advance(api.Step.VERIFYING)


def has_drain(spec: api.NodeReplacementSpec) -> bool:
    """Return whether the node has a NodeDrain: it is drained, or cordoned at least."""
    return spec.action is None or spec.action.node is not api.NodeState.IN_SERVICE


def cordon_is_undone(observed: StepObservation) -> bool:
    """Return whether the node should be cordoned by its drain, and the drain was deleted."""
    if not has_drain(observed.replacement.spec):
        return False
    return observed.drain is None or observed.drain.metadata.deletion_timestamp is not None


def steps_of(spec: api.NodeReplacementSpec) -> tuple[api.Step, ...]:
    """Return the steps of a node from its start to its end, in order.

    Steps that have nothing to do are left out. A drain that only cordons ends in Draining too.
    """
    return tuple(step for step in api.Step if _has_work(step, spec))


def _has_work(step: api.Step, spec: api.NodeReplacementSpec) -> bool:
    """Return whether a step is on the way of a node from its start to its end."""
    action = spec.action
    kind = action.kind if action is not None else None
    match step:
        case api.Step.RESERVED:
            is_wanted = True
        case api.Step.PREPARING:
            is_wanted = has_drain(spec) and spec.drain.prepare is not None
        case api.Step.CORDONED | api.Step.DRAINING:
            is_wanted = has_drain(spec)
        case api.Step.ACTING:
            is_wanted = kind is not None and not kind.ends_machine
        case api.Step.TERMINATING:
            is_wanted = kind is not None and kind.ends_machine
        case api.Step.AWAITING_REPLACEMENT:
            is_wanted = kind is api.ActionKind.REPLACE
        case api.Step.VERIFYING:
            is_wanted = action is not None and action.verification is not None
        case api.Step.RETURNING:
            is_wanted = action is not None and action.returns
        case (
            api.Step.WAITING
            | api.Step.RELEASING
            | api.Step.DONE
            | api.Step.FAILED
            | api.Step.CANCELLED
        ):
            is_wanted = False
        case _:
            assert_never(step)
    return is_wanted


def after(spec: api.NodeReplacementSpec, step: api.Step) -> Advance | Ending:
    """Return what follows a step that has done its work."""
    order = list(api.Step)
    later = [each for each in steps_of(spec) if order.index(each) > order.index(step)]
    if later:
        return Advance(later[0])
    action = spec.action
    if action is not None and action.node is api.NodeState.IN_SERVICE:
        return CompleteReturned()
    return Complete()
