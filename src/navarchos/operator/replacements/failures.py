"""When a rollout has failed too often to go on (OP-08). Pure.

Both controllers ask here: the rollout's, which writes `Halted`, and admission,
which must not start a node in the moment before that is written.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from navarchos.meta import EPOCH
from navarchos.operator.api.v1alpha1 import NodeReplacement, NodeRollout, Step, resolve_count

__all__ = ["Tally", "max_concurrent", "max_failures", "node_gone", "tally", "too_many_failures"]

NODE_GONE: Final = "NodeGone"


@dataclass(frozen=True, slots=True)
class Tally:
    """What went wrong in a rollout so far, without what a person forgave."""

    failed: int
    """Nodes that failed for good."""
    in_a_row: int
    """Attempts that failed since the last node was drained."""


def tally(children: Iterable[NodeReplacement], *, resumed: str) -> Tally:
    """Count the failures among a rollout's own children.

    Args:
        children: The replacements that the rollout owns.
        resumed: The resume annotation that the rollout obeyed last. A child that
            has not obeyed it yet still shows failures that are forgiven.
    """
    kept = tuple(children)
    last_success = max((_succeeded_at(child) for child in kept), default=EPOCH)
    counted = [child for child in kept if not resumed or child.status.resumed == resumed]
    return Tally(
        failed=sum(child.status.current is Step.FAILED for child in counted),
        in_a_row=sum(
            failure.at > last_success for child in counted for failure in child.status.failures
        ),
    )


def too_many_failures(rollout: NodeRollout, seen: Tally) -> str:
    """Return why the rollout must be halted, in words; empty when it need not."""
    failures, concurrent = max_failures(rollout), max_concurrent(rollout)
    if seen.failed > failures:
        return f"{seen.failed} nodes failed for good, which is more than maxFailures ({failures})"
    if seen.in_a_row > failures + concurrent:
        return (
            f"{seen.in_a_row} attempts in a row failed, which is more than maxFailures "
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
    """Return the limit of nodes in flight; a percentage is rounded up to one at least.

    Raises:
        ConfigError: The value is neither a number nor a percentage.
    """
    value = rollout.spec.strategy.max_concurrent
    resolved = resolve_count(value, len(rollout.status.nodes), round_up=True)
    return resolved if isinstance(value, int) else max(resolved, 1)


def node_gone(replacement: NodeReplacement) -> bool:
    """Tell whether it is done because its node was gone, not because it was drained."""
    step = replacement.status.step
    return step is not None and step.name is Step.DONE and step.reason == NODE_GONE


def _succeeded_at(child: NodeReplacement) -> datetime:
    if child.status.current is not Step.DONE or node_gone(child):
        return EPOCH
    return child.status.completion_timestamp or EPOCH
