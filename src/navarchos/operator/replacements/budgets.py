"""Which budgets cover the pods of a few nodes: for the order of the line, nothing else."""

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
"""Nodes whose pods are listed for one pass of admission."""

RBAC: Final = (PolicyRule(PODS, ("list",)),)
"""What looking at nodes asks of the server."""

_FRESH: Final = 60.0
"""Seconds for which a waiting node is believed to keep its pods."""

_TIMEOUT: Final = 2.0
"""Seconds for a look. Nodes must not wait for what only improves their order."""

_log = get_logger(__name__)


def budgets_over(pods: Iterable[Pod], budgets: Callable[[str], Iterable[Budget]]) -> frozenset[str]:
    """Return the budgets that evicting a node's pods needs, as `namespace/name`. Pure.

    Args:
        pods: The pods of the node. Those that no drain evicts need nothing.
        budgets: Gives the budgets of a namespace.
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
    """Looks at the pods of nodes, one request for a node, and keeps names of budgets.

    Pods of the whole cluster are cached by nobody. A look is about the few nodes that
    stand next in line and those in flight; what is kept are the names of their budgets,
    as long as they are asked for. A node in flight takes no new pods, so that what was
    seen of it before it started is enough. Where there are no budgets nothing is asked.

    A hint: what it says may be a minute old, and a node that could not be looked at is
    left out.

    Threads: one thread only, that of admission.
    """

    def __init__(
        self,
        pods: ResourceClient[Pod],
        budgets: Callable[[str], Sequence[Budget]],
        clock: Clock,
    ) -> None:
        """Make one.

        Args:
            pods: Lists pods.
            budgets: Gives the cached budgets of a namespace; with "" those of all.
            clock: Time.
        """
        self._pods = pods
        self._budgets = budgets
        self._clock = clock
        self._seen: dict[str, _NodeBudgets] = {}

    def __call__(self, waiting: Sequence[str], busy: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Return the budgets over the pods of nodes, by node name.

        At most `MAX_LOOKUPS` nodes are looked at anew, those that wait first.

        Args:
            waiting: Nodes that are compared.
            busy: Nodes in flight.
        """
        if not self._budgets(""):
            self._seen.clear()
            return {}
        self._seen = {name: self._seen[name] for name in (*waiting, *busy) if name in self._seen}
        stale = [name for name in waiting if not self._is_fresh(name)]
        unseen = [name for name in busy if name not in self._seen]
        # The first of those compared may be in flight by then as well.
        for name in [*dict.fromkeys((*stale, *unseen))][:MAX_LOOKUPS]:
            try:
                self._look_at(name)
            except ClientError as error:
                # The order is then the plain one. Others would fail as well, or be as slow.
                _log.warning("budgets_unknown", node=name, error=str(error))
                break
        return {name: seen.budgets for name, seen in self._seen.items()}

    def _is_fresh(self, name: str) -> bool:
        seen = self._seen.get(name)
        return seen is not None and self._clock.monotonic() - seen.at < _FRESH

    def _look_at(self, name: str) -> None:
        found = self._pods.list(options=ListOptions(field_selector=pods_on(name)), timeout=_TIMEOUT)
        budgets = budgets_over(found.items, self._budgets)
        self._seen[name] = _NodeBudgets(self._clock.monotonic(), budgets)
