"""The pods of the nodes under drain: one watch per active drain, and lists from the server."""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from navarchos.client import Client, ListOptions, NotFound
from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.drain import (
    DAEMON_SETS,
    PODS,
    DaemonSet,
    DrainOptions,
    DrainPlan,
    Pod,
    classify,
    pods_on,
)
from navarchos.informers import InformerOptions, Scope, SharedInformer
from navarchos.informers.source import informer_rbac
from navarchos.instrument import Instruments
from navarchos.operator.api import v1alpha1 as api

__all__ = ["RBAC", "WATCH_RBAC", "NodePods", "PodWatches"]

_JOIN_TIMEOUT: Final = 10.0
_TIMEOUT: Final = 10.0

WATCH_RBAC: Final = informer_rbac(PODS)
"""The permissions (RBAC) of the watches. RBAC cannot be limited by a selector."""

RBAC: Final = (
    PolicyRule(PODS, ("list",)),
    PolicyRule(DAEMON_SETS, ("get",)),  # the cache may be late, and a refusal is final
)
"""The permissions (RBAC) of reads from the server, besides watches and caches."""


class PodWatches:
    """Informers on `spec.nodeName=<node>`, started and stopped with the drains.

    Memory therefore follows the number of nodes under drain, not the size of the cluster. After
    a restart the informers are created again from the drains.

    Args:
        client: Lists and watches.
        on_change: Called with a drain's name when a pod of its node changed, from a thread of
            the informer; must be quick.
        clock: Time.
        instruments: Where informers count.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        client: Client,
        *,
        on_change: Callable[[str], None],
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        self._pods = client.resource(PODS)
        self._on_change = on_change
        self._clock = clock
        self._instruments = instruments
        self._watches_lock = threading.Lock()
        # guarded by _watches_lock; by drain
        self._active: dict[str, SharedInformer[Pod]] = {}
        self._ending: list[SharedInformer[Pod]] = []  # guarded by _watches_lock
        self._closed = False  # guarded by _watches_lock

    def __len__(self) -> int:
        with self._watches_lock:
            return len(self._active)

    def active(self) -> Sequence[SharedInformer[Pod]]:
        """Return the informers of the active drains."""
        with self._watches_lock:
            return list(self._active.values())

    def pods(self, drain: str, node: str) -> Sequence[Pod] | None:
        """Return the pods of the node; the first call starts the watch.

        Returns:
            `None` while the informer has not synced.
        """
        informer = self._informer(drain, node)
        if informer is None or not informer.has_synced():
            return None
        return informer.lister.list()

    def drop(self, drain: str) -> None:
        """Stop the watch of a drain that has ended, without waiting for its thread."""
        with self._watches_lock:
            informer = self._active.pop(drain, None)
            if informer is not None:
                self._ending.append(informer)
        if informer is not None:
            informer.stop()
        self._reap()

    def close(self) -> None:
        """Stop all watches and wait until their threads have ended."""
        with self._watches_lock:
            self._closed = True
            self._ending.extend(self._active.values())
            self._active.clear()
            ending = list(self._ending)
        for informer in ending:
            informer.stop()
        deadline = self._clock.monotonic() + _JOIN_TIMEOUT
        for informer in ending:
            informer.join(max(0.0, deadline - self._clock.monotonic()))

    def _informer(self, drain: str, node: str) -> SharedInformer[Pod] | None:
        with self._watches_lock:
            if self._closed:
                return None
            known = self._active.get(drain)
            if known is not None:
                return known
            informer = self._make(drain, node)
            self._active[drain] = informer
        informer.start()
        return informer

    def _make(self, drain: str, node: str) -> SharedInformer[Pod]:
        informer = SharedInformer(
            self._pods,
            Scope(field_selector=pods_on(node)),
            InformerOptions(name="drain-pods"),
            clock=self._clock,
            instruments=self._instruments,
        )

        def changed(*_: object) -> None:
            self._on_change(drain)

        informer.add_handler(on_add=changed, on_update=changed, on_delete=changed)
        return informer

    def _reap(self) -> None:
        with self._watches_lock:
            self._ending = [informer for informer in self._ending if not informer.join(0)]


class NodePods:
    """Reads and classifies the pods of a node, from the watch or from the server.

    Threads: safe from any thread.
    """

    def __init__(
        self, client: Client, watches: PodWatches, daemon_sets: SharedInformer[DaemonSet]
    ) -> None:
        self._pods = client.resource(PODS)
        self._daemon_sets = client.resource(DAEMON_SETS)
        self._watches = watches
        self._cached_daemon_sets = daemon_sets

    def from_cache(
        self, drain: api.NodeDrain, options: DrainOptions, now: datetime
    ) -> DrainPlan | None:
        """Return the plan for the watched pods; `None` while the watch has not synced.

        The first call starts the watch.
        """
        pods = self._watches.pods(drain.metadata.name, drain.spec.node_name)
        return None if pods is None else classify(pods, options, self._exists, now=now)

    def from_server(self, drain: api.NodeDrain, options: DrainOptions, now: datetime) -> DrainPlan:
        """Return the plan for the pods as the server has them now.

        Raises:
            DecodeError: A pod cannot be decoded. It may be a pod that must leave the node.
        """
        found = self._pods.list(
            options=ListOptions(field_selector=pods_on(drain.spec.node_name)), timeout=_TIMEOUT
        )
        if found.failures:
            raise found.failures[0]
        return classify(found.items, options, self._exists, now=now)

    def forget(self, drain: str) -> None:
        """Stop the watch of a drain that has ended."""
        self._watches.drop(drain)

    def _exists(self, namespace: str, name: str) -> bool:
        # The cache may not have the DaemonSet yet. Its pods would then be refused, and a
        # refusal is final.
        if self._cached_daemon_sets.lister.find(name, namespace) is not None:
            return True
        try:
            self._daemon_sets.get(name, namespace, timeout=_TIMEOUT)
        except NotFound:
            return False
        return True
