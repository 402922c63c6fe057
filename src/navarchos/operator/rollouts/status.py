"""The status of a rollout, computed from its own children and nothing else (OP-04). Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec

from navarchos.errors import ConfigError
from navarchos.operator import history
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates import GateTimeout, Records, find_timeout, to_status
from navarchos.operator.reasons import ConditionType, Reason, WaitReason
from navarchos.operator.replacements.waits import invalid_windows
from navarchos.operator.rollouts.children import resume_token
from navarchos.operator.rollouts.plan import Plan
from navarchos.operator.waves import judge_approval, wave_counts, wave_progress
from navarchos.runtime.conditions import Condition, find_condition, set_condition
from navarchos.structs import differs_only_in

__all__ = [
    "MAX_BLOCKED",
    "StatusInputs",
    "compute_status",
    "estimate_completion",
    "gate_timeout",
    "initial_status",
    "is_resumed",
    "only_counts_changed",
]

MAX_BLOCKED: Final = 50
"""The longest list of blocked pods; their count is complete."""

_MAX_MISSING_NAMES: Final = 10

_NO_NODES: Final = "no node matches spec.nodeSelectors or spec.nodeNames"


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """What a status is computed from."""

    nodes: tuple[api.PlannedNode, ...]
    """The planned nodes, with the priorities of the current spec."""
    children: Mapping[str, api.NodeReplacement] = field(default_factory=dict)
    """The rollout's own replacements, by node name."""
    drains: Sequence[api.NodeDrain] = ()
    """The drains of the children in flight."""
    creation_error: str = ""
    """Why some replacements could not be created, in words."""
    gates: Records = field(default_factory=dict)
    """The gates, by name."""


def initial_status(rollout: api.NodeRollout, plan: Plan, now: datetime) -> api.NodeRolloutStatus:
    """Return the first status: the plan, recorded before the first child exists (OP-03)."""
    status = api.NodeRolloutStatus(
        phase=api.RolloutPhase.NEW,
        observed_generation=rollout.metadata.generation,
        start_timestamp=now,
        nodes=plan.nodes,
        nodes_not_found=plan.not_found,
        plan=_counts(plan.nodes, frozenset(), frozenset()),
        resumed=resume_token(rollout),
    )
    conditions = _ConditionSet(rollout, now)
    if plan.not_found:
        message = _names_missing(plan.not_found)
        conditions.set(ConditionType.NODES_FOUND, False, Reason.NODES_NOT_FOUND, message)
    if not plan.nodes:
        for type_ in (ConditionType.REPLACEMENTS_CREATED, ConditionType.REPLACEMENTS_IN_PROGRESS):
            conditions.set(type_, False, Reason.NO_NODES_MATCHED, _NO_NODES)
        status = msgspec.structs.replace(
            status, phase=api.RolloutPhase.COMPLETED, completion_timestamp=now
        )
    return msgspec.structs.replace(status, conditions=conditions.result)


