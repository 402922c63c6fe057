"""What is to be done with the pods of a node, from its watch or from the server."""

from datetime import datetime
from typing import Final

from navarchos.client import Client, NotFound
from navarchos.client.options import ListOptions
from navarchos.client.rbac import PolicyRule
from navarchos.drain import DAEMON_SETS, PODS, DaemonSet, DrainOptions, DrainPlan, classify, pods_on
from navarchos.informers import SharedInformer
from navarchos.operator.api.v1alpha1 import NodeDrain
from navarchos.operator.drains.watches import PodWatches

__all__ = ["RBAC", "Survey"]

_TIMEOUT: Final = 10.0

RBAC: Final = (
    PolicyRule(PODS, ("list",)),
    PolicyRule(DAEMON_SETS, ("get",)),  # the cache may be late, and a refusal is for good
)
"""What looking at a node asks of the server, besides watches and caches."""


class Survey:
    """Looks at the pods of a node and classifies them.

    Threads: safe from any thread.
    """

    def __init__(
        self, client: Client, watches: PodWatches, daemon_sets: SharedInformer[DaemonSet]
    ) -> None:
        self._pods = client.resource(PODS)
        self._daemon_sets = client.resource(DAEMON_SETS)
        self._watches = watches
        self._known_daemon_sets = daemon_sets

    def watched(self, drain: NodeDrain, options: DrainOptions, now: datetime) -> DrainPlan | None:
        """Return the plan as the watch sees it; `None` while it sees nothing yet.

        The watch begins with the first call.
        """
        pods = self._watches.pods(drain.metadata.name, drain.spec.node_name)
        return None if pods is None else classify(pods, options, self._exists, now=now)

    def live(self, drain: NodeDrain, options: DrainOptions, now: datetime) -> DrainPlan:
        """Return the plan as the server sees it now.

        Raises:
            DecodeError: A pod could not be read: it may be one that has to go.
        """
        found = self._pods.list(
            options=ListOptions(field_selector=pods_on(drain.spec.node_name)), timeout=_TIMEOUT
        )
        if found.failures:
            raise found.failures[0]
        return classify(found.items, options, self._exists, now=now)

    def _exists(self, namespace: str, name: str) -> bool:
        # A cache that does not know the DaemonSet may be late; its pods would be
        # refused, and a refusal is for good.
        if self._known_daemon_sets.lister.find(name, namespace) is not None:
            return True
        try:
            self._daemon_sets.get(name, namespace, timeout=_TIMEOUT)
        except NotFound:
            return False
        return True
