"""What to do about one drain, as a pure function of what one reconcile observes.

```text
being deleted ──> uncordon the node, remove the finalizer
ended         ──> look for late pods for a minute                    [reads: pods, node, drain]
node is gone, or spec is invalid ──> end
not adopted   ──> adopt
not prepared  ──> set marks, wait for load balancers and hooks       [reads: pods, node]
not cordoned  ──> cordon                                             [read: node]
not recorded  ──> record the pods; the options may refuse the drain  [read: pods]
empty         ──> end                                                [read: pods]
timed out     ──> end
due           ──> evict                                              [read: node]
otherwise     ──> report progress
```

A decision is either one more read, or the actions and the report of this reconcile. Where the
status must be stored before an action, the decision has only the report, and the next reconcile
has the action. Where an action comes first, the next reconcile reports it at the latest, computed
from the objects again. So every reconcile writes the status at most once, and a process that dies
at any point is continued by the next one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Final, assert_never

from navarchos.drain import LATE_BINDING, DrainPlan, PlannedPod
from navarchos.errors import ConfigError
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains.batch import (
    TERMINATING_TOO_LONG_AFTER,
    EvictionAttempt,
    EvictionRequest,
    eligible_pods,
    next_batch,
)
from navarchos.operator.drains.cordon import CordonDecision, CordonStep, decide_cordon
from navarchos.operator.drains.preparing import (
    PrepareDecision,
    PrepareOutcome,
    decide_preparation,
    has_marks,
    is_prepared,
)
from navarchos.operator.drains.settings import DrainSettings
from navarchos.operator.names import DRAIN_FINALIZER
from navarchos.operator.nodes import Node
from navarchos.operator.reasons import ConditionType, Reason
from navarchos.operator.throttle import REQUEUE_SOON
from navarchos.runtime.conditions import find_condition, is_true

__all__ = [
    "RECHECK_DELAYS",
    "Action",
    "AdoptDrain",
    "CordonNode",
    "DrainDecision",
    "DrainObservation",
    "DropOwnership",
    "EvictPods",
    "Read",
    "ReleaseDrain",
    "Report",
    "ReturnMarks",
    "TakeMarks",
    "UncordonNode",
    "decide",
    "next_recheck",
    "owner_key",
]

_MAX_REQUESTS: Final = 64
"""The maximum number of requests of one reconcile, so that a reconcile takes seconds at most."""

_REQUEUE_UNSYNCED: Final = 0.1
_REQUEUE_SUSPENDED: Final = 5.0
"""Seconds. No event of the drain itself reports that the rollout above it was resumed."""

_WHOLE_SECOND: Final = 1.0
"""Times in status are cut to whole seconds, so a span may seem shorter by this much."""

RECHECK_DELAYS: Final = (3.0, 15.0, 60.0)
"""Seconds after the end of a drain at which its node is checked for late pods.

A scheduler that lost its connection to the API server decides on nodes as it last saw them: one
was seen to bind pods four seconds after a cordon, when the server was back. Nothing in the API
reports that a scheduler has caught up, and waiting for the worst case would cost a minute per
node. So a drain ends as soon as its node is probably empty, and the node is checked again. The
reflectors of client-go back off up to 30 s, and jitter doubles that: a scheduler is back within
a minute.
"""

_RECHECK_LATENESS: Final = 15.0
"""Seconds by which the last check may be late."""


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
        is_halted: Whether the process may not send evictions any more.
        attempts: The last request for each pod, by uid.
        cordoned_for: Seconds since this process cordoned the node; `None` if it did not.
        status_wait: Seconds until the status may be written; 0 if it may be written now.
        reads: What was read in addition.
        node: The node; `None` if it is gone or was not read.
        plan: The classified pods; `None` if they were not read, or their watch has not synced.
        live_drain: The drain from the server; `None` if it is gone or was not read.
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
    reads: frozenset[Read] = frozenset()
    node: Node | None = None
    plan: DrainPlan | None = None
    live_drain: api.NodeDrain | None = None

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


class Report(Enum):
    """What the status says after a reconcile; `status.py` computes the status from it."""

    PENDING = auto()
    """The drain is paused and has not begun."""
    PREPARING = auto()
    """The node is not prepared yet."""
    PREPARED = auto()
    PREPARE_FAILED = auto()
    CORDON = auto()
    """Only the cordon has changed."""
    CORDON_REFUSED = auto()
    """The API server has refused to cordon the node."""
    PROGRESS = auto()
    """The pods that were evicted, that remain, and that are blocked."""
    NODE_GONE = auto()
    INVALID_SPEC = auto()
    PODS_REFUSED = auto()
    TIMED_OUT = auto()
    DRAINED = auto()
    REOPENED = auto()
    """Late pods were found on the node of a completed drain."""


@dataclass(frozen=True, slots=True)
class AdoptDrain:
    """Add the finalizer to the drain and record the node's uid, before the node is changed."""

    node_uid: str


