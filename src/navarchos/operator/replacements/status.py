"""The status of a replacement: one pure function per transition."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from navarchos.operator.actions import ActionRunning
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.names import RESUME_ANNOTATION
from navarchos.operator.reasons import ConditionType, CordonReason, Reason, WaitReason
from navarchos.operator.replacements.attempt_drain import evicts
from navarchos.runtime.conditions import Condition, find_condition, set_condition
from navarchos.structs import differs_only_in

__all__ = [
    "action_completed_status",
    "action_ending_status",
    "action_running_status",
    "advanced_status",
    "cancelled_status",
    "completed_status",
    "drained_status",
    "failed_attempt_status",
    "given_back_status",
    "node_gone_status",
    "only_pod_counts_changed",
    "released_status",
    "reserved_status",
    "reset_requested",
    "reset_status",
    "stalled_status",
    "unverified_status",
    "waiting_status",
    "with_drain_report",
]

_VERIFIED: Final = frozenset({api.Step.RETURNING, api.Step.DONE})
"""The steps to which Verifying leads when the node is well."""


def waiting_status(
    replacement: api.NodeReplacement, reason: WaitReason, now: datetime, details: str = ""
) -> api.NodeReplacementStatus | None:
    """Return the status of a node that waits; `None` if the status says so already.

    Args:
        replacement: The replacement.
        reason: Why the node waits.
        now: The present time.
        details: The message, if the message of the reason does not say enough: for example
            which object occupies the last slot. A change of it is written.
    """
    message = details or reason.message
    step, began_at = replacement.status.step, now
    if step is not None and step.reason == reason:
        # The message of a node in the queue may describe its last failed attempt.
        if reason is WaitReason.QUEUED or _message_of_wait(replacement) == message:
            return None
        began_at = step.started_at or now
    deadline = None
    if reason is WaitReason.PENDING_PODS:
        limit = replacement.spec.strategy.pending_pods_timeout_seconds
        deadline = began_at + timedelta(seconds=limit)
    return _with_step(
        replacement,
        api.StepStatus(
            name=api.Step.WAITING, started_at=began_at, deadline=deadline, reason=reason
        ),
        _condition(replacement, ConditionType.WAITING, True, reason=reason, message=message),
        now=now,
    )


def _message_of_wait(replacement: api.NodeReplacement) -> str:
    waiting = find_condition(replacement.status.conditions, ConditionType.WAITING)
    return waiting.message if waiting is not None else ""


def reserved_status(replacement: api.NodeReplacement, now: datetime) -> api.NodeReplacementStatus:
    """Return the status of a node that starts: it occupies a slot."""
    status = _with_step(
        replacement,
        api.StepStatus(name=api.Step.RESERVED, started_at=now),
        _condition(replacement, ConditionType.WAITING, False, reason=Reason.STARTED),
        now=now,
    )
    return msgspec.structs.replace(
        status,
        start_timestamp=status.start_timestamp or now,
        stalled_since=None,
        boot_id="",  # of an earlier attempt
    )


def advanced_status(
    replacement: api.NodeReplacement,
    step: api.Step,
    now: datetime,
    *,
    deadline: datetime | None = None,
) -> api.NodeReplacementStatus:
    """Return the status in another step of the pipeline."""
    changed = []
    action = replacement.spec.action
    wanted = action.verification if action is not None else None
    if step is api.Step.VERIFYING and wanted is not None:
        deadline = now + timedelta(seconds=wanted.timeout_seconds)
    if replacement.status.current is api.Step.DRAINING and evicts(replacement.spec):
        changed = [
            _condition(replacement, ConditionType.NODE_DRAINED, True, reason=Reason.NODE_DRAINED)
        ]
    return _with_step(
        replacement, api.StepStatus(name=step, started_at=now, deadline=deadline), *changed, now=now
    )


def action_running_status(
    replacement: api.NodeReplacement, outcome: ActionRunning, now: datetime
) -> api.NodeReplacementStatus:
    """Return the status of a node whose action has not ended, with what the action waits for."""
    step = replacement.status.step or api.StepStatus(name=replacement.status.current)
    reason = Reason.ACTION_RUNNING if outcome.has_begun else Reason.ACTION_WAITING
    return _with_step(
        replacement,
        msgspec.structs.replace(step, deadline=outcome.deadline),
        _action_condition(replacement, False, reason, outcome.message),
        now=now,
    )


def action_completed_status(
    replacement: api.NodeReplacement, now: datetime, heir: api.Heir | None = None
) -> api.NodeReplacementStatus:
    """Return the status of a node whose action has ended well, with the node in its place."""
    status = _with_condition(
        replacement, _action_condition(replacement, True, Reason.ACTION_COMPLETED), now
    )
    return status if heir is None else msgspec.structs.replace(status, heir=heir)


def unverified_status(
    replacement: api.NodeReplacement, missing: Sequence[str], now: datetime
) -> api.NodeReplacementStatus:
    """Return the status of a node that is not well yet, with what is missing."""
    lacking = _condition(
        replacement,
        ConditionType.NODE_VERIFIED,
        False,
        reason=Reason.VERIFYING,
        message="; ".join(missing),
    )
    return _with_condition(replacement, lacking, now)


def action_ending_status(
    replacement: api.NodeReplacement, message: str, now: datetime
) -> api.NodeReplacementStatus:
    """Return the status while a cancelled action still affects the node."""
    return _with_condition(
        replacement, _action_condition(replacement, False, Reason.ACTION_ENDING, message), now
    )


def completed_status(
    replacement: api.NodeReplacement, reason: Reason, now: datetime
) -> api.NodeReplacementStatus:
    """Return the status of a node that is done, and was not drained or is in service again."""
    changed = []
    if find_condition(replacement.status.conditions, ConditionType.NODE_DRAINED) is not None:
        changed = [_condition(replacement, ConditionType.NODE_DRAINED, False, reason=reason)]
    status = _with_step(
        replacement,
        api.StepStatus(name=api.Step.DONE, started_at=now, reason=reason),
        *changed,
        now=now,
    )
    return msgspec.structs.replace(status, completion_timestamp=now)


def stalled_status(replacement: api.NodeReplacement, now: datetime) -> api.NodeReplacementStatus:
    """Return the status of a node that releases its slot while its drain continues."""
    return msgspec.structs.replace(replacement.status, stalled_since=now)


def node_gone_status(replacement: api.NodeReplacement, now: datetime) -> api.NodeReplacementStatus:
    """Return the status after the node was deleted, or replaced under the same name (OP-20)."""
    status = _with_step(
        replacement,
        api.StepStatus(name=api.Step.DONE, started_at=now, reason=Reason.NODE_GONE),
        _condition(replacement, ConditionType.WAITING, False, reason=Reason.NODE_GONE),
        _condition(
            replacement,
            ConditionType.NODE_DRAINED,
            False,
            reason=Reason.NODE_GONE,
            message="no node with this name and uid exists any more",
        ),
        now=now,
    )
    return msgspec.structs.replace(status, completion_timestamp=now)


def drained_status(replacement: api.NodeReplacement, now: datetime) -> api.NodeReplacementStatus:
    """Return the status of a node that is drained, cordoned and labelled."""
    status = _with_step(
        replacement,
        api.StepStatus(name=api.Step.DONE, started_at=now, reason=Reason.DRAINED),
        _condition(replacement, ConditionType.NODE_DRAINED, True, reason=Reason.NODE_DRAINED),
        now=now,
    )
    return msgspec.structs.replace(status, completion_timestamp=now)


def cancelled_status(replacement: api.NodeReplacement, now: datetime) -> api.NodeReplacementStatus:
    """Return the status of a node that never starts, because it or its rollout is cancelled."""
    status = _with_step(
        replacement,
        api.StepStatus(name=api.Step.CANCELLED, started_at=now, reason=Reason.CANCELLED),
        _condition(replacement, ConditionType.WAITING, False, reason=Reason.CANCELLED),
        now=now,
    )
    return msgspec.structs.replace(status, completion_timestamp=now)


def failed_attempt_status(
    replacement: api.NodeReplacement, reason: str, message: str, now: datetime
) -> api.NodeReplacementStatus:
    """Return the status after a failed attempt. The slot stays occupied until it is released."""
    before = replacement.status
    failure = api.AttemptFailure(
        attempt=before.attempts + 1, at=now, reason=reason, message=message
    )
    status = _with_step(
        replacement,
        api.StepStatus(name=api.Step.RELEASING, started_at=now, reason=reason),
        _condition(replacement, ConditionType.NODE_DRAINED, False, reason=reason, message=message),
        *_failed_action(replacement, reason, message),
        *_failed_verification(replacement, reason, message),
        now=now,
    )
    return msgspec.structs.replace(
        status, attempts=failure.attempt, failures=(*before.failures, failure)
    )


def given_back_status(replacement: api.NodeReplacement, now: datetime) -> api.NodeReplacementStatus:
    """Return the status of a node whose window has closed. No attempt has failed (NP-41)."""
    step = api.StepStatus(name=api.Step.RELEASING, started_at=now, reason=Reason.WINDOW_CLOSED)
    return _with_step(replacement, step, now=now)


def released_status(replacement: api.NodeReplacement, now: datetime) -> api.NodeReplacementStatus:
    """Return the status after the slot was released: waiting again, or failed (OP-25)."""
    status = replacement.status
    if status.is_given_back:
        message = "the window closed before the node was empty; it starts in the next window"
        return _queued_again(replacement, message, now)
    last = status.failures[-1].reason if status.failures else ""
    retries = replacement.spec.strategy.retries
    if status.counted_attempts <= retries:  # mutant: retries-without-end
        message = f"the last attempt failed ({last}); {WaitReason.QUEUED.message}"
        return _queued_again(replacement, message, now)
    failed = _with_step(
        replacement,
        api.StepStatus(name=api.Step.FAILED, started_at=now, reason=last),
        _condition(replacement, ConditionType.WAITING, False, reason=Reason.FAILED),
        now=now,
    )
    return msgspec.structs.replace(failed, completion_timestamp=now)


def _queued_again(
    replacement: api.NodeReplacement, message: str, now: datetime
) -> api.NodeReplacementStatus:
    reason = WaitReason.QUEUED
    return _with_step(
        replacement,
        api.StepStatus(name=api.Step.WAITING, started_at=now, reason=reason),
        _condition(replacement, ConditionType.WAITING, True, reason=reason, message=message),
        now=now,
    )


def reset_requested(replacement: api.NodeReplacement) -> bool:
    """Return whether `navarchos resume` has asked to reset failures, and that was not done yet."""
    token = replacement.metadata.annotations.get(RESUME_ANNOTATION, "")
    return bool(token) and token != replacement.status.resumed


def reset_status(replacement: api.NodeReplacement, now: datetime) -> api.NodeReplacementStatus:
    """Return the status with the failed attempts so far reset; a failed node waits again."""
    status = msgspec.structs.replace(
        replacement.status,
        resumed=replacement.metadata.annotations[RESUME_ANNOTATION],
        reset_attempts=replacement.status.attempts,
        failures=(),
    )
    if status.current is not api.Step.FAILED:
        return status
    again = _with_step(
        msgspec.structs.replace(replacement, status=status),
        api.StepStatus(name=api.Step.WAITING, started_at=now),
        now=now,
    )
    return msgspec.structs.replace(again, completion_timestamp=None)


def with_drain_report(
    replacement: api.NodeReplacement, drain: api.NodeDrain, now: datetime
) -> api.NodeReplacementStatus:
    """Return the status with the drain's report about pods and cordon."""
    report, before = drain.status, replacement.status
    return msgspec.structs.replace(
        before,
        node_pods=report.node_pods,
        node_pods_count=len(report.node_pods),
        evicted_pods=report.evicted_pods,
        evicted_pods_count=len(report.evicted_pods),
        ignored_pods=report.ignored_pods,
        ignored_pods_count=len(report.ignored_pods),
        failed_pods=report.failed_pods,
        failed_pods_count=len(report.failed_pods),
        evicted_owners=_union(before.evicted_owners, report.evicted_owners),
        conditions=_with_cordon(_with_preparation(replacement, drain, now), drain, now),
    )


