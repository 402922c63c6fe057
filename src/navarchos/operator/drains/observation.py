"""What one reconcile of a drain knows, and what follows from it. Pure; nothing is read here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Final

from navarchos.drain import LATE_BINDING, DrainPlan, PlannedPod
from navarchos.errors import ConfigError
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains.batch import EvictionAttempt
from navarchos.operator.drains.cordon import CordonDecision, decide_cordon
from navarchos.operator.drains.preparing import PrepareDecision, decide_preparation, is_prepared
from navarchos.operator.drains.settings import DrainSettings
from navarchos.operator.drains.successors import Successor
from navarchos.operator.nodes import Node
from navarchos.operator.reasons import ConditionType
from navarchos.runtime.conditions import find_condition, is_true

__all__ = ["DrainObservation", "Read", "owner_key"]

_WHOLE_SECOND: Final = 1.0
"""Times in status are cut to whole seconds, so a span may seem shorter by this much."""


class Read(Enum):
    """What a decision must know beyond the drain and the memory of this process.

    Each read may cost a request, so it is made only when a decision asks for it.
    """

    NODE = auto()
    """The node, from the cache if the cache has it."""
    LIVE_NODE = auto()
    """The node as the server has it now."""
    PODS = auto()
    """The pods of the node, from a watch that this read starts."""
    LIVE_PODS = auto()
    """The pods of the node as the server has them now."""
    LIVE_DRAIN = auto()
    """The drain as the server has it now: the cache drops the pods from an ended drain."""
    SUCCESSORS = auto()
    """The Deployments of the pods that may be replaced first, from the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainObservation:
    """What one reconcile knows.

    Attributes:
        drain: The drain, from the cache.
        settings: The parsed spec, or the error in it.
        now: The present time, in whole seconds like the times in status.
        monotonic: The present time on the monotonic clock.
        is_suspended: Whether the drain is paused; once it has been reported, whether the
            replacement or rollout above it is paused or being deleted.
        is_held: Whether an action may still affect the node of a drain that is being deleted.
        is_halted: Whether the process may not send evictions any more.
        attempts: The last request for each pod, by uid.
        cordoned_for: Seconds since this process cordoned the node; `None` if it did not.
        status_wait: Seconds until the status may be written; 0 if it may be written now.
        reads: What was read in addition.
        node: The node; `None` if it is gone or was not read.
        plan: The classified pods; `None` if they were not read, or their watch has not synced.
        live_drain: The drain from the server; `None` if it is gone or was not read.
        successors: What is known about the successors of pods, by uid of the pod.
    """

    drain: api.NodeDrain
    settings: DrainSettings | ConfigError
    now: datetime
    monotonic: float
    is_suspended: bool
    is_halted: bool
    attempts: Mapping[str, EvictionAttempt]
    cordoned_for: float | None
    status_wait: float
    is_held: bool = False
    reads: frozenset[Read] = frozenset()
    node: Node | None = None
    plan: DrainPlan | None = None
    live_drain: api.NodeDrain | None = None
    successors: Mapping[str, Successor] = field(default_factory=dict)

    @property
    def started_at(self) -> datetime | None:
        """The time from which timeouts count: the first eviction; `None` before it.

        When a pause ends, the time moves by the duration of the pause.
        """
        return self._without_pause(self.drain.status.start_timestamp)

    @property
    def prepare_started_at(self) -> datetime | None:
        """The time from which the timeout of the preparation counts; `None` before it began."""
        return self._without_pause(self.drain.status.prepare_timestamp)

    def _without_pause(self, start: datetime | None) -> datetime | None:
        status = self.drain.status
        if start is None or self.is_suspended:
            return start
        if not is_true(status.conditions, ConditionType.PAUSED):
            return start
        condition = find_condition(status.conditions, ConditionType.PAUSED)
        paused_at = condition.last_transition_time if condition is not None else None
        return start + (self.now - max(start, paused_at)) if paused_at is not None else start

    @property
    def elapsed(self) -> float:
        """Seconds since the first eviction on the node; 0 before it."""
        start = self.started_at
        return max(0.0, (self.now - start).total_seconds()) if start is not None else 0.0

    @property
    def cordon(self) -> CordonDecision | None:
        """What to do about the cordon; `None` without a node."""
        return None if self.node is None else decide_cordon(self.node, self.drain)

    @property
    def preparation(self) -> PrepareDecision | None:
        """What to do before pods are evicted; `None` if there is nothing to do any more."""
        status = self.drain.status
        if self.node is None or status.has_begun or is_prepared(status):
            return None
        began_at = self.prepare_started_at or self.now
        return decide_preparation(self.drain, self.node, self.plan, began_at, self.now)

    @property
    def late_binding_wait(self) -> float:
        """Seconds until an empty node counts as drained."""
        if not self.drain.spec.evicts:
            return 0.0
        if self.cordoned_for is not None:
            return max(0.0, LATE_BINDING - self.cordoned_for)
        # The time of the update, not of the transition: the wait starts again if the node was
        # cordoned once more.
        stored = find_condition(self.drain.status.conditions, ConditionType.NODE_CORDONED)
        is_stored = self.cordon is not None and stored and stored.reason == self.cordon.reason
        updated_at = stored.last_update_time if stored is not None and is_stored else None
        if updated_at is None:
            return LATE_BINDING
        return max(0.0, LATE_BINDING + _WHOLE_SECOND - (self.now - updated_at).total_seconds())

    @property
    def is_drained(self) -> bool:
        """Whether no pod must leave the node, and no late pod is expected."""
        return self.plan is not None and self.plan.is_drained and self.late_binding_wait <= 0

    @property
    def is_timed_out(self) -> bool:
        """Whether the timeout has passed.

        A paused drain has no timeout, and an empty node that only waits for late pods cannot
        time out.
        """
        if self.is_suspended or self.plan is None or self.plan.is_drained:
            return False
        return isinstance(self.settings, DrainSettings) and self.settings.is_timed_out(self.elapsed)

    @property
    def replace_first_ends_in(self) -> float | None:
        """Seconds for which pods still wait for their successors; 0: they are evicted (IG-77).

        `None` if there is no limit, because the drain has no timeout.
        """
        settings = self.settings
        if isinstance(settings, ConfigError) or not settings.replaces_first:
            return 0.0
        timeout = settings.options.timeout
        return None if timeout is None else max(0.0, timeout / 2 - self.elapsed)

    def waiting_for(self, kind: type[Successor]) -> dict[str, PlannedPod]:
        """Return the pods that wait for their successors and are in this state, by uid."""
        if self.plan is None or self.replace_first_ends_in == 0.0:
            return {}
        found = {planned.uid: planned for planned in self.plan.evict}
        return {uid: found[uid] for uid in found if isinstance(self.successors.get(uid), kind)}

    @property
    def must_store_first(self) -> bool:
        """Whether the status must be stored before the next eviction.

        The pods that were on the node, and the owners of the evicted pods, cannot be found out
        afterwards.
        """
        status = self.drain.status
        if status.start_timestamp is None or status.start_timestamp != self.started_at:
            return True
        if self.plan is None:
            return False
        pods, owners = frozenset(status.node_pods), frozenset(status.evicted_owners)
        evicted = (owner_key(planned) for planned in (*self.plan.evict, *self.plan.wait))
        return any(planned.name not in pods for planned in self.plan.to_go) or any(
            owner is not None and owner not in owners for owner in evicted
        )


def owner_key(planned: PlannedPod) -> api.OwnerKey | None:
    """Return the key of the pod's controller, as status records it."""
    owner = planned.pod.controller
    if owner is None:
        return None
    return api.OwnerKey(planned.pod.metadata.namespace, owner.kind, owner.name, owner.uid)
