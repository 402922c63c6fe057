"""Waiting: not started; what admission does not decide."""

from navarchos.operator.api.v1alpha1 import NodeReplacement
from navarchos.operator.nodes import Node
from navarchos.operator.replacements.steps.actions import CompleteWithoutNode, Decision, NoAction

__all__ = ["decide", "may_be_gone"]


def may_be_gone(replacement: NodeReplacement, cached: Node | None) -> bool:
    """Tell whether the cache shows another node, or none: then the server is asked.

    Also true when a person created the replacement without a uid.
    """
    return cached is None or cached.metadata.uid != replacement.spec.node_uid


def decide(replacement: NodeReplacement, node: Node | None) -> Decision:
    """Decide on a node that was just read from the server.

    A node that is gone needs no slot and no turn: it is done at once (OP-20).
    """
    if node is None:
        return CompleteWithoutNode()
    uid = replacement.spec.node_uid
    return CompleteWithoutNode() if uid and node.metadata.uid != uid else NoAction()
