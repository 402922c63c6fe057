"""The only writer of NodeDrain objects: claims, releases, status."""

import threading
from dataclasses import dataclass
from typing import Final

from navarchos.client import Client
from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.informers import SharedInformer
from navarchos.operator.api.v1alpha1 import NODE_DRAINS, NodeDrain, NodeDrainStatus, status_diff
from navarchos.operator.drains.status import is_progress
from navarchos.operator.names import DRAIN_FINALIZER
from navarchos.operator.throttle import DeferredWrites

__all__ = ["RBAC", "DrainWriter", "Stored"]

_PACE: Final = 1.0
"""Seconds between two status writes of one drain (OP-47)."""

_PROGRESS: Final = 5.0
"""Seconds by which the number of pods that are left may be out of date in status. Pods that
leave together then cost no write: the end of the drain comes first."""

RBAC: Final = (
    PolicyRule(NODE_DRAINS, ("get",)),
    PolicyRule(NODE_DRAINS, ("patch",)),  # finalizer and nodeUID
    PolicyRule(NODE_DRAINS, ("patch",), subresource="status"),
)
"""What writing drains asks of the server."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a status.

    Attributes:
        drain: The drain as it is stored now.
        wait: Seconds until the status may be written; `None` if it is stored.
    """

    drain: NodeDrain
    wait: float | None = None


class DrainWriter:
    """Writes drains, each write on the condition that nobody wrote since.

    What was written is shown to the cache, so that the next pass reads it.

    Threads: safe from any thread, for one pass per drain at a time.
    """

    def __init__(
        self, client: Client, informer: SharedInformer[NodeDrain], *, clock: Clock
    ) -> None:
        self._drains = client.resource(NODE_DRAINS)
        self._informer = informer
        self._clock = clock
        self._written_lock = threading.Lock()
        self._written_at: dict[str, float] = {}  # guarded by _written_lock; monotonic
        self._progress = DeferredWrites(_PROGRESS, clock)

    def live(self, drain: NodeDrain) -> NodeDrain | None:
        """Return the drain as the server has it: caches do without the pods of ended ones.

        Returns:
            `None` if there is another one of its name by now.

        Raises:
            NotFound: It is gone.
        """
        found = self._drains.get(drain.metadata.name)
        return found if found.metadata.uid == drain.metadata.uid else None

    def claim(self, drain: NodeDrain, node_uid: str) -> NodeDrain:
        """Make sure that the drain has our finalizer and names one node for good.

        Nothing is done to the node before that.

        Raises:
            Conflict: The drain has changed; decide again.
        """
        meta = drain.metadata
        body: dict[str, object] = {}
        if DRAIN_FINALIZER not in meta.finalizers:
            body["metadata"] = {"finalizers": [*meta.finalizers, DRAIN_FINALIZER]}
        if not drain.spec.node_uid:
            body["spec"] = {"nodeUID": node_uid}
        return self._patch(drain, body) if body else drain

    def release(self, drain: NodeDrain) -> None:
        """Take our finalizer off, so that the drain can go.

        Raises:
            Conflict: The drain has changed; decide again.
        """
        left = [name for name in drain.metadata.finalizers if name != DRAIN_FINALIZER]
        # Not shown to the cache: the drain ends with this write.
        self._drains.patch(
            drain.metadata.name,
            {"metadata": {"finalizers": left}},
            uid=drain.metadata.uid,
            resource_version=drain.metadata.resource_version,
        )

    def store(self, drain: NodeDrain, status: NodeDrainStatus) -> Stored:
        """Write a status, unless it is there already or it is too early.

        Raises:
            Conflict: The drain has changed; decide again.
        """
        name = drain.metadata.name
        change = status_diff(drain.status, status)
        if not change:
            self._progress.clear(name)
            return Stored(drain)
        late = self._progress.due_in(name) if is_progress(drain.status, status) else 0.0
        wait = max(late, self.wait(name) or 0.0)
        if wait:
            return Stored(drain, wait)
        now = self._clock.monotonic()
        stored = self._patch(drain, {"status": change}, subresource="status")
        with self._written_lock:
            self._written_at[name] = now
        self._progress.clear(name)
        return Stored(stored)

    def wait(self, name: str) -> float | None:
        """Return the seconds until a drain's status may be written; `None` if it may be now."""
        now = self._clock.monotonic()
        with self._written_lock:
            wait = self._written_at.get(name, now - _PACE) + _PACE - now
        return wait if wait > 0 else None

    def forget(self, name: str) -> None:
        """Forget a drain that is gone."""
        with self._written_lock:
            self._written_at.pop(name, None)
        self._progress.clear(name)

    def _patch(
        self, drain: NodeDrain, body: dict[str, object], *, subresource: str = ""
    ) -> NodeDrain:
        meta = drain.metadata
        patched = self._drains.patch(
            meta.name,
            body,
            subresource=subresource,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
        self._informer.observe_write(patched)
        return patched
