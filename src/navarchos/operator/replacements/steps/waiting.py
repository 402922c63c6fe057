"""Waiting: the node has not started. Admission decides when; this step checks the node."""

from navarchos.operator.replacements.steps import decision

__all__ = ["decide"]


def decide(observed: decision.StepObservation) -> decision.Decision:
    """Finish if the node is gone; fill in its uid if the spec has none.

    A node that is gone needs no slot, and its replacement finishes before its turn (OP-20).
    """
    node, uid = observed.node, observed.replacement.spec.node_uid
    if node is None:
        return decision.CompleteWithoutNode()
    if not uid:
        return decision.RecordNodeUid(node.metadata.uid)
    return decision.NoAction() if node.metadata.uid == uid else decision.CompleteWithoutNode()
