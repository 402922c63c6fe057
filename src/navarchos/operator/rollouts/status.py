"""A rollout's status, from its own children and nothing else (OP-04). Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from navarchos.operator.api.v1alpha1 import (
    BlockedPod,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
    NodeRolloutStatus,
    PlannedNode,
    PriorityCount,
    RolloutPhase,
    Step,
)
from navarchos.operator.history import (
    count_failures,
    drain_spans,
    halt_reason,
    max_concurrent,
    max_failures,
    mean_duration,
)
from navarchos.operator.rollouts.children import resume_token
from navarchos.operator.rollouts.plan import Plan
from navarchos.runtime.conditions import Condition, find_condition, set_condition
from navarchos.structs import differs_only_in

__all__ = [
    "MAX_BLOCKED",
    "StatusInputs",
    "compute_status",
    "estimate_completion",
    "initial_status",
    "only_counts_changed",
]

MAX_BLOCKED: Final = 50
"""The longest list of blocked pods; their count is complete."""


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """What a status is made from."""

    nodes: tuple[PlannedNode, ...]
    """The planned nodes, with the priorities that the present spec gives them."""
    children: Mapping[str, NodeReplacement] = field(default_factory=dict)
    """The rollout's own replacements, by node name."""
    drains: Sequence[NodeDrain] = ()
    """The drains of the children in flight."""
    creation_error: str = ""
    """Why some replacements could not be created, in words."""


def initial_status(rollout: NodeRollout, plan: Plan, now: datetime) -> NodeRolloutStatus:
    """Return the first status: the plan, recorded before any child exists (OP-03)."""
    status = NodeRolloutStatus(
        phase=RolloutPhase.NEW,
        observed_generation=rollout.metadata.generation,
        start_timestamp=now,
        nodes=plan.nodes,
        nodes_not_found=plan.not_found,
        plan=_counts(plan.nodes, frozenset(), frozenset()),
        resumed=resume_token(rollout),
    )
    conditions = ConditionSet(rollout, now)
    if plan.not_found:
        conditions.set("NodesFound", False, "NodesNotFound", _names_missing(plan.not_found))
    if not plan.nodes:
        conditions.set("ReplacementsCreated", False, "NoNodesMatched", _NOTHING)
        conditions.set("ReplacementsInProgress", False, "NoNodesMatched", _NOTHING)
        status = msgspec.structs.replace(
            status, phase=RolloutPhase.COMPLETED, completion_timestamp=now
        )
    return msgspec.structs.replace(status, conditions=conditions.conditions)


def compute_status(rollout: NodeRollout, inputs: StatusInputs, now: datetime) -> NodeRolloutStatus:
    """Return the status that the facts give; equal facts give an equal status.

    Raises:
        ConfigError: `maxFailures` or `maxConcurrent` is not a number or percentage.
    """
    progress = NodeProgress.of(rollout, inputs)
    halt = _halt(rollout, inputs, progress)
    phase = _phase(rollout, progress, halted=bool(halt))
    done = phase is RolloutPhase.COMPLETED
    blocked = _blocked(inputs)
    return msgspec.structs.replace(
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
        in_flight=tuple(sorted(progress.in_flight)),
        in_flight_count=len(progress.in_flight),
        stalled=tuple(sorted(progress.stalled)),
        stalled_count=len(progress.stalled),
        blocked=blocked[:MAX_BLOCKED],
        blocked_count=sum(drain.status.blocked for drain in inputs.drains),
        halted_max_failures=_halted_max_failures(rollout) if halt else None,
        resumed=resume_token(rollout),
        conditions=_conditions(rollout, inputs, progress, phase, halt, now),
    )


