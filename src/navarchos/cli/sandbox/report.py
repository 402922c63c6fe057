"""What a run came to: for programs, for people, and as an exit status."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from navarchos.cli.sandbox.observer import Snapshot
from navarchos.operator.api.v1alpha1 import (
    NodeReplacement,
    NodeRollout,
    ReplacementPhase,
    RolloutPhase,
)
from navarchos.runtime.conditions import find_condition

__all__ = ["Report", "why_not_completed"]


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run of the sandbox.

    Attributes:
        rollouts: The rollouts as they stood at the end.
        nodes: Nodes of the cluster at its start.
        order: Node names in the order they were started.
        max_in_flight: Most nodes in flight at one moment.
        evictions: Evictions that the server granted.
        api_requests: Requests of the manager, by verb.
        manager_peak_memory: Bytes; 0 where the system does not tell.
        seconds: Real time from the creation of the rollouts to the end.
    """

    rollouts: Sequence[NodeRollout]
    nodes: int
    order: Sequence[str]
    max_in_flight: int
    evictions: int
    api_requests: Mapping[str, int]
    manager_peak_memory: int
    seconds: float

    def as_json(self) -> dict[str, object]:
        """Return the object that `-o json` prints."""
        return {
            "rollouts": [_rollout_as_json(rollout) for rollout in self.rollouts],
            "nodes": self.nodes,
            "order": list(self.order),
            "maxInFlight": self.max_in_flight,
            "evictions": self.evictions,
            "apiRequests": dict(sorted(self.api_requests.items())),
            "managerPeakMemoryMiB": round(self.manager_peak_memory / 2**20, 1),
            "seconds": round(self.seconds, 3),
        }

    def as_text(self) -> str:
        """Return one line per rollout and one for the whole run."""
        lines = [
            f"{r.metadata.name} {r.status.phase}: {r.status.replacements_completed_count} of "
            f"{len(r.status.nodes)} nodes replaced"
            for r in self.rollouts
        ]
        requests = sum(self.api_requests.values())
        lines.append(
            f"{self.seconds:.1f} s, {self.evictions} pods evicted, at most "
            f"{self.max_in_flight} in flight, {requests} requests, no budget violated"
        )
        return "\n".join(lines)


def _rollout_as_json(rollout: NodeRollout) -> dict[str, object]:
    status = rollout.status
    return {
        "name": rollout.metadata.name,
        "phase": str(status.phase or RolloutPhase.NEW),
        "created": status.replacements_created_count,
        "completed": status.replacements_completed_count,
        "failed": status.replacements_failed_count,
    }


def why_not_completed(snapshot: Snapshot, names: Sequence[str]) -> str:
    """Say in one line which rollouts are not completed, why, and what blocks."""
    rollouts = [r for r in snapshot.rollouts if r.metadata.name in names]
    parts = [
        f"{r.metadata.name} is {r.status.phase or RolloutPhase.NEW}{_because(r)}"
        for r in rollouts
        if r.status.phase is not RolloutPhase.COMPLETED
    ]
    parts += [
        f"{name} is gone" for name in names if name not in {r.metadata.name for r in rollouts}
    ]
    return "; ".join([*parts, *_blockers(rollouts, snapshot.replacements)])


def _because(rollout: NodeRollout) -> str:
    halted = find_condition(rollout.status.conditions, "Halted")
    if halted is not None and halted.status == "True":
        return f" ({halted.reason}: {halted.message})"
    done, total = rollout.status.replacements_completed_count, len(rollout.status.nodes)
    return f" ({done} of {total} nodes replaced)"


def _blockers(
    rollouts: Sequence[NodeRollout], replacements: Sequence[NodeReplacement]
) -> list[str]:
    blocked = [
        f"{entry.pod} on {entry.node}: {entry.reason} {entry.budget}".rstrip()
        for rollout in rollouts
        for entry in rollout.status.blocked
    ]
    failed = [
        f"{note.name} on {r.spec.node_name}: {note.reason}"
        for r in replacements
        if r.status.phase is ReplacementPhase.FAILED
        for note in r.status.failed_pods
    ]
    found = blocked or failed
    more = [f"and {len(found) - 3} more"] if len(found) > 3 else []
    return [f"blocked by {', '.join([*found[:3], *more])}"] if found else []
