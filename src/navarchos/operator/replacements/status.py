"""How a replacement's status changes: one function per transition. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from navarchos.operator.api.v1alpha1 import (
    AttemptFailure,
    DrainCondition,
    NodeDrain,
    NodeReplacement,
    NodeReplacementStatus,
    OwnerKey,
    Step,
    StepStatus,
)
from navarchos.operator.history import NODE_GONE
from navarchos.operator.names import RESUME_ANNOTATION
from navarchos.operator.replacements.waiting import WaitReason
from navarchos.runtime.conditions import Condition, find_condition, set_condition
from navarchos.structs import differs_only_in

__all__ = [
    "advanced_status",
    "drained_status",
    "failed_attempt_status",
    "node_gone_status",
    "only_pod_counts_changed",
    "released_status",
    "reserved_status",
    "reset_requested",
    "reset_status",
    "stalled_status",
    "waiting_status",
    "with_drain_report",
]


def waiting_status(
    replacement: NodeReplacement, reason: WaitReason, now: datetime
) -> NodeReplacementStatus | None:
    """Return the status of one that waits for `reason`; `None` when it says so already."""
    step = replacement.status.step
    if step is not None and step.reason == reason:
        return None
    deadline = None
    if reason is WaitReason.PENDING_PODS:
        limit = replacement.spec.strategy.pending_pods_timeout_seconds
        deadline = now + timedelta(seconds=limit)
    return _with(
        replacement,
        StepStatus(name=Step.WAITING, started_at=now, deadline=deadline, reason=reason),
        _condition(replacement, "Waiting", is_so=True, reason=reason, message=reason.message),
        now=now,
    )


def reserved_status(replacement: NodeReplacement, now: datetime) -> NodeReplacementStatus:
    """Return the status of one that takes a slot."""
    status = _with(
        replacement,
        StepStatus(name=Step.RESERVED, started_at=now),
        _condition(replacement, "Waiting", is_so=False, reason="Started"),
        now=now,
    )
    return msgspec.structs.replace(
        status, start_timestamp=status.start_timestamp or now, stalled_since=None
    )


def advanced_status(
    replacement: NodeReplacement, step: Step, now: datetime, *, deadline: datetime | None = None
) -> NodeReplacementStatus:
    """Return the status in another step of the pipeline."""
    return _with(replacement, StepStatus(name=step, started_at=now, deadline=deadline), now=now)


def stalled_status(replacement: NodeReplacement, now: datetime) -> NodeReplacementStatus:
    """Return the status of one that gives its slot to others; its drain goes on."""
    return msgspec.structs.replace(replacement.status, stalled_since=now)


def node_gone_status(replacement: NodeReplacement, now: datetime) -> NodeReplacementStatus:
    """Return the status of one whose node is gone, or is another by now (OP-20)."""
    status = _with(
        replacement,
        StepStatus(name=Step.DONE, started_at=now, reason=NODE_GONE),
        _condition(replacement, "Waiting", is_so=False, reason=NODE_GONE),
        _condition(
            replacement,
            "NodeDrained",
            is_so=False,
            reason=NODE_GONE,
            message="there is no node of this name and uid any more",
        ),
        now=now,
    )
    return msgspec.structs.replace(status, completion_timestamp=now)


def drained_status(replacement: NodeReplacement, now: datetime) -> NodeReplacementStatus:
    """Return the status of one whose node is empty, cordoned and labelled."""
    status = _with(
        replacement,
        StepStatus(name=Step.DONE, started_at=now, reason="Drained"),
        _condition(replacement, "NodeDrained", is_so=True, reason="NodeDrained"),
        now=now,
    )
    return msgspec.structs.replace(status, completion_timestamp=now)


def failed_attempt_status(
    replacement: NodeReplacement, reason: str, message: str, now: datetime
) -> NodeReplacementStatus:
    """Return the status after a failed attempt; its slot is held until it is released."""
    before = replacement.status
    failure = AttemptFailure(attempt=before.attempts + 1, at=now, reason=reason, message=message)
    status = _with(
        replacement,
        StepStatus(name=Step.RELEASING, started_at=now, reason=reason),
        _condition(replacement, "NodeDrained", is_so=False, reason=reason, message=message),
        now=now,
    )
    return msgspec.structs.replace(
        status, attempts=failure.attempt, failures=(*before.failures, failure)
    )


def released_status(replacement: NodeReplacement, now: datetime) -> NodeReplacementStatus:
    """Return the status after the slot was given back: waiting again, or failed (OP-25)."""
    status = replacement.status
    last = status.failures[-1].reason if status.failures else ""
    if status.counted_attempts <= replacement.spec.strategy.retries:
        return _with(
            replacement,
            StepStatus(name=Step.WAITING, started_at=now, reason=WaitReason.QUEUED),
            _condition(
                replacement,
                "Waiting",
                is_so=True,
                reason=WaitReason.QUEUED,
                message=f"the last attempt failed ({last}); {WaitReason.QUEUED.message}",
            ),
            now=now,
        )
    failed = _with(
        replacement,
        StepStatus(name=Step.FAILED, started_at=now, reason=last),
        _condition(replacement, "Waiting", is_so=False, reason="Failed"),
        now=now,
    )
    return msgspec.structs.replace(failed, completion_timestamp=now)


def reset_requested(replacement: NodeReplacement) -> bool:
    """Tell whether a person asked to forgive attempts, and that was not obeyed yet."""
    token = replacement.metadata.annotations.get(RESUME_ANNOTATION, "")
    return bool(token) and token != replacement.status.resumed


def reset_status(replacement: NodeReplacement, now: datetime) -> NodeReplacementStatus:
    """Return the status with the attempts so far forgiven; a failed one waits again."""
    status = msgspec.structs.replace(
        replacement.status,
        resumed=replacement.metadata.annotations[RESUME_ANNOTATION],
        reset_attempts=replacement.status.attempts,
        failures=(),
    )
    if status.current is not Step.FAILED:
        return status
    again = _with(
        msgspec.structs.replace(replacement, status=status),
        StepStatus(name=Step.WAITING, started_at=now),
        now=now,
    )
    return msgspec.structs.replace(again, completion_timestamp=None)


def with_drain_report(
    replacement: NodeReplacement, drain: NodeDrain, now: datetime
) -> NodeReplacementStatus:
    """Return the status with what the drain reports about pods and cordon."""
    seen, before = drain.status, replacement.status
    return msgspec.structs.replace(
        before,
        node_pods=seen.node_pods,
        node_pods_count=len(seen.node_pods),
        evicted_pods=seen.evicted_pods,
        evicted_pods_count=len(seen.evicted_pods),
        ignored_pods=seen.ignored_pods,
        ignored_pods_count=len(seen.ignored_pods),
        failed_pods=seen.failed_pods,
        failed_pods_count=len(seen.failed_pods),
        evicted_owners=_union(before.evicted_owners, seen.evicted_owners),
        conditions=_cordoned(replacement, drain, now),
    )


def only_pod_counts_changed(before: NodeReplacementStatus, after: NodeReplacementStatus) -> bool:
    """Tell whether a status differs, and only by what its drain reports of pods."""
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


def _cordoned(
    replacement: NodeReplacement, drain: NodeDrain, now: datetime
) -> tuple[Condition, ...]:
    found = find_condition(drain.status.conditions, DrainCondition.NODE_CORDONED)
    if found is None:
        return replacement.status.conditions
    is_so = found.status == "True"
    return set_condition(
        replacement.status.conditions,
        _condition(
            replacement,
            DrainCondition.NODE_CORDONED,
            is_so=is_so,
            # The reasons that were published in 2019.
            reason="NodeCordoned" if is_so else "ErrorCordoningNode",
            message="" if is_so else found.message,
        ),
        now=now,
    )


def _union(kept: Iterable[OwnerKey], new: Iterable[OwnerKey]) -> tuple[OwnerKey, ...]:
    """Join the owners of several attempts: their pods may still be Pending."""
    owners = {owner.uid: owner for owner in (*kept, *new)}
    return tuple(sorted(owners.values(), key=lambda o: (o.namespace, o.kind, o.name, o.uid)))


def _with(
    replacement: NodeReplacement, step: StepStatus, *conditions: Condition, now: datetime
) -> NodeReplacementStatus:
    marked = replacement.status.conditions
    for condition in conditions:
        marked = set_condition(marked, condition, now=now)
    return msgspec.structs.replace(
        replacement.status,
        phase=step.name.phase,
        step=step,
        # Who has given its slot away gets none to be given back.
        stalled_since=replacement.status.stalled_since if step.name.in_flight else None,
        observed_generation=replacement.metadata.generation,
        conditions=marked,
    )


def _condition(
    replacement: NodeReplacement, type_: str, *, is_so: bool, reason: str, message: str = ""
) -> Condition:
    return Condition(
        type=type_,
        status="True" if is_so else "False",
        reason=reason,
        message=message,
        observed_generation=replacement.metadata.generation,
    )
