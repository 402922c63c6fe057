"""Preparing a node before its pods are evicted: marks, a timestamp of a detacher, hooks. Pure.

```text
marks are missing   ──> set them, and once more if another client has removed them
load balancers      ──> wait `settleSeconds` after the last mark
detacher            ──> wait for its timestamp on the node, and for the grace period
hooks               ──> wait until each has answered `Done` on the NodeDrain
readiness gate      ──> a mark; wait until another controller says that its pods are unready
```
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final, assert_never

from navarchos.drain import DrainPlan, PodReason
from navarchos.meta import format_time, parse_time
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.marks import (
    EXCLUDE_LABEL,
    Mark,
    MarkEntry,
    MarkHolder,
    MarkKind,
    read_marks,
    readiness_mark,
)
from navarchos.operator.names import (
    DETACHING_ANNOTATION,
    DRAIN_HOOK_ANNOTATION,
    HOOK_ANSWER_PREFIX,
    UNREADY_ANNOTATION,
)
from navarchos.operator.nodes import Node
from navarchos.operator.reasons import ConditionType, PrepareReason
from navarchos.runtime.conditions import find_condition, is_true

__all__ = [
    "PrepareDecision",
    "PrepareOutcome",
    "decide_preparation",
    "has_marks",
    "has_unreadable_time",
    "holder_of",
    "hooks_of",
    "is_prepared",
    "marks_of",
]

_CLOCK_DIFFERENCE: Final = timedelta(seconds=5)
"""A timestamp may be older than the mark by this much: clocks differ, and times are rounded."""

_DONE: Final = "Done"
_WAITING: Final = "Waiting:"
_UNREADABLE: Final = "is not a time in RFC 3339:"
_MAX_ANSWER: Final = 256
_MAX_TIME: Final = 64
_MAX_NAMED: Final = 3


class PrepareOutcome(Enum):
    """What a drain does about the preparation of its node."""

    MARK = auto()
    WAIT = auto()
    READY = auto()
    FAIL = auto()


@dataclass(frozen=True, slots=True)
class PrepareDecision:
    """The decision about the preparation, and what the condition `Prepared` says afterwards.

    Attributes:
        outcome: What to do.
        reason: The reason of the condition.
        message: The message of the condition.
        requeue_after: Seconds until time alone changes the decision.
    """

    outcome: PrepareOutcome
    reason: PrepareReason
    message: str
    requeue_after: float | None = None


@dataclass(frozen=True, slots=True)
class _Missing:
    """Something that is not done yet, and the instant at which time alone ends the wait."""

    reason: PrepareReason
    message: str
    until: datetime | None = None


def marks_of(spec: api.PrepareSpec | None) -> tuple[Mark, ...]:
    """Return the marks that a node gets."""
    marks = []
    if spec is not None and spec.exclude_from_external_load_balancers:
        # The service controller includes a node whose value is false, so the value is set.
        marks.append(Mark(MarkKind.LABEL, EXCLUDE_LABEL, "true"))
    if spec is not None and (annotation := spec.annotate_node) is not None:
        marks.append(Mark(MarkKind.ANNOTATION, annotation.key, annotation.value))
    if spec is not None and spec.readiness_gate:
        marks.append(readiness_mark(spec.readiness_gate))
    return tuple(marks)


def hooks_of(plan: DrainPlan | None) -> Mapping[str, tuple[str, ...]]:
    """Return the hooks of the pods on a node, each with its pods as `namespace/name`."""
    hooks: dict[str, tuple[str, ...]] = {}
    for planned in plan.wait if plan is not None else ():
        if planned.finding.reason is PodReason.LEAVES_BY_ITSELF:
            hook = planned.pod.metadata.annotations[DRAIN_HOOK_ANNOTATION]
            hooks[hook] = (*hooks.get(hook, ()), planned.name)
    return hooks


def holder_of(drain: api.NodeDrain) -> MarkHolder:
    """Return the holder of the marks of a drain."""
    return MarkHolder(api.NODE_DRAINS.kind, drain.metadata.name, drain.metadata.uid)


def is_prepared(status: api.NodeDrainStatus) -> bool:
    """Return whether the preparation of the node has ended, or was skipped."""
    return is_true(status.conditions, ConditionType.PREPARED)


def has_unreadable_time(status: api.NodeDrainStatus) -> bool:
    """Return whether the drain has reported a text instead of the time of another program.

    The message of the condition is the record, so that the next process knows it too.
    """
    stored = find_condition(status.conditions, ConditionType.PREPARED)
    return stored is not None and _UNREADABLE in stored.message


def has_marks(drain: api.NodeDrain) -> bool:
    """Return whether the drain may have set marks, also if its spec has changed since."""
    return bool(marks_of(drain.spec.prepare)) or drain.status.prepare_timestamp is not None


def decide_preparation(
    drain: api.NodeDrain, node: Node, plan: DrainPlan | None, began_at: datetime, now: datetime
) -> PrepareDecision | None:
    """Decide what to do before the pods are evicted; `None` if nothing was ever to be prepared.

    Args:
        drain: The drain; it is not paused.
        node: Its node.
        plan: The pods of the node.
        began_at: The time from which the timeout counts.
        now: The present time.
    """
    spec = drain.spec.prepare or api.PrepareSpec()
    hooks = {**dict.fromkeys(spec.hooks, ()), **hooks_of(plan)}
    marks = marks_of(spec)
    if not (marks or hooks or spec.settle_seconds or drain.status.prepare_timestamp):
        return None
    case = _MarkedNode(drain, node, spec, marks, began_at)
    missing = list(case.missing(hooks, now))  # mutant: hooks-not-awaited
    if not missing:
        return PrepareDecision(PrepareOutcome.READY, PrepareReason.PREPARED, "")
    late = began_at + timedelta(seconds=spec.timeout_seconds) if spec.timeout_seconds else None
    if late is not None and late <= now:  # mutant: preparation-without-end
        return _timed_out(spec, missing)
    unset = case.unset_marks()
    reason, message = missing[0].reason, "; ".join(found.message for found in missing)
    if case.was_set_again or case.is_removed:
        reason = PrepareReason.MARK_REMOVED_BY_OTHERS
    if unset:
        if case.was_set_again and case.is_removed:  # mutant: marks-set-for-ever
            message = f"another client removed marks twice: {', '.join(unset)}"
            return PrepareDecision(PrepareOutcome.FAIL, reason, message)
        return PrepareDecision(PrepareOutcome.MARK, reason, message)
    ends = [found.until for found in missing if found.until is not None]
    ends += [late] if late is not None else []
    waits = [(end - now).total_seconds() for end in ends if end > now]
    return PrepareDecision(PrepareOutcome.WAIT, reason, message, min(waits, default=None))


def _timed_out(spec: api.PrepareSpec, missing: Sequence[_Missing]) -> PrepareDecision:
    waits = "; ".join(found.message for found in missing)
    message = f"the node was not prepared within {spec.timeout_seconds} s: {waits}"
    match spec.on_timeout:
        case api.PrepareTimeoutPolicy.FAIL:
            return PrepareDecision(PrepareOutcome.FAIL, missing[0].reason, message)
        case api.PrepareTimeoutPolicy.PROCEED:
            return PrepareDecision(PrepareOutcome.READY, PrepareReason.SKIPPED, message)
        case _:
            assert_never(spec.on_timeout)


@dataclass(frozen=True, slots=True)
class _MarkedNode:
    """A node under preparation."""

    drain: api.NodeDrain
    node: Node
    spec: api.PrepareSpec
    marks: tuple[Mark, ...]
    began_at: datetime

    @property
    def held(self) -> Mapping[str, MarkEntry]:
        """The marks that this drain holds, by id."""
        holder = str(holder_of(self.drain))
        found = read_marks(self.node)
        return {id_: found[id_] for id_ in found if holder in found[id_].holders}

    @property
    def was_set_again(self) -> bool:
        """Whether a mark was removed by another client, and set again."""
        stored = find_condition(self.drain.status.conditions, ConditionType.PREPARED)
        return stored is not None and stored.reason == PrepareReason.MARK_REMOVED_BY_OTHERS

    @property
    def is_removed(self) -> bool:
        """Whether the node lacks a mark that this drain has set."""
        held = self.held
        return any(mark.id in held for mark in self.marks if not self._is_set(mark, held))

    def unset_marks(self) -> tuple[str, ...]:
        """Return the marks that the node does not have for this drain."""
        held = self.held
        return tuple(
            mark.id for mark in self.marks if mark.id not in held or not self._is_set(mark, held)
        )

    def _is_set(self, mark: Mark, held: Mapping[str, MarkEntry]) -> bool:
        value, entry = mark.value_on(self.node), held.get(mark.id)
        # Another holder may want another value: the node is detached all the same.
        is_shared = entry is not None and len(entry.holders) > 1
        return value == mark.value or (is_shared and value is not None)

    def missing(self, hooks: Mapping[str, tuple[str, ...]], now: datetime) -> Iterator[_Missing]:
        """Yield what is not done yet."""
        if unset := self.unset_marks():
            yield _Missing(
                PrepareReason.WAITING_FOR_LOAD_BALANCERS, f"marks to set: {', '.join(unset)}"
            )
        held = self.held
        since = max((held[mark.id].since for mark in self.marks if mark.id in held), default=None)
        settled_at = (since or self.began_at) + timedelta(seconds=self.spec.settle_seconds)
        if settled_at > now:
            text = f"settleSeconds end at {format_time(settled_at)}"
            yield _Missing(PrepareReason.WAITING_FOR_LOAD_BALANCERS, text, settled_at)
        if self.spec.readiness_gate and not self._are_pods_unready(held):
            text = f"readiness gate {self.spec.readiness_gate}: its pods are not unready yet"
            text = f"{text} (managers with --controllers=rollouts,readiness-gates change them)"
            yield _Missing(PrepareReason.WAITING_FOR_LOAD_BALANCERS, text)
        yield from self._missing_timestamp(held, now)
        unanswered = [text for hook in sorted(hooks) if (text := self._ask(hook, hooks[hook]))]
        if unanswered:
            yield _Missing(PrepareReason.WAITING_FOR_HOOKS, ", ".join(unanswered))

    def _are_pods_unready(self, held: Mapping[str, MarkEntry]) -> bool:
        """Return whether the answer is for the present mark: it may have been set once more."""
        entry = held.get(readiness_mark(self.spec.readiness_gate).id)
        answer = self.drain.metadata.annotations.get(UNREADY_ANNOTATION)
        # mutant: answers-of-former-marks
        return entry is not None and answer == format_time(entry.since)

    def _missing_timestamp(
        self, held: Mapping[str, MarkEntry], now: datetime
    ) -> Iterator[_Missing]:
        """Yield the wait for the timestamp of another program, if any (IG-24)."""
        wait = self.spec.wait_for_timestamp
        if wait is None:
            return
        reason = PrepareReason.WAITING_FOR_TIMESTAMP
        text = self.node.metadata.annotations.get(wait.key, "")
        try:
            written_at = parse_time(text)
        except ValueError:
            what = f"{_UNREADABLE} {text[:_MAX_TIME]!r}" if text else "has no time"
            yield _Missing(reason, f"the annotation {wait.key} of the node {what}")
            return
        at = self._if_new(written_at, held)
        if at is None:
            yield _Missing(reason, f"the annotation {wait.key} of the node has no new time")
            return
        ends_at = at + timedelta(seconds=wait.grace_period_seconds)
        if ends_at > now:
            yield _Missing(
                reason, f"{wait.key} plus its grace period is {format_time(ends_at)}", ends_at
            )

    def _if_new(self, at: datetime, held: Mapping[str, MarkEntry]) -> datetime | None:
        """Return the time of another program if it counts."""
        entries = [held[mark.id] for mark in self.marks if mark.id in held]
        if not entries:
            return None
        is_detaching = self.node.metadata.annotations.get(DETACHING_ANNOTATION) == "true"
        was_marked = any(entry.was is not None for entry in entries)
        is_new = at >= min(entry.since for entry in entries) - _CLOCK_DIFFERENCE
        # mutant: old-times-count
        return at if is_new or is_detaching or was_marked else None

    def _ask(self, hook: str, pods: tuple[str, ...]) -> str:
        """Return what a hook says; empty once it is done."""
        answer = self.drain.metadata.annotations.get(f"{HOOK_ANSWER_PREFIX}{hook}", "").strip()
        if answer == _DONE:
            return ""
        named = ", ".join(pods[:_MAX_NAMED])
        more = f" and {len(pods) - _MAX_NAMED} more" if len(pods) > _MAX_NAMED else ""
        of_pods = f" of {named}{more}" if pods else ""
        said = answer.removeprefix(_WAITING).strip()[:_MAX_ANSWER] or "has not answered"
        return f"hook {hook}{of_pods}: {said}"
