"""Reserved: the node has a slot. Check the node, create its drain, wait for the cordon."""

from navarchos.operator.api.v1alpha1 import DrainPhase, NodeDrain, Step
from navarchos.operator.replacements.attempt_drain import is_cordoned
from navarchos.operator.replacements.steps import decision

__all__ = ["decide"]


def decide(observed: decision.StepObservation) -> decision.Decision:
    """Create the drain, then follow it until it has cordoned the node."""
    if observed.drain is not None:
        return _follow(observed.drain)
    replacement, node = observed.replacement, observed.node
    if observed.is_abandoned:
        return decision.NoAction()
    if node is None or node.metadata.uid != replacement.spec.node_uid:
        return decision.CompleteWithoutNode()
    if replacement.spec.paused:
        return decision.NoAction()
    if decision.has_drain(replacement.spec):
        return decision.CreateDrain()
    return decision.after(replacement.spec, Step.RESERVED)


def _follow(drain: NodeDrain) -> decision.Decision:
    if drain.metadata.deletion_timestamp is not None:
        return decision.DRAIN_DELETED
    if drain.status.is_final:
        return decision.Advance(Step.DRAINING)
    if is_cordoned(drain):
        return decision.Advance(Step.CORDONED)
    is_preparing = drain.status.phase is DrainPhase.PREPARING
    return decision.Advance(Step.PREPARING) if is_preparing else decision.NoAction()