def only_counts_changed(before: NodeRolloutStatus, after: NodeRolloutStatus) -> bool:
    """Tell whether a status differs, and only by how many nodes have begun and ended well."""
    return differs_only_in(
        before,
        after,
        "estimated_completion",
        "plan",
        "replacements_completed",
        "replacements_completed_count",
        "in_flight",
        "in_flight_count",
    )


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """How far each planned node is, by name."""

    created: frozenset[str]
    completed: frozenset[str]
    failed: frozenset[str]
    in_flight: frozenset[str]
    stalled: frozenset[str]
    total: int

    @classmethod
    def of(cls, rollout: NodeRollout, inputs: StatusInputs) -> "NodeProgress":
        before, token = rollout.status, resume_token(rollout)
        # A child that exists knows best; one that was cleaned up after it had
        # finished stays what was recorded.
        known = {
            node.name: inputs.children[node.name].status
            for node in inputs.nodes
            if node.name in inputs.children
        }
        steps = {name: status.current for name, status in known.items()}
        gone = {node.name for node in inputs.nodes} - steps.keys()
        completed = _with(steps, Step.DONE) | (gone & set(before.replacements_completed))
        # A child that has not obeyed a resume yet is about to be tried again.
        forgiven = {name for name in known if token and known[name].resumed != token}
        failed = _with(steps, Step.FAILED) - forgiven | (gone & set(before.replacements_failed))
        return cls(
            created=frozenset(steps) | completed | failed,
            completed=completed,
            failed=failed,
            in_flight=frozenset(name for name in known if known[name].occupies_slot),
            stalled=frozenset(name for name in known if known[name].is_stalled),
            total=len(inputs.nodes),
        )

    @property
    def all_created(self) -> bool:
        return len(self.created) == self.total

    @property
    def remaining(self) -> int:
        return self.total - len(self.completed) - len(self.failed)


def _with(steps: Mapping[str, Step], wanted: Step) -> frozenset[str]:
    return frozenset(name for name, step in steps.items() if step is wanted)


def _halt(rollout: NodeRollout, inputs: StatusInputs, progress: NodeProgress) -> str:
    """Return why the rollout is halted, in words; empty when it is not (OP-08)."""
    before = find_condition(rollout.status.conditions, "Halted")
    if rollout.status.phase is RolloutPhase.HALTED and not _is_resumed(rollout):
        return before.message if before is not None and before.message else "too many failures"
    seen = count_failures(inputs.children.values(), resumed=resume_token(rollout))
    reason = halt_reason(rollout, seen)
    # Attempts in a row mean nothing any more once every node is finished.
    finished = progress.remaining == 0 and seen.failed <= max_failures(rollout)
    return "" if finished else reason


def _is_resumed(rollout: NodeRollout) -> bool:
    """Tell whether a person let a halted rollout go on: nothing else does."""
    limit = rollout.status.halted_max_failures
    raised = limit is not None and max_failures(rollout) > limit
    return raised or resume_token(rollout) != rollout.status.resumed


def _halted_max_failures(rollout: NodeRollout) -> int:
    """Keep the limit of the moment it was halted: raising it later must show."""
    if rollout.status.phase is RolloutPhase.HALTED and not _is_resumed(rollout):
        return rollout.status.halted_max_failures or 0
    return max_failures(rollout)


def _phase(rollout: NodeRollout, progress: NodeProgress, *, halted: bool) -> RolloutPhase:
    if halted:
        return RolloutPhase.HALTED
    if progress.remaining == 0:
        return RolloutPhase.COMPLETED
    if progress.all_created or rollout.status.phase in {
        RolloutPhase.IN_PROGRESS,
        RolloutPhase.HALTED,
    }:
        return RolloutPhase.IN_PROGRESS
    return RolloutPhase.NEW


def _estimate(
    rollout: NodeRollout, inputs: StatusInputs, progress: NodeProgress, phase: RolloutPhase
) -> datetime | None:
    if phase is not RolloutPhase.IN_PROGRESS or rollout.spec.paused:
        return None
    return estimate_completion(
        inputs.children.values(),
        remaining=progress.remaining,
        concurrent=max_concurrent(rollout),
        settle_seconds=rollout.spec.strategy.settle_seconds,
    )