@dataclass(frozen=True, slots=True)
class CordonNode:
    """Cordon the node.

    Attributes:
        node: The node as it was observed.
        message: The message of the event.
    """

    node: Node
    message: str


@dataclass(frozen=True, slots=True)
class TakeMarks:
    """Set the marks of the drain on its node.

    Attributes:
        node: The node as the server has it.
    """

    node: Node


@dataclass(frozen=True, slots=True)
class ReturnMarks:
    """Give back the marks of the drain.

    Attributes:
        is_kept: Whether the node keeps them, because it stays cordoned.
    """

    is_kept: bool


@dataclass(frozen=True, slots=True)
class DropOwnership:
    """Remove the drain's annotation from a node that another client uncordoned."""

    node: Node


@dataclass(frozen=True, slots=True)
class UncordonNode:
    """Undo the drain's cordon."""


@dataclass(frozen=True, slots=True)
class ReleaseDrain:
    """Remove the finalizer from the drain."""


@dataclass(frozen=True, slots=True)
class EvictPods:
    """Send eviction requests."""

    requests: tuple[EvictionRequest, ...]
    settings: DrainSettings


Action = (
    AdoptDrain
    | TakeMarks
    | CordonNode
    | DropOwnership
    | UncordonNode
    | ReturnMarks
    | ReleaseDrain
    | EvictPods
)


@dataclass(frozen=True, slots=True)
class DrainDecision:
    """What one reconcile does.

    Attributes:
        actions: Carried out in this order.
        report: What to write to the status after the actions; `None` leaves the status as it is.
        requeue_after: Seconds until the next reconcile; `None` if only an event causes it.
        is_over: Whether the process forgets the drain once the status is stored.
    """

    actions: tuple[Action, ...] = ()
    report: Report | None = None
    requeue_after: float | None = None
    is_over: bool = False


def decide(seen: DrainObservation) -> DrainDecision | Read:
    """Return what to do, or what to read first."""
    if seen.drain.metadata.deletion_timestamp is not None:
        return _release(seen.drain)
    if seen.drain.status.is_final:
        return _recheck(seen)
    if not seen.reads & {Read.NODE, Read.LIVE_NODE}:
        return Read.NODE
    if seen.node is None or seen.cordon is None:
        return _end(Report.NODE_GONE)
    if isinstance(seen.settings, ConfigError):
        return _end(Report.INVALID_SPEC)
    return _decide_active(seen, seen.node, seen.cordon, seen.settings)


def _release(drain: api.NodeDrain) -> DrainDecision:
    if DRAIN_FINALIZER not in drain.metadata.finalizers:
        return DrainDecision(is_over=True)
    undo: tuple[Action, ...] = (UncordonNode(),) if drain.spec.uncordon_on_delete else ()
    if has_marks(drain):
        undo = (*undo, ReturnMarks(is_kept=not drain.spec.uncordon_on_delete))
    return DrainDecision((*undo, ReleaseDrain()), is_over=True)


def _end(report: Report) -> DrainDecision:
    return DrainDecision(report=report, is_over=True)


def _recheck(seen: DrainObservation) -> DrainDecision | Read:
    """Look for pods that were bound after the node had been drained (OP-44)."""
    is_due, requeue_after = next_recheck(seen.drain.status, seen.now)
    done = DrainDecision(requeue_after=requeue_after, is_over=True)
    if not is_due or seen.is_suspended or isinstance(seen.settings, ConfigError):
        return done
    has_late_pods = seen.plan is not None and bool(seen.plan.evict or seen.plan.wait)
    # The node is read after the pods: a client that uncordoned it wanted the pods to run there.
    for read, is_so in (
        (Read.LIVE_PODS, has_late_pods),
        (Read.LIVE_NODE, seen.node is not None and seen.node.spec.unschedulable),
        (Read.LIVE_DRAIN, seen.live_drain is not None and _may_reopen(seen.live_drain)),
    ):
        if read not in seen.reads:
            return read
        if not is_so:
            return done
    return DrainDecision(report=Report.REOPENED, requeue_after=REQUEUE_SOON)