def compute_status(
    rollout: api.NodeRollout, inputs: StatusInputs, now: datetime
) -> api.NodeRolloutStatus:
    """Return the status of a rollout; equal inputs give an equal status.

    Raises:
        ConfigError: `maxFailures` or `maxConcurrent` is neither a number nor a percentage.
    """
    progress = _NodeProgress.of(rollout, inputs)
    halt = _halt(rollout, inputs, progress, now)
    phase = _phase(rollout, progress, halted=bool(halt))
    done = phase is api.RolloutPhase.COMPLETED
    blocked = _blocked(inputs)
    status = msgspec.structs.replace(
        rollout.status,
        phase=phase,
        observed_generation=rollout.metadata.generation,
        completion_timestamp=(rollout.status.completion_timestamp or now) if done else None,
        estimated_completion=_estimate(rollout, inputs, progress, phase),
        nodes=inputs.nodes,
        plan=_counts(inputs.nodes, progress.completed, progress.failed),
        replacements_created=tuple(sorted(progress.created)),
        replacements_created_count=len(progress.created),
        replacements_completed=tuple(sorted(progress.completed)),
        replacements_completed_count=len(progress.completed),
        replacements_failed=tuple(sorted(progress.failed)),
        replacements_failed_count=len(progress.failed),
        replacements_cancelled=tuple(sorted(progress.cancelled)),
        replacements_cancelled_count=len(progress.cancelled) or None,
        in_flight=tuple(sorted(progress.in_flight)),
        in_flight_count=len(progress.in_flight),
        stalled=tuple(sorted(progress.stalled)),
        stalled_count=len(progress.stalled),
        blocked=blocked[:MAX_BLOCKED],
        blocked_count=sum(drain.status.blocked for drain in inputs.drains),
        gates=_gates(rollout, inputs),
        halted_max_failures=_halted_max_failures(rollout) if halt else None,
        resumed=resume_token(rollout),
    )
    current = msgspec.structs.replace(rollout.status, gates=status.gates)
    wave, refused = _wave(msgspec.structs.replace(rollout, status=current), inputs, now)
    status = msgspec.structs.replace(status, wave=wave)
    conditions = _ConditionSet(rollout, now)
    conditions.set_strategy(_invalid_strategy(rollout, now))
    conditions.set_approval(refused)
    conditions.set_creation(inputs.creation_error, all_created=progress.all_created)
    conditions.set_halt(halt)
    conditions.set_pause(paused=rollout.spec.paused)
    conditions.set_cancel(cancelled=bool(rollout.spec.cancel))
    conditions.set_progress(phase, progress)
    return msgspec.structs.replace(status, conditions=conditions.result)


def _wave(
    rollout: api.NodeRollout, inputs: StatusInputs, now: datetime
) -> tuple[api.WaveStatus | None, str | None]:
    """Return the current wave, and why an approval was refused, as `judge_approval` does.

    Without valid waves nothing changes.
    """
    children = inputs.children.values()
    try:
        found = wave_progress(rollout, children, now)
    except ConfigError:
        return rollout.status.wave, None
    if found is None:
        return None, ""
    wave, refused = judge_approval(rollout, found.status, now)
    if wave.approvals == found.status.approvals:
        return wave, refused
    approved = msgspec.structs.replace(
        rollout, status=msgspec.structs.replace(rollout.status, wave=wave)
    )
    following = wave_progress(approved, children, now)
    if following is not None:
        wave = msgspec.structs.replace(following.status, judged=wave.judged)
    return wave, refused


def _invalid_strategy(rollout: api.NodeRollout, now: datetime) -> str:
    """Return which window or wave is invalid, in words; empty if none is."""
    try:
        wave_counts(rollout)
    except ConfigError as error:
        return str(error)
    return invalid_windows(rollout.spec.strategy, now)


def only_counts_changed(before: api.NodeRolloutStatus, after: api.NodeRolloutStatus) -> bool:
    """Return whether two statuses differ, and only in which nodes have started and completed."""
    return differs_only_in(
        before,
        after,
        "estimated_completion",
        "plan",
        "replacements_completed",
        "replacements_completed_count",
        "replacements_cancelled",
        "replacements_cancelled_count",
        "in_flight",
        "in_flight_count",
        "gates",
    )


