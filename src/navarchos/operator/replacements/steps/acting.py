"""Acting, Terminating and AwaitingReplacement: an action of another module continues.

These steps differ in what the action does in them. What follows from its result is the same.
"""

from typing import Final, assert_never

from navarchos.operator import actions
from navarchos.operator.api.v1alpha1 import NodeReplacement, Step
from navarchos.operator.replacements.steps import decision

__all__ = ["decide", "follow"]

_UNKNOWN: Final = "unknown"
"""The recorded boot id of a node whose kubelet has reported none."""


def decide(observed: decision.StepObservation) -> decision.Decision:
    """Continue the action, unless the node is gone or its cordon was undone.

    A pause lets a running action end, and starts none; nothing begins for a deleted rollout
    (NP-12).
    """
    replacement = observed.replacement
    step = replacement.status.current
    if step is Step.ACTING:
        if observed.node is None or observed.node.metadata.uid != replacement.spec.node_uid:
            return decision.CompleteWithoutNode()
        if decision.cordon_is_undone(observed):
            return decision.DRAIN_DELETED
    if not actions.has_begun(replacement):
        if replacement.spec.paused or observed.is_abandoned:  # mutant: action-while-paused
            return decision.NoAction()
        if step is Step.ACTING and _needs_boot_id(replacement):
            info = observed.node.status.node_info if observed.node is not None else None
            return decision.RecordBootId((info.boot_id if info is not None else "") or _UNKNOWN)
    return decision.ContinueAction()


def _needs_boot_id(replacement: NodeReplacement) -> bool:
    """Return whether the boot id must be recorded before the action can change it."""
    action = replacement.spec.action
    wanted = action.verification if action is not None else None
    return wanted is not None and wanted.rebooted and not replacement.status.boot_id


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