def _may_reopen(drain: api.NodeDrain) -> bool:
    is_deleted = drain.metadata.deletion_timestamp is not None
    return drain.status.phase is api.DrainPhase.COMPLETED and not is_deleted


def next_recheck(status: api.NodeDrainStatus, now: datetime) -> tuple[bool, float | None]:
    """Return whether a check for late pods is due, and the seconds until the next one, if any.

    A function of the status alone, so that any process continues the checks.
    """
    ended_at = status.completion_timestamp
    if ended_at is None or status.reason != Reason.NODE_DRAINED:
        return False, None
    elapsed = (now - ended_at).total_seconds()
    if elapsed > RECHECK_DELAYS[-1] + _RECHECK_LATENESS:
        return False, None
    upcoming = min((delay - elapsed for delay in RECHECK_DELAYS if delay > elapsed), default=None)
    return elapsed >= RECHECK_DELAYS[0], upcoming


def _decide_active(
    seen: DrainObservation, node: Node, cordon: CordonDecision, settings: DrainSettings
) -> DrainDecision | Read:
    if DRAIN_FINALIZER not in seen.drain.metadata.finalizers or not seen.drain.spec.node_uid:
        return DrainDecision((AdoptDrain(node.metadata.uid),), requeue_after=REQUEUE_SOON)
    has_begun = seen.drain.status.has_begun
    if (first := _decide_before_cordon(seen, node)) is not None:
        return first
    match cordon.step:
        case CordonStep.NOTHING:
            return _decide_pods(seen, cordon, settings)
        case CordonStep.DROP_OWNERSHIP:
            return DrainDecision((DropOwnership(node),), Report.CORDON, _soon(seen))
        case CordonStep.CORDON if seen.status_wait > 0:
            # Status records how often the node was cordoned. Without that record the drain
            # would cordon a node again and again that a user uncordons.
            return DrainDecision(requeue_after=seen.status_wait)
        case CordonStep.CORDON:
            # The first status is written with the pods, which are listed after the cordon.
            report = Report.CORDON if has_begun else None
            return DrainDecision((CordonNode(node, cordon.message),), report, REQUEUE_SOON)
        case _:
            assert_never(cordon.step)


def _decide_before_cordon(seen: DrainObservation, node: Node) -> DrainDecision | Read | None:
    """Decide what comes before the cordon; `None` if the node may be cordoned.

    Without `spec.prepare` the pods are read after the cordon, so their hooks are waited for then.
    """
    status = seen.drain.status
    if seen.is_suspended and not status.has_begun:
        return DrainDecision(report=Report.PENDING)
    if seen.drain.spec.prepare is None or status.has_begun or is_prepared(status):
        return None
    if Read.PODS not in seen.reads:
        return Read.PODS
    if seen.plan is None:
        return DrainDecision(requeue_after=_REQUEUE_UNSYNCED)
    found = seen.preparation
    return None if found is None else _prepare(seen, node, found)


def _prepare(seen: DrainObservation, node: Node, found: PrepareDecision) -> DrainDecision | Read:
    match found.outcome:
        case PrepareOutcome.MARK if Read.LIVE_NODE not in seen.reads:
            # The cache leaves out most annotations, and the marks must be restored one day.
            return Read.LIVE_NODE
        case PrepareOutcome.MARK if seen.status_wait > 0:
            # Status records that a removed mark was set again.
            return DrainDecision(requeue_after=seen.status_wait)
        case PrepareOutcome.MARK:
            return DrainDecision((TakeMarks(node),), Report.PREPARING, _soon(seen))
        case PrepareOutcome.WAIT:
            return DrainDecision(report=Report.PREPARING, requeue_after=found.requeue_after)
        case PrepareOutcome.READY:
            return DrainDecision(report=Report.PREPARED, requeue_after=_soon(seen))
        case PrepareOutcome.FAIL:
            return _end(Report.PREPARE_FAILED)
        case _:
            assert_never(found.outcome)


