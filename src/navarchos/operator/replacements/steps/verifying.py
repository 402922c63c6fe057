"""Verifying: the action has ended. The node must be well before it counts as done (NP-21)."""

from navarchos.operator.reasons import Reason
from navarchos.operator.replacements.steps import decision

__all__ = ["decide"]


def decide(observed: decision.StepObservation) -> decision.Decision:
    """Continue once nothing is missing; fail when the time is over.

    A pause does not stop the verification, because it starts nothing.
    """
    replacement, found = observed.replacement, observed.verification
    if found is None:
        return decision.NoAction()
    action = replacement.spec.action
    kind = action.kind if action is not None else None
    if not (kind is not None and kind.ends_machine) and decision.cordon_is_undone(observed):
        return decision.DRAIN_DELETED
    if not found.missing:
        return decision.after(replacement.spec, replacement.status.current)
    if found.is_overdue:
        return decision.FailAttempt(Reason.NOT_READY_AGAIN, "; ".join(found.missing))
    return decision.AwaitVerification(found)
