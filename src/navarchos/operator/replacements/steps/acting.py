"""Acting, Terminating and AwaitingReplacement: an action of another module continues.

These steps differ in what the action does in them. What follows from its result is the same.
"""

from typing import assert_never

from navarchos.operator import actions
from navarchos.operator.api.v1alpha1 import Step
from navarchos.operator.replacements.steps import decision

__all__ = ["decide", "follow"]


def decide(observed: decision.StepObservation) -> decision.Decision:
    """Continue the action, unless the node is gone or its cordon was undone.

    A pause lets a running action end, and starts none (NP-12).
    """
    replacement = observed.replacement
    step = replacement.status.current
    if step is Step.ACTING:
        if observed.node is None or observed.node.metadata.uid != replacement.spec.node_uid:
            return decision.CompleteWithoutNode()
        if decision.has_drain(replacement.spec) and _is_undone(observed):
            return decision.DRAIN_DELETED
    if replacement.spec.paused and not actions.has_begun(replacement):
        return decision.NoAction()
    return decision.ContinueAction()


def follow(
    observed: decision.StepObservation, outcome: actions.ActionOutcome
) -> decision.Advance | decision.Ending | decision.ReportAction | decision.FailAttempt:
    """Decide what follows from the result of the action."""
    match outcome:
        case actions.ActionRunning():
            return decision.ReportAction(outcome)
        case actions.ActionDone():
            return decision.after(observed.replacement.spec, observed.replacement.status.current)
        case actions.ActionFailed(reason, message):
            return decision.FailAttempt(reason, message)
        case _:
            assert_never(outcome)


def _is_undone(observed: decision.StepObservation) -> bool:
    drain = observed.drain
    return drain is None or drain.metadata.deletion_timestamp is not None
