"""What to do about the cordon of a node under drain. Pure."""

from dataclasses import dataclass
from enum import Enum, auto

from navarchos.drain import CordonState, cordon_state
from navarchos.operator.api.v1alpha1 import NodeDrain, NodeDrainStatus
from navarchos.operator.drains.status import NODE_CORDONED, DrainReason
from navarchos.operator.names import CORDONED_BY_ANNOTATION
from navarchos.operator.nodes import Node
from navarchos.runtime.conditions import find_condition

__all__ = ["CordonStep", "Verdict", "cordon_of", "decide", "is_marked", "owner_of"]


class CordonStep(Enum):
    """What to do to the node."""

    NOTHING = auto()
    CORDON = auto()
    LET_GO = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, and what the condition `NodeCordoned` says afterwards.

    Attributes:
        step: What to do to the node.
        holds: Whether the node is closed afterwards; without that no eviction is
            sent, because pods would come back.
        reason: For the condition.
        message: For the condition.
    """

    step: CordonStep
    holds: bool
    reason: DrainReason
    message: str


_OURS = Verdict(
    CordonStep.NOTHING, True, DrainReason.CORDONED, "cordoned for this drain, undone with it"
)
_CORDON = Verdict(CordonStep.CORDON, True, _OURS.reason, _OURS.message)
_BEFORE = Verdict(
    CordonStep.NOTHING,
    True,
    DrainReason.CORDONED_BEFORE,
    "somebody else cordoned it, so it stays cordoned",
)
_AGAIN = Verdict(
    CordonStep.CORDON,
    True,
    DrainReason.CORDONED_AGAIN,
    "somebody uncordoned it during the drain; cordoned once more",
)
_STILL_AGAIN = Verdict(CordonStep.NOTHING, True, _AGAIN.reason, _AGAIN.message)
_YIELD = Verdict(
    CordonStep.NOTHING,
    False,
    DrainReason.UNCORDONED_BY_OTHERS,
    "somebody uncordoned it twice; nothing is evicted until somebody cordons it",
)


def owner_of(drain: NodeDrain) -> str:
    """Return what the annotation says when the cordon is this drain's: name and uid."""
    return f"{drain.metadata.name}/{drain.metadata.uid}"


def cordon_of(node: Node, drain: NodeDrain) -> CordonState:
    """Tell whose cordon the node bears."""
    return cordon_state(
        unschedulable=node.spec.unschedulable,
        annotations=node.metadata.annotations,
        key=CORDONED_BY_ANNOTATION,
        owner=owner_of(drain),
    )


def is_marked(node: Node, drain: NodeDrain) -> bool:
    """Tell whether the node's annotation names this drain, cordoned or not."""
    return node.metadata.annotations.get(CORDONED_BY_ANNOTATION) == owner_of(drain)


def decide(node: Node, drain: NodeDrain, status: NodeDrainStatus) -> Verdict:
    """Decide about the cordon.

    The condition tells how often the node has been cordoned. It is written after
    the node, so a crash in between costs at most one more cordon, and a cordon of
    ours is never taken for somebody else's: the annotation goes with it.

    Whoever uncordons a node during its drain is contradicted once, because an
    autoscaler may have meant the node it remembers; a second time it is a decision.
    """
    condition = find_condition(status.conditions, NODE_CORDONED)
    known = condition.reason if condition is not None else ""
    state = cordon_of(node, drain)
    if state is CordonState.OPEN:
        return _reopened(known, marked=is_marked(node, drain))
    if known in {DrainReason.CORDONED_AGAIN, DrainReason.UNCORDONED_BY_OTHERS}:
        return _STILL_AGAIN
    return _OURS if state is CordonState.OURS else _BEFORE


def _reopened(known: str, *, marked: bool) -> Verdict:
    if known in {"", DrainReason.CORDON_FAILED}:
        return _CORDON
    if known in {DrainReason.CORDONED, DrainReason.CORDONED_BEFORE}:
        return _AGAIN
    # The annotation must not outlive our cordon: a later one would be taken for it.
    step = CordonStep.LET_GO if marked else CordonStep.NOTHING
    return Verdict(step, _YIELD.holds, _YIELD.reason, _YIELD.message)