def only_pod_counts_changed(
    before: api.NodeReplacementStatus, after: api.NodeReplacementStatus
) -> bool:
    """Return whether two statuses differ, and only in what the drain reports about pods."""
    return differs_only_in(
        before,
        after,
        "node_pods",
        "node_pods_count",
        "evicted_pods",
        "evicted_pods_count",
        "ignored_pods",
        "ignored_pods_count",
        "failed_pods",
        "failed_pods_count",
    )


def _with_cordon(
    replacement: api.NodeReplacement, drain: api.NodeDrain, now: datetime
) -> tuple[Condition, ...]:
    found = find_condition(drain.status.conditions, ConditionType.NODE_CORDONED)
    if found is None:
        return replacement.status.conditions
    is_so = found.status == "True"
    return set_condition(
        replacement.status.conditions,
        _condition(
            replacement,
            ConditionType.NODE_CORDONED,
            is_so,
            # The two reasons that were published in 2019.
            reason=CordonReason.CORDONED if is_so else CordonReason.CORDON_FAILED,
            message="" if is_so else found.message,
        ),
        now=now,
    )


def _with_preparation(
    replacement: api.NodeReplacement, drain: api.NodeDrain, now: datetime
) -> api.NodeReplacement:
    """Return the replacement with the drain's condition `Prepared`, if it has one."""
    found = find_condition(drain.status.conditions, ConditionType.PREPARED)
    if found is None:
        return replacement
    condition = _condition(
        replacement,
        ConditionType.PREPARED,
        found.status == "True",
        reason=found.reason,
        message=found.message,
    )
    conditions = set_condition(replacement.status.conditions, condition, now=now)
    status = msgspec.structs.replace(replacement.status, conditions=conditions)
    return msgspec.structs.replace(replacement, status=status)


