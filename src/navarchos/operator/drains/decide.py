"""What to do about one drain, as a pure function of what one reconcile observes.

```text
being deleted ──> wait for an action that runs; uncordon the node, remove the finalizer
ended         ──> look for late pods for a minute                    [reads: pods, node, drain]
node is gone, or spec is invalid ──> end
not adopted   ──> adopt
not prepared  ──> set marks, wait for load balancers and hooks       [reads: pods, node]
not cordoned  ──> cordon                                             [read: node]
not recorded  ──> record the pods; the options may refuse the drain  [read: pods]
empty         ──> end                                                [read: pods]
timed out     ──> end
single replicas ──> ask Deployments for successors                   [reads: Deployments, node]
due           ──> evict                                              [read: node]
otherwise     ──> report progress
```

A decision is either one more read, or the actions and the report of this reconcile. Where the
status must be stored before an action, the decision has only the report, and the next reconcile
has the action. Where an action comes first, the next reconcile reports it at the latest, computed
from the objects again. So every reconcile writes the status at most once, and a process that dies
at any point is continued by the next one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Final, assert_never

from navarchos.drain import DrainPlan, PlannedPod
from navarchos.errors import ConfigError
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains import successors
from navarchos.operator.drains.batch import (
    TERMINATING_TOO_LONG_AFTER,
    EvictionRequest,
    eligible_pods,
    next_batch,
)
from navarchos.operator.drains.cordon import CordonDecision, CordonStep
from navarchos.operator.drains.observation import DrainObservation, Read
from navarchos.operator.drains.preparing import (
    PrepareDecision,
    PrepareOutcome,
    has_marks,
    is_prepared,
)
from navarchos.operator.drains.settings import DrainSettings
from navarchos.operator.names import DRAIN_FINALIZER
from navarchos.operator.nodes import Node
from navarchos.operator.reasons import Reason
from navarchos.operator.throttle import REQUEUE_SOON

__all__ = [
    "RECHECK_DELAYS",
    "Action",
    "AdoptDrain",
    "AskSuccessors",
    "CordonNode",
    "DrainDecision",
    "DropOwnership",
    "EvictPods",
    "ReleaseDrain",
    "Report",
    "ReturnMarks",
    "TakeMarks",
    "UncordonNode",
    "decide",
    "next_recheck",
]

_MAX_REQUESTS: Final = 64
"""The maximum number of requests of one reconcile, so that a reconcile takes seconds at most."""

_REQUEUE_UNSYNCED: Final = 0.1
_REQUEUE_SUSPENDED: Final = 5.0
"""Seconds. No event of the drain itself reports that the rollout above it was resumed."""

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
class AskSuccessors:
    """Make Deployments replace their pods.

    Attributes:
        pods: The pods, each with its Deployment.
    """

    pods: tuple[tuple[PlannedPod, successors.SuccessorDue], ...]


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
    | AskSuccessors
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
        return _release(seen)
    if seen.drain.status.is_final:
        return _recheck(seen)
    if not seen.reads & {Read.NODE, Read.LIVE_NODE}:
        return Read.NODE
    if seen.node is None or seen.cordon is None:
        return _end(Report.NODE_GONE)
    if isinstance(seen.settings, ConfigError):
        return _end(Report.INVALID_SPEC)
    return _decide_active(seen, seen.node, seen.cordon, seen.settings)


def _release(seen: DrainObservation) -> DrainDecision:
    drain = seen.drain
    if DRAIN_FINALIZER not in drain.metadata.finalizers:
        return DrainDecision(is_over=True)
    if seen.is_held:  # mutant: uncordoned-under-its-action
        return DrainDecision()
    undo: tuple[Action, ...] = (UncordonNode(),) if drain.spec.uncordon_on_delete else ()
    if has_marks(drain):  # mutant: marks-left-behind
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
        # An earlier drain of the node may have undone the cordon that the cache still shows.
        is_certain = seen.drain.spec.evicts or Read.LIVE_NODE in seen.reads
        return _end(Report.DRAINED) if is_certain else Read.LIVE_NODE
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
        eligible = eligible_pods(plan, seen.attempts, seen.now)
        if (first := _decide_successors(seen, eligible)) is not None:
            return first
        if seen.replace_first_ends_in != 0.0:
            delays += _successor_triggers(seen, settings)
            # mutant: evicted-before-its-successor
            eligible = tuple(
                planned
                for planned in eligible
                if not successors.waits_for_successor(seen.successors.get(planned.uid))
            )
        batch = next_batch(
            eligible,
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


def _decide_successors(
    seen: DrainObservation, eligible: Sequence[PlannedPod]
) -> DrainDecision | Read | None:
    """Ask Deployments with one replica for successors; `None` if none is to be asked (IG-77)."""
    if seen.replace_first_ends_in == 0.0 or seen.is_halted:
        return None
    candidates = [planned for planned in eligible if successors.may_have_successor(planned)]
    is_known = all(planned.uid in seen.successors for planned in candidates)
    if not is_known and Read.SUCCESSORS not in seen.reads:
        return Read.SUCCESSORS
    due = tuple(
        (planned, successor)
        for planned in candidates
        if isinstance(successor := seen.successors.get(planned.uid), successors.SuccessorDue)
    )
    if not due:
        return None
    # The pods may be on a new node of the same name, which is not drained.
    if Read.LIVE_NODE not in seen.reads:
        return Read.LIVE_NODE
    return DrainDecision((AskSuccessors(due),), None, REQUEUE_SOON)


def _successor_triggers(seen: DrainObservation, settings: DrainSettings) -> list[float]:
    """Return the seconds until pods no longer wait, and until a refused request is repeated."""
    delays = []
    is_refused = bool(seen.waiting_for(successors.SuccessorRefused))
    is_held = is_refused or bool(seen.waiting_for(successors.SuccessorAsked))
    if seen.replace_first_ends_in is not None and is_held:
        delays.append(seen.replace_first_ends_in)
    return [*delays, settings.options.eviction_retry] if is_refused else delays


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