def _counts(
    nodes: Iterable[PlannedNode], completed: frozenset[str], failed: frozenset[str]
) -> tuple[PriorityCount, ...]:
    kept = tuple(nodes)
    total = Counter(node.priority for node in kept)
    done = Counter(node.priority for node in kept if node.name in completed)
    lost = Counter(node.priority for node in kept if node.name in failed)
    return tuple(
        PriorityCount(priority, total[priority], done[priority], lost[priority])
        for priority in sorted(total, reverse=True)
    )


def _blocked(inputs: StatusInputs) -> tuple[BlockedPod, ...]:
    pods = [
        BlockedPod(
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


_NOTHING: Final = "no node matches spec.nodeSelectors or spec.nodeNames"


class ConditionSet:
    """Conditions, one set after the other."""

    def __init__(self, rollout: NodeRollout, now: datetime) -> None:
        self.conditions = rollout.status.conditions
        self._generation = rollout.metadata.generation
        self._now = now

    def set(self, type_: str, is_so: bool, reason: str, message: str) -> None:
        new = Condition(
            type=type_,
            status="True" if is_so else "False",
            reason=reason,
            message=message,
            observed_generation=self._generation,
        )
        self.conditions = set_condition(self.conditions, new, now=self._now)

    def clear(self, type_: str, reason: str) -> None:
        """Say that something is over; what never was needs no word."""
        if find_condition(self.conditions, type_) is not None:
            self.set(type_, False, reason, "")


def _conditions(
    rollout: NodeRollout,
    inputs: StatusInputs,
    progress: NodeProgress,
    phase: RolloutPhase,
    halt: str,
    now: datetime,
) -> tuple[Condition, ...]:
    conditions = ConditionSet(rollout, now)
    if inputs.creation_error:
        conditions.set(
            "ReplacementsCreated", False, "ErrorCreatingNodeReplacements", inputs.creation_error
        )
    elif progress.all_created:
        conditions.set("ReplacementsCreated", True, "CreatedNodeReplacements", "")
    if halt:
        conditions.set("Halted", True, "TooManyFailures", halt)
    else:
        conditions.clear("Halted", "Resumed")
    if rollout.spec.paused:
        conditions.set("Paused", True, "Paused", "spec.paused is set")
    else:
        conditions.clear("Paused", "Resumed")
    _mark_progress(conditions, phase, failed=len(progress.failed))
    return conditions.conditions


def _mark_progress(conditions: ConditionSet, phase: RolloutPhase, *, failed: int) -> None:
    match phase:
        case RolloutPhase.COMPLETED if failed:
            message = f"nodes that failed: {failed}, no more than maxFailures allows"
            conditions.set("ReplacementsInProgress", False, "CompletedWithSkipped", message)
        case RolloutPhase.COMPLETED:
            conditions.set("ReplacementsInProgress", False, "ReplacementsCompleted", "")
        case RolloutPhase.HALTED:
            conditions.set("ReplacementsInProgress", False, "RolloutHalted", "")
        case RolloutPhase.IN_PROGRESS:
            conditions.set("ReplacementsInProgress", True, "StillProgressing", "")
        case RolloutPhase.NEW:
            pass


def _names_missing(names: Sequence[str]) -> str:
    shown = ", ".join(names[:10])
    more = len(names) - 10
    return f"no node is named {shown}" + (f" and {more} more" if more > 0 else "")


def estimate_completion(
    children: Iterable[NodeReplacement], *, remaining: int, concurrent: int, settle_seconds: int
) -> datetime | None:
    """Extend the mean duration of the drained nodes to the remaining ones.

    The estimate counts from the last node that was finished, not from now, so it
    changes when a node finishes and at no other time.

    Args:
        children: The rollout's own replacements.
        remaining: Nodes that are not finished, those in flight included.
        concurrent: Nodes in flight at once.
        settle_seconds: The pause after each node.

    Returns:
        `None` while no node has been drained, or when none remains.
    """
    known = drain_spans(children)
    usual = mean_duration(known)
    if usual is None or remaining <= 0 or concurrent <= 0:
        return None
    rounds = -(-remaining // concurrent)
    last = max(end for _, end in known)
    estimate = last + rounds * (usual + timedelta(seconds=settle_seconds))
    return estimate.replace(microsecond=0)
