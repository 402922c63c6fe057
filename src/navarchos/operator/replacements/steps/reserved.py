"""Reserved: the slot is taken; check the node, then create its drain."""

from navarchos.operator.api.v1alpha1 import NodeDrain, NodeReplacement, Step
from navarchos.operator.nodes import Node
from navarchos.operator.replacements.attempt_drain import is_cordoned
from navarchos.operator.replacements.steps.actions import (
    Advance,
    CompleteWithoutNode,
    CreateDrain,
    Decision,
    FailAttempt,
    NoAction,
)

__all__ = ["decide", "follow"]


def decide(replacement: NodeReplacement, node: Node | None) -> Decision:
    """Decide while there is no drain yet.

    Args:
        replacement: In step Reserved.
        node: The node of that name, just read from the server.
    """
    if node is None or node.metadata.uid != replacement.spec.node_uid:
        return CompleteWithoutNode()
    return NoAction() if replacement.spec.paused else CreateDrain()


def follow(drain: NodeDrain) -> Decision:
    """Decide from the drain, once it exists."""
    if drain.metadata.deletion_timestamp is not None:
        return FailAttempt("DrainDeleted", "its NodeDrain was deleted")
    if drain.status.is_final:
        return Advance(Step.DRAINING)
    return Advance(Step.CORDONED) if is_cordoned(drain) else NoAction()