def _decide_pods(
    seen: DrainObservation, cordon: CordonDecision, settings: DrainSettings
) -> DrainDecision | Read:
    if (read := _next_read_of_pods(seen)) is not None:
        return read
    if seen.plan is None:
        return DrainDecision(requeue_after=_REQUEUE_UNSYNCED)
    if not seen.drain.status.has_begun and seen.plan.refuse:
        return _end(Report.PODS_REFUSED)
    if seen.node is not None and (found := seen.preparation) is not None:
        return _prepare(seen, seen.node, found)
    if seen.is_drained and (seen.drain.spec.evicts or cordon.in_force):
        return _end(Report.DRAINED)
    return _decide_evictions(seen, seen.plan, settings)


def _next_read_of_pods(seen: DrainObservation) -> Read | None:
    status = seen.drain.status
    is_preparing = status.phase is api.DrainPhase.PREPARING and not is_prepared(status)
    has_begun = status.has_begun or is_preparing
    # The watch may be late. The first plan decides whether any pod is evicted at all, and an
    # empty one ends the drain.
    is_list_due = (not has_begun or seen.is_drained) and Read.LIVE_PODS not in seen.reads
    if not has_begun and not seen.drain.spec.evicts:
        # The list is enough, unless a pod with a hook must leave.
        if is_list_due:
            return Read.LIVE_PODS
        if seen.is_drained:
            return None
    if Read.PODS not in seen.reads:
        return Read.PODS
    return Read.LIVE_PODS if is_list_due else None


def _decide_evictions(
    seen: DrainObservation, plan: DrainPlan, settings: DrainSettings
) -> DrainDecision | Read:
    if seen.must_store_first:
        return DrainDecision(report=Report.PROGRESS, requeue_after=_soon(seen))
    if seen.is_timed_out and _ends_on_timeout(settings):
        return _end(Report.TIMED_OUT)
    delays = _time_triggers(seen, plan, settings)
    # mutant: eviction-while-paused
    if seen.cordon is not None and seen.cordon.in_force and not seen.is_suspended:
        batch = next_batch(
            eligible_pods(plan, seen.attempts, seen.now),
            seen.attempts,
            settings.escalation,
            elapsed=seen.elapsed,
            monotonic=seen.monotonic,
            limit=_MAX_REQUESTS,
        )
        if batch.requests and not seen.is_halted:
            # A new node of the same name may have replaced the one in the cache. The next
            # reconcile reports what came of the requests.
            evict = DrainDecision((EvictPods(batch.requests, settings),), None, REQUEUE_SOON)
            return evict if Read.LIVE_NODE in seen.reads else Read.LIVE_NODE
        delays += [batch.next_in] if batch.next_in is not None else []
    return DrainDecision(report=Report.PROGRESS, requeue_after=min(delays, default=None))


def _ends_on_timeout(settings: DrainSettings) -> bool:
    match settings.on_timeout:
        case api.TimeoutPolicy.FAIL:
            return True
        case api.TimeoutPolicy.HOLD:
            return False
        case _:
            assert_never(settings.on_timeout)


def _time_triggers(seen: DrainObservation, plan: DrainPlan, settings: DrainSettings) -> list[float]:
    """Return the seconds until each instant at which time alone changes the decision.

    The retries of evictions are not included.
    """
    delays = []
    timeout = settings.options.timeout
    if timeout is not None and not seen.is_suspended and seen.elapsed < timeout:
        delays.append(timeout - seen.elapsed)
    if seen.is_suspended and seen.drain.is_reported:
        delays.append(_REQUEUE_SUSPENDED)
    if plan.is_drained and seen.late_binding_wait > 0:
        delays.append(seen.late_binding_wait)
    limits = [TERMINATING_TOO_LONG_AFTER, settings.options.skip_wait_for_delete_timeout]
    for planned in plan.wait:
        overdue = planned.pod.overdue(seen.now)
        # A limit is exceeded only after its instant, hence at least one second.
        delays += [max(1.0, x - overdue) for x in limits if overdue is not None and x >= overdue]
    return delays


def _soon(seen: DrainObservation) -> float:
    """Return the seconds until the reconcile that follows the write of the status."""
    return max(REQUEUE_SOON, seen.status_wait)