def _failed_action(
    replacement: api.NodeReplacement, reason: str, message: str
) -> tuple[Condition, ...]:
    """Return the condition of an action that had begun: the next attempt begins another one."""
    found = find_condition(replacement.status.conditions, ConditionType.ACTION_COMPLETED)
    acted = replacement.status.current in {
        api.Step.ACTING,
        api.Step.TERMINATING,
        api.Step.AWAITING_REPLACEMENT,
    }
    if found is None and not acted:
        return ()
    return (_action_condition(replacement, False, reason, message),)


def _failed_verification(
    replacement: api.NodeReplacement, reason: str, message: str
) -> tuple[Condition, ...]:
    if find_condition(replacement.status.conditions, ConditionType.NODE_VERIFIED) is None:
        return ()
    type_ = ConditionType.NODE_VERIFIED
    return (_condition(replacement, type_, False, reason=reason, message=message),)


def _action_condition(
    replacement: api.NodeReplacement, is_so: bool, reason: str, message: str = ""
) -> Condition:
    return _condition(
        replacement, ConditionType.ACTION_COMPLETED, is_so, reason=reason, message=message
    )


def _with_condition(
    replacement: api.NodeReplacement, condition: Condition, now: datetime
) -> api.NodeReplacementStatus:
    conditions = set_condition(replacement.status.conditions, condition, now=now)
    return msgspec.structs.replace(replacement.status, conditions=conditions)


