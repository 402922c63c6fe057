"""The arithmetic of disruption budgets, as in upstream's disruption controller.

Source: `pkg/controller/disruption/disruption.go`. These are pure functions: the controller
calls them with objects of its caches, the invariant checker with its own counts.
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
"""Seconds after which a granted eviction without a deletion is dropped."""


@dataclass(frozen=True, slots=True)
class RequiredHealth:
    """The pods that a budget expects, and how many of them must be healthy."""

    expected: int
    desired: int


def resolve(value: int | str, total: int) -> int:
    """Return a number, or a percentage of `total` rounded up.

    Upstream rounds both `minAvailable` and `maxUnavailable` up.

    Raises:
        ValueError: The value is neither a number nor a percentage.
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
    """Return how many pods a budget expects, and how many must be healthy.

    Args:
        min_available: `spec.minAvailable`.
        max_unavailable: `spec.maxUnavailable`, which has precedence.
        pods: Number of matching pods.
        scale: Returns the desired replicas of the controllers of these pods. Called only if
            the rule needs it; a plain `minAvailable` does not.
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
    """Return the granted evictions whose pods are not yet terminating.

    The entry of a terminating or missing pod is dropped, and so is an entry older than
    `timeout` seconds: its deletion is not expected any more.
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
    """Count the pods that are ready and neither terminating nor evicted."""
    return sum(
        pod.is_ready and not pod.is_terminating and pod.metadata.name not in disrupted
        for pod in pods
    )


def status_of(
    health: RequiredHealth, healthy: int, disrupted: Mapping[str, datetime], generation: int
) -> BudgetStatus:
    """Return the budget's status for these counts."""
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
    """Return whether a status must be written immediately.

    It must be if the eviction API would decide differently: the allowed disruptions or the
    observed generation changed, or enough pods became healthy, or too few, to evict pods
    that are not ready.
    """
    return (
        old.disruptions_allowed != new.disruptions_allowed
        or old.observed_generation != new.observed_generation
        or (old.current_healthy >= old.desired_healthy)
        != (new.current_healthy >= new.desired_healthy)
    )
