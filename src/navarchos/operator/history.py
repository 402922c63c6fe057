"""What the finished nodes of a rollout show: failures, limits and durations. Pure.

The rollout's controller writes `Halted` from it. Admission uses the same functions, because it
must not start a node in the moment before `Halted` is written (OP-08).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from navarchos.meta import EPOCH
from navarchos.operator.api.v1alpha1 import NodeReplacement, NodeRollout, Step, resolve_count
from navarchos.operator.reasons import Reason

__all__ = [
    "FailureCounts",
    "count_failures",
    "drain_spans",
    "halt_reason",
    "max_concurrent",
    "max_failures",
    "mean_duration",
    "node_gone",
]


@dataclass(frozen=True, slots=True)
class FailureCounts:
    """The failures of a rollout so far; failures that `navarchos resume` has reset do not count."""

    failed: int
    """Failed nodes, without another attempt."""
    consecutive: int
    """Attempts that failed since the last node was drained."""


def count_failures(children: Iterable[NodeReplacement], *, resumed: str) -> FailureCounts:
    """Count the failures among a rollout's own children.

    Args:
        children: The replacements that the rollout owns.
        resumed: The resume annotation that the rollout applied last. A child that has not
            applied it yet still shows failures that are being reset; they do not count.
    """
    kept = tuple(children)
    last_success = max((_succeeded_at(child) for child in kept), default=EPOCH)
    counted = [child for child in kept if not resumed or child.status.resumed == resumed]
    return FailureCounts(
        failed=sum(child.status.current is Step.FAILED for child in counted),
        consecutive=sum(
            failure.at > last_success for child in counted for failure in child.status.failures
        ),
    )


def halt_reason(rollout: NodeRollout, counts: FailureCounts) -> str:
    """Return why the rollout must be halted, in words; empty if it must not."""
    failures, concurrent = max_failures(rollout), max_concurrent(rollout)
    if counts.failed > failures:
        return f"{counts.failed} nodes failed, which is more than maxFailures ({failures})"
    if counts.consecutive > failures + concurrent:
        return (
            f"{counts.consecutive} consecutive attempts failed, which is more than maxFailures "
            f"({failures}) and maxConcurrent ({concurrent}) together"
        )
    return ""


def max_failures(rollout: NodeRollout) -> int:
    """Return the rollout's limit of failed nodes; a percentage is rounded down.

    Raises:
        ConfigError: The value is neither a number nor a percentage.
    """
    return resolve_count(
        rollout.spec.strategy.max_failures, len(rollout.status.nodes), round_up=False
    )


def max_concurrent(rollout: NodeRollout) -> int:
    """Return the limit of nodes in flight; a percentage is rounded up, to at least 1.

    Raises:
        ConfigError: The value is neither a number nor a percentage.
    """
    value = rollout.spec.strategy.max_concurrent
    resolved = resolve_count(value, len(rollout.status.nodes), round_up=True)
    return resolved if isinstance(value, int) else max(resolved, 1)


def node_gone(replacement: NodeReplacement) -> bool:
    """Return whether the replacement is done because its node was gone before it was drained."""
    step = replacement.status.step
    return step is not None and step.name is Step.DONE and step.reason == Reason.NODE_GONE


def drain_spans(children: Iterable[NodeReplacement]) -> list[tuple[datetime, datetime]]:
    """Return the start and the end of each drained node."""
    return [span for child in children if (span := _drain_span(child)) is not None]


def mean_duration(known: Iterable[tuple[datetime, datetime]]) -> timedelta | None:
    """Return the mean length of the spans; `None` without spans."""
    lengths = [end - start for start, end in known]
    return sum(lengths, timedelta()) / len(lengths) if lengths else None


def _succeeded_at(child: NodeReplacement) -> datetime:
    if child.status.current is not Step.DONE or node_gone(child):
        return EPOCH
    return child.status.completion_timestamp or EPOCH


def _drain_span(child: NodeReplacement) -> tuple[datetime, datetime] | None:
    status = child.status
    if status.current is not Step.DONE or node_gone(child):
        return None
    if status.start_timestamp is None or status.completion_timestamp is None:
        return None
    return status.start_timestamp, status.completion_timestamp
