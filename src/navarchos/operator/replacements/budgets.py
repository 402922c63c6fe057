"""Looks up which PodDisruptionBudgets cover the pods of a few nodes, to order waiting nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from navarchos.client import ClientError, ResourceClient
from navarchos.client.options import ListOptions
from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.drain import DAEMON_SETS, PODS, Budget, Pod, budgets_of, full_name, pods_on
from navarchos.logs import get_logger

__all__ = ["MAX_LOOKUPS", "RBAC", "BudgetLookup", "budgets_over"]

MAX_LOOKUPS: Final = 16
"""The largest number of nodes whose pods are listed for one run of admission."""

RBAC: Final = (PolicyRule(PODS, ("list",)),)
"""Permissions of the lookup."""

_FRESH: Final = 60.0
"""Seconds for which a lookup of a waiting node is used."""

_TIMEOUT: Final = 2.0
"""Seconds for one list request. It only improves the order, so nodes must not wait long."""

_log = get_logger(__name__)


def budgets_over(pods: Iterable[Pod], budgets: Callable[[str], Iterable[Budget]]) -> frozenset[str]:
    """Return the budgets over the pods that a drain of the node evicts, as `namespace/name`.

    Args:
        pods: The pods of the node. Pods that no drain evicts are ignored.
        budgets: Returns the budgets of a namespace.
    """
    return frozenset(
        full_name(budget.metadata)
        for pod in pods
        if _is_evicted(pod)
        for budget in budgets_of(pod, budgets(pod.metadata.namespace))
    )


def _is_evicted(pod: Pod) -> bool:
    owner = pod.controller
    stays = pod.is_mirror or (owner is not None and owner.kind == DAEMON_SETS.kind)
    return not (stays or pod.is_finished or pod.is_terminating)


@dataclass(frozen=True, slots=True)
class _NodeBudgets:
    at: float
    budgets: frozenset[str]


class BudgetLookup:
    """Lists the pods of nodes, one request per node, and remembers the names of their budgets.

    No cache holds the pods of the whole cluster. A lookup concerns the next few waiting nodes
    and the nodes in flight; names of budgets are remembered as long as they are asked for. A
    node in flight accepts no new pods, so that a lookup from before its start is sufficient.
    In a cluster without budgets no request is made.

    Does not promise: that the result is current or complete. It may be a minute old, and a node
    whose pods could not be listed is missing.

    Threads: one thread only, the thread of admission.
    """

    def __init__(
        self,
        pods: ResourceClient[Pod],
        budgets: Callable[[str], Sequence[Budget]],
        clock: Clock,
    ) -> None:
        """Create a lookup without results.

        Args:
            pods: Lists pods.
            budgets: Returns the cached budgets of a namespace; of all namespaces for "".
            clock: Time.
        """
        self._pods = pods
        self._budgets = budgets
        self._clock = clock
        self._seen: dict[str, _NodeBudgets] = {}

    def __call__(self, waiting: Sequence[str], busy: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Return the budgets over the pods of nodes, by node name.

        The pods of at most `MAX_LOOKUPS` nodes are listed, waiting nodes first.

        Args:
            waiting: Waiting nodes that are compared.
            busy: Nodes in flight.
        """
        if not self._budgets(""):
            self._seen.clear()
            return {}
        self._seen = {name: self._seen[name] for name in (*waiting, *busy) if name in self._seen}
        stale = [name for name in waiting if not self._is_fresh(name)]
        unseen = [name for name in busy if name not in self._seen]
        # The first compared node may be in both lists: it starts in this very run.
        for name in [*dict.fromkeys((*stale, *unseen))][:MAX_LOOKUPS]:
            try:
                self._look_up(name)
            except ClientError as error:
                # The nodes then start in their usual order. Further requests would probably fail
                # as well, or be as slow.
                _log.warning("budget_lookup_failed", kind="Node", name=name, error=str(error))
                break
        return {name: seen.budgets for name, seen in self._seen.items()}

    def _is_fresh(self, name: str) -> bool:
        seen = self._seen.get(name)
        return seen is not None and self._clock.monotonic() - seen.at < _FRESH

    def _look_up(self, name: str) -> None:
        found = self._pods.list(options=ListOptions(field_selector=pods_on(name)), timeout=_TIMEOUT)
        budgets = budgets_over(found.items, self._budgets)
        self._seen[name] = _NodeBudgets(self._clock.monotonic(), budgets)
