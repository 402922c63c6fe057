"""The arithmetic of disruption budgets, as upstream's disruption controller does it.

Source: `pkg/controller/disruption/disruption.go`. Pure functions: the controller
feeds them from its caches, the invariant checker from its own books.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from navarchos.testing.cluster.kinds import BudgetStatus, Pod

__all__ = [
    "DELETION_TIMEOUT",
    "RequiredHealth",
    "disrupted_pods",
    "healthy_pods",
    "is_urgent",
    "required_health",
    "resolve",
    "status_of",
]

DELETION_TIMEOUT: Final = 120.0
"""Seconds after which an eviction that no deletion followed is forgotten."""


@dataclass(frozen=True, slots=True)
class RequiredHealth:
    """What a budget asks for: so many pods healthy of so many expected."""

    expected: int
    desired: int


def resolve(value: int | str, total: int) -> int:
    """Return a number, or a percentage of `total` rounded up.

    Upstream rounds both `minAvailable` and `maxUnavailable` up.

    Raises:
        ValueError: It is neither.
    """
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise ValueError(f"{value!r} is neither a number nor a percentage")
    return -(-int(value[:-1]) * total // 100)


def required_health(
    *,
    min_available: int | str | None,
    max_unavailable: int | str | None,
    pods: int,
    scale: Callable[[], int],
) -> RequiredHealth:
    """Return how many pods a budget expects, and how many have to be healthy.

    Args:
        min_available: `spec.minAvailable`.
        max_unavailable: `spec.maxUnavailable`; it wins where both are given.
        pods: How many pods the selector matches now.
        scale: Sum of the replicas that the controllers of those pods want. Asked
            only where the rule needs it: a plain `minAvailable` does not.
    """
    if max_unavailable is not None:
        expected = scale()
        return RequiredHealth(expected, max(0, expected - resolve(max_unavailable, expected)))
    if isinstance(min_available, str):
        expected = scale()
        return RequiredHealth(expected, resolve(min_available, expected))
    return RequiredHealth(pods, min_available or 0)


def disrupted_pods(
    pods: Iterable[Pod],
    recorded: Mapping[str, datetime],
    now: datetime,
    *,
    timeout: float = DELETION_TIMEOUT,
) -> dict[str, datetime]:
    """Return the evictions that the server has granted and no deletion shows yet.

    A pod that terminates, or is gone, needs no entry any more; one whose deletion
    has not come within `timeout` seconds will not come.
    """
    limit = timedelta(seconds=timeout)
    return {
        pod.metadata.name: recorded[pod.metadata.name]
        for pod in pods
        if pod.metadata.name in recorded
        and not pod.is_terminating
        and recorded[pod.metadata.name] + limit > now
    }


def healthy_pods(pods: Iterable[Pod], disrupted: Mapping[str, datetime]) -> int:
    """Count the pods that are ready and on no way out."""
    return sum(
        pod.is_ready and not pod.is_terminating and pod.metadata.name not in disrupted
        for pod in pods
    )


def status_of(
    health: RequiredHealth, healthy: int, disrupted: Mapping[str, datetime], generation: int
) -> BudgetStatus:
    """Return the status that follows from the counts."""
    spare = healthy - health.desired
    return BudgetStatus(
        observed_generation=generation,
        disrupted_pods=disrupted,
        disruptions_allowed=spare if spare > 0 and health.expected > 0 else 0,
        current_healthy=healthy,
        desired_healthy=health.desired,
        expected_pods=health.expected,
    )


def is_urgent(old: BudgetStatus, new: BudgetStatus) -> bool:
    """Tell whether a status has to be written at once.

    It has to when the server would decide otherwise by it: what is allowed, what is
    observed, and whether enough is healthy for pods that are not ready to go.
    """
    return (
        old.disruptions_allowed != new.disruptions_allowed
        or old.observed_generation != new.observed_generation
        or (old.current_healthy >= old.desired_healthy)
        != (new.current_healthy >= new.desired_healthy)
    )
