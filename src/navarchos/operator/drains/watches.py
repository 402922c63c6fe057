"""The pods of the nodes under drain: one watch per active drain."""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from navarchos.client import Client
from navarchos.clock import Clock
from navarchos.drain import PODS, Pod, pods_on
from navarchos.informers import SharedInformer
from navarchos.informers.source import informer_rbac
from navarchos.instrument import Instruments

__all__ = ["RBAC", "PodWatches"]

_JOIN: Final = 10.0

RBAC: Final = informer_rbac(PODS)
"""What the watches need of the server. RBAC knows no selectors."""


class PodWatches:
    """Informers on `spec.nodeName=<node>`, started and stopped with the drains.

    So memory follows the number of nodes in flight, not the size of the cluster.
    After a restart they are made anew from the objects.

    Args:
        client: Lists and watches.
        on_change: Called with a drain's name when a pod of its node changed, from
            a thread of the informer; must be quick.
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
        """Return the pods of the node, and watch them from the first call on.

        Returns:
            `None` while the watch has not seen the node's pods yet.
        """
        informer = self._informer(drain, node)
        if informer is None or not informer.has_synced():
            return None
        return informer.lister.list()

    def drop(self, drain: str) -> None:
        """Stop watching for a drain that is over; does not wait for it."""
        with self._watches_lock:
            informer = self._active.pop(drain, None)
            if informer is not None:
                self._ending.append(informer)
        if informer is not None:
            informer.stop()
        self._reap()

    def close(self) -> None:
        """Stop all watches and wait until they have ended."""
        with self._watches_lock:
            self._closed = True
            self._ending.extend(self._active.values())
            self._active.clear()
            ending = list(self._ending)
        for informer in ending:
            informer.stop()
        deadline = self._clock.monotonic() + _JOIN
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
            field_selector=pods_on(node),
            clock=self._clock,
            instruments=self._instruments,
            name="drain-pods",
        )

        def changed(*_: object) -> None:
            self._on_change(drain)

        informer.add_handler(on_add=changed, on_update=changed, on_delete=changed)
        return informer

    def _reap(self) -> None:
        with self._watches_lock:
            self._ending = [informer for informer in self._ending if not informer.join(0)]
