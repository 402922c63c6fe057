"""PodDisruptionBudgets: which pods a budget covers, and whether it allows an eviction.

The API server decides; these functions only explain and predict its decisions.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.client.selectors import LabelSelectorSpec, Selector
from navarchos.drain.pods import Pod
from navarchos.errors import ConfigError
from navarchos.meta import Object

__all__ = ["BUDGETS", "Budget", "BudgetSpec", "BudgetStatus", "budgets_of"]


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Which pods a budget covers, and how it treats pods that are not ready."""

    selector: LabelSelectorSpec | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """What the disruption controller last computed for the budget."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0


class Budget(Object, frozen=True):
    """A PodDisruptionBudget. Read-only."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    @property
    def is_current(self) -> bool:
        """Whether the status was computed for the present spec."""
        return self.status.observed_generation >= self.metadata.generation

    @property
    def allows_one(self) -> bool:
        """Whether a ready pod may be evicted now, as far as the status is current."""
        return self.is_current and self.status.disruptions_allowed > 0

    @property
    def can_never_allow(self) -> bool:
        """Whether the budget requires every pod that it covers, so that no eviction succeeds.

        This is `minAvailable` of all replicas, or `maxUnavailable: 0`.
        """
        return 0 < self.status.expected_pods <= self.status.desired_healthy

    def covers(self, pod: Pod) -> bool:
        """Return whether the budget covers the pod.

        As in `policy/v1`: an empty selector matches every pod of the namespace, an absent
        selector matches no pod, and so does an invalid one.
        """
        if self.spec.selector is None or pod.metadata.namespace != self.metadata.namespace:
            return False
        try:
            return Selector.from_spec(self.spec.selector).matches(pod.metadata.labels)
        except ConfigError:
            return False


BUDGETS: Final = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True, type=Budget
)


def budgets_of(pod: Pod, budgets: Iterable[Budget]) -> tuple[Budget, ...]:
    """Return the budgets that cover the pod, sorted by name.

    The API server refuses to evict a pod that more than one budget covers.
    """
    found = (budget for budget in budgets if budget.covers(pod))
    return tuple(sorted(found, key=lambda budget: budget.metadata.name))