def _union(kept: Iterable[api.OwnerKey], new: Iterable[api.OwnerKey]) -> tuple[api.OwnerKey, ...]:
    """Join the owners of several attempts: the pods of earlier attempts may still be Pending."""
    owners = {owner.uid: owner for owner in (*kept, *new)}
    return tuple(sorted(owners.values(), key=lambda o: (o.namespace, o.kind, o.name, o.uid)))


def _with_step(
    replacement: api.NodeReplacement, step: api.StepStatus, *changed: Condition, now: datetime
) -> api.NodeReplacementStatus:
    conditions = replacement.status.conditions
    if replacement.status.current is api.Step.VERIFYING and step.name in _VERIFIED:
        type_, reason = ConditionType.NODE_VERIFIED, Reason.NODE_VERIFIED
        changed = (*changed, _condition(replacement, type_, True, reason=reason))
    for condition in changed:
        conditions = set_condition(conditions, condition, now=now)
    return msgspec.structs.replace(
        replacement.status,
        phase=step.name.phase,
        step=step,
        # A stalled node stays stalled in all steps in flight: it does not get a slot again.
        stalled_since=replacement.status.stalled_since if step.name.in_flight else None,
        observed_generation=replacement.metadata.generation,
        conditions=conditions,
    )


def _condition(
    replacement: api.NodeReplacement,
    type_: ConditionType,
    is_so: bool,
    *,
    reason: str,
    message: str = "",
) -> Condition:
    return Condition(
        type=type_,
        status="True" if is_so else "False",
        reason=reason,
        message=message,
        observed_generation=replacement.metadata.generation,
    )
