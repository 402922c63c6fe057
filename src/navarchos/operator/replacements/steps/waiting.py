"""Waiting: the node has not started. Admission decides when; this step checks the node."""

from navarchos.operator.replacements.steps.decision import (
    CompleteWithoutNode,
    Decision,
    NoAction,
    Observation,
    RecordNodeUid,
)

__all__ = ["decide"]


def decide(observed: Observation) -> Decision:
    """Finish if the node is gone; fill in its uid if the spec has none.

    A node that is gone needs no slot, and its replacement finishes before its turn (OP-20).
    """
    node, uid = observed.node, observed.replacement.spec.node_uid
    if node is None:
        return CompleteWithoutNode()
    if not uid:
        return RecordNodeUid(node.metadata.uid)
    return NoAction() if node.metadata.uid == uid else CompleteWithoutNode()