def estimate_completion(
    children: Iterable[api.NodeReplacement], *, remaining: int, concurrent: int, settle_seconds: int
) -> datetime | None:
    """Estimate when a rollout completes (OP-11): the mean time per drained node, extrapolated.

    The estimate counts from the last finished node, not from the present time, so it changes
    only when a node finishes.

    Args:
        children: The rollout's own replacements.
        remaining: The number of unfinished nodes, nodes in flight included.
        concurrent: The number of nodes in flight at once.
        settle_seconds: The pause after each node.

    Returns:
        `None` until a node has been drained, and when no node remains.
    """
    known = history.drain_spans(children)
    mean = history.mean_duration(known)
    if mean is None or remaining <= 0 or concurrent <= 0:
        return None
    rounds = -(-remaining // concurrent)
    last = max(end for _, end in known)
    estimate = last + rounds * (mean + timedelta(seconds=settle_seconds))
    return estimate.replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class _NodeProgress:
    """The planned nodes by their progress, by name."""

    created: frozenset[str]
    completed: frozenset[str]
    failed: frozenset[str]
    cancelled: frozenset[str]
    in_flight: frozenset[str]
    stalled: frozenset[str]
    total: int

    @classmethod
    def of(cls, rollout: api.NodeRollout, inputs: StatusInputs) -> "_NodeProgress":
        before, token = rollout.status, resume_token(rollout)
        # An existing child decides. A child that was deleted after it had finished keeps the
        # result that the status has recorded.
        known = {
            node.name: inputs.children[node.name].status
            for node in inputs.nodes
            if node.name in inputs.children
        }
        steps = {name: status.current for name, status in known.items()}
        gone = {node.name for node in inputs.nodes} - steps.keys()
        completed = _in_step(steps, api.Step.DONE) | (gone & set(before.replacements_completed))
        # A child that has not applied `navarchos resume` yet is about to be tried again.
        to_reset = {name for name in known if token and known[name].resumed != token}
        failed = _in_step(steps, api.Step.FAILED) - to_reset | (
            gone & set(before.replacements_failed)
        )
        # A node without a replacement has not started.
        never_created = gone - completed - failed if rollout.spec.cancel else frozenset()
        cancelled = _in_step(steps, api.Step.CANCELLED) | (
            gone & set(before.replacements_cancelled) | never_created
        )
        return cls(
            created=frozenset(steps) | completed | failed,
            completed=completed,
            failed=failed,
            cancelled=cancelled,
            in_flight=frozenset(name for name in known if known[name].occupies_slot),
            stalled=frozenset(name for name in known if known[name].is_stalled),
            total=len(inputs.nodes),
        )

    @property
    def all_created(self) -> bool:
        return len(self.created) == self.total

    @property
    def remaining(self) -> int:
        return self.total - len(self.completed) - len(self.failed) - len(self.cancelled)


def _in_step(steps: Mapping[str, api.Step], wanted: api.Step) -> frozenset[str]:
    return frozenset(name for name, step in steps.items() if step is wanted)


def gate_timeout(rollout: api.NodeRollout, inputs: StatusInputs) -> GateTimeout | None:
    """Return when a gate halts the rollout if it stays closed; `None` if none does."""
    if not rollout.spec.gates or rollout.spec.paused:
        return None
    if rollout.status.phase is api.RolloutPhase.HALTED and not is_resumed(rollout):
        return None
    # Admission writes this reason if nothing but a gate keeps the node from starting.
    waiting = [
        step.started_at
        for child in inputs.children.values()
        if (step := child.status.step) is not None
        and step.reason == WaitReason.GATE
        and step.started_at is not None
    ]
    return find_timeout(rollout.spec.gates, inputs.gates, min(waiting, default=None))


def _gates(rollout: api.NodeRollout, inputs: StatusInputs) -> tuple[api.GateStatus, ...]:
    if not inputs.gates:
        return rollout.status.gates if rollout.spec.gates else ()
    return tuple(
        to_status(inputs.gates[gate.name])
        for gate in rollout.spec.gates
        if gate.name in inputs.gates
    )


@dataclass(frozen=True, slots=True)
class _Halt:
    reason: Reason
    message: str


def _halt(
    rollout: api.NodeRollout, inputs: StatusInputs, progress: _NodeProgress, now: datetime
) -> _Halt | None:
    """Return why the rollout is halted; `None` if it is not (OP-08)."""
    before = find_condition(rollout.status.conditions, ConditionType.HALTED)
    if failures := _failure_halt(rollout, inputs, progress):
        known = before is not None and before.reason == Reason.GATE_TIMEOUT
        is_same = known and before is not None and before.message == failures
        return _Halt(Reason.GATE_TIMEOUT if is_same else Reason.TOO_MANY_FAILURES, failures)
    timeout = gate_timeout(rollout, inputs)
    if timeout is None or timeout.at > now:  # mutant: gate-timeouts-ignored
        return None
    return _Halt(Reason.GATE_TIMEOUT, timeout.message)


def _failure_halt(rollout: api.NodeRollout, inputs: StatusInputs, progress: _NodeProgress) -> str:
    """Return why the rollout is halted already, or by its failures; empty if it is not."""
    if rollout.spec.cancel and progress.remaining == 0:
        return ""  # no node is left that a resume could start
    before = find_condition(rollout.status.conditions, ConditionType.HALTED)
    if rollout.status.phase is api.RolloutPhase.HALTED and not is_resumed(rollout):
        return before.message if before is not None and before.message else "too many failures"
    counts = history.count_failures(inputs.children.values(), resumed=resume_token(rollout))
    # Consecutive failures do not matter any more once every node is finished.
    if progress.remaining == 0 and counts.failed <= history.max_failures(rollout):
        return ""
    return history.halt_reason(rollout, counts)


def is_resumed(rollout: api.NodeRollout) -> bool:
    """Return whether the user has resumed a halted rollout: nothing else ends a halt."""
    limit = rollout.status.halted_max_failures
    raised = limit is not None and history.max_failures(rollout) > limit
    return raised or resume_token(rollout) != rollout.status.resumed


def _halted_max_failures(rollout: api.NodeRollout) -> int:
    """Return `maxFailures` at the time of the halt, so that a higher value is noticed later."""
    if rollout.status.phase is api.RolloutPhase.HALTED and not is_resumed(rollout):
        return rollout.status.halted_max_failures or 0
    return history.max_failures(rollout)


def _phase(rollout: api.NodeRollout, progress: _NodeProgress, *, halted: bool) -> api.RolloutPhase:
    if halted:
        return api.RolloutPhase.HALTED
    if progress.remaining == 0:
        return api.RolloutPhase.COMPLETED
    if progress.all_created or rollout.status.phase in {
        api.RolloutPhase.IN_PROGRESS,
        api.RolloutPhase.HALTED,
    }:
        return api.RolloutPhase.IN_PROGRESS
    return api.RolloutPhase.NEW


def _estimate(
    rollout: api.NodeRollout, inputs: StatusInputs, progress: _NodeProgress, phase: api.RolloutPhase
) -> datetime | None:
    if phase is not api.RolloutPhase.IN_PROGRESS or rollout.spec.paused:
        return None
    return estimate_completion(
        inputs.children.values(),
        remaining=progress.remaining,
        concurrent=history.max_concurrent(rollout),
        settle_seconds=rollout.spec.strategy.settle_seconds,
    )


def _counts(
    nodes: Iterable[api.PlannedNode], completed: frozenset[str], failed: frozenset[str]
) -> tuple[api.PriorityCount, ...]:
    kept = tuple(nodes)
    total = Counter(node.priority for node in kept)
    done = Counter(node.priority for node in kept if node.name in completed)
    lost = Counter(node.priority for node in kept if node.name in failed)
    return tuple(
        api.PriorityCount(priority, total[priority], done[priority], lost[priority])
        for priority in sorted(total, reverse=True)
    )


def _blocked(inputs: StatusInputs) -> tuple[api.BlockedPod, ...]:
    pods = [
        api.BlockedPod(
            node=drain.spec.node_name,
            pod=f"{blocker.namespace}/{blocker.pod}",
            reason=blocker.reason,
            budget=blocker.budget,
            since=blocker.first_seen,
        )
        for drain in inputs.drains
        for blocker in drain.status.blockers
    ]
    return tuple(sorted(pods, key=lambda pod: (pod.node, pod.pod)))


class _ConditionSet:
    """The conditions of a rollout, changed one after the other."""

    def __init__(self, rollout: api.NodeRollout, now: datetime) -> None:
        self.result = rollout.status.conditions
        self._generation = rollout.metadata.generation
        self._now = now

    def set(self, type_: ConditionType, is_so: bool, reason: Reason, message: str = "") -> None:
        new = Condition(
            type=type_,
            status="True" if is_so else "False",
            reason=reason,
            message=message,
            observed_generation=self._generation,
        )
        self.result = set_condition(self.result, new, now=self._now)

    def clear(self, type_: ConditionType, reason: Reason) -> None:
        """Set a condition to false if it exists; one that was never true is not written."""
        if find_condition(self.result, type_) is not None:
            self.set(type_, False, reason)

    def set_creation(self, error: str, *, all_created: bool) -> None:
        if error:
            self.set(ConditionType.REPLACEMENTS_CREATED, False, Reason.CREATION_FAILED, error)
        elif all_created:
            self.set(ConditionType.REPLACEMENTS_CREATED, True, Reason.CREATED)

    def set_halt(self, halt: _Halt | None) -> None:
        if halt is not None:
            self.set(ConditionType.HALTED, True, halt.reason, halt.message)
        else:
            self.clear(ConditionType.HALTED, Reason.RESUMED)

    def set_strategy(self, invalid: str) -> None:
        if invalid:
            self.set(ConditionType.STRATEGY_INVALID, True, Reason.INVALID_STRATEGY, invalid)
        else:
            self.clear(ConditionType.STRATEGY_INVALID, Reason.STRATEGY_VALID)

    def set_approval(self, refused: str | None) -> None:
        """Report a refused approval, until another one is accepted or the annotation is gone."""
        if refused:
            self.set(ConditionType.APPROVAL_REFUSED, True, Reason.WRONG_APPROVAL, refused)
        elif refused is not None:
            self.clear(ConditionType.APPROVAL_REFUSED, Reason.APPROVAL_ENDED)

    def set_pause(self, *, paused: bool) -> None:
        if paused:
            self.set(ConditionType.PAUSED, True, Reason.PAUSED, "spec.paused is set")
        else:
            self.clear(ConditionType.PAUSED, Reason.RESUMED)

    def set_cancel(self, *, cancelled: bool) -> None:
        if cancelled:
            message = "spec.cancel is set: nodes that have not started are not replaced"
            self.set(ConditionType.CANCELLED, True, Reason.CANCELLED, message)
        else:
            self.clear(ConditionType.CANCELLED, Reason.RESUMED)

    def set_progress(self, phase: api.RolloutPhase, progress: _NodeProgress) -> None:
        type_ = ConditionType.REPLACEMENTS_IN_PROGRESS
        failed, cancelled = len(progress.failed), len(progress.cancelled)
        match phase:
            case api.RolloutPhase.COMPLETED if cancelled:
                message = (
                    f"{cancelled} of {progress.total} nodes were cancelled before they started; "
                    f"{len(progress.completed)} were replaced and {failed} failed"
                )
                self.set(type_, False, Reason.ROLLOUT_CANCELLED, message)
            case api.RolloutPhase.COMPLETED if failed:
                message = f"{failed} nodes failed, not more than maxFailures allows"
                self.set(type_, False, Reason.COMPLETED_WITH_FAILURES, message)
            case api.RolloutPhase.COMPLETED:
                self.set(type_, False, Reason.COMPLETED)
            case api.RolloutPhase.HALTED:
                self.set(type_, False, Reason.ROLLOUT_HALTED)
            case api.RolloutPhase.IN_PROGRESS:
                self.set(type_, True, Reason.IN_PROGRESS)
            case api.RolloutPhase.NEW:
                pass
            case _:
                assert_never(phase)


def _names_missing(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_MISSING_NAMES])
    more = len(names) - _MAX_MISSING_NAMES
    return f"no node has the name {shown}" + (f" and {more} more" if more > 0 else "")
