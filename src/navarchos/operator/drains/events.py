"""What drains record: events, metrics and log lines about transitions."""

from datetime import datetime
from typing import Final, assert_never

from navarchos.drain import PODS, EvictionOutcome, PlannedPod
from navarchos.events import EventType, Recorder, Reference
from navarchos.logs import get_logger
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains.metrics import DrainMetrics
from navarchos.operator.drains.preparing import has_unreadable_time
from navarchos.operator.drains.successors import Deployment
from navarchos.operator.reasons import ConditionType, EventReason, PrepareReason, Reason
from navarchos.runtime import find_condition

__all__ = ["DrainEvents"]

_MAX_NAMED: Final = 5
"""The maximum number of pods that one event names; status lists the others."""

_log = get_logger(__name__)


class DrainEvents:
    """Records what happened to a drain.

    Threads: safe from any thread.
    """

    def __init__(self, recorder: Recorder, metrics: DrainMetrics) -> None:
        self._recorder = recorder
        self._metrics = metrics

    def node_cordoned(self, drain: api.NodeDrain, message: str) -> None:
        """Record that the drain has cordoned its node."""
        self._normal(drain, EventReason.NODE_CORDONED, f"{_node(drain)}: {message}", "Cordon")

    def node_uncordoned(self, drain: api.NodeDrain) -> None:
        """Record that the drain has uncordoned its node."""
        message = f"{_node(drain)}: uncordoned, because this drain had cordoned it"
        self._normal(drain, EventReason.NODE_UNCORDONED, message, "Uncordon")

    def replaced_first(
        self, drain: api.NodeDrain, planned: PlannedPod, deployment: Deployment
    ) -> None:
        """Record that a Deployment was asked to replace a pod before it leaves the node."""
        self._metrics.count_replaced_first()
        message = f"Deployment {deployment.name} replaces pod {planned.name} first"
        self._normal(drain, EventReason.POD_REPLACED_FIRST, message, "Replace")
        _log.info(
            "pod_replaced_first",
            kind=PODS.kind,
            namespace=planned.pod.metadata.namespace,
            name=planned.pod.metadata.name,
            deployment=deployment.metadata.name,
        )

    def request_answered(self, outcome: EvictionOutcome) -> None:
        """Record the response to one eviction or deletion request."""
        self._metrics.count_request(outcome)

    def pods_evicted(self, drain: api.NodeDrain, pods: list[PlannedPod]) -> None:
        """Record the pods that one reconcile evicted or deleted, in one event."""
        if pods:
            message = f"evicted {len(pods)} pods of {_node(drain)}, {pods[0].name} first"
            self._normal(drain, EventReason.POD_EVICTED, message, "Evict")

    def budget_bypassed(self, drain: api.NodeDrain, planned: PlannedPod, bypassed: str) -> None:
        """Record the deletion of a pod that bypassed a budget.

        The event is related to the pod, so that each pod has its own: it is an audit trail.

        Args:
            drain: The drain.
            planned: The pod.
            bypassed: Which budget was bypassed, and by which rule.
        """
        self._recorder.record(
            api.NODE_DRAINS,
            drain,
            EventType.WARNING,
            str(EventReason.BUDGET_BYPASSED),
            f"deleted pod {planned.name}, bypassing {bypassed}",
            action="Delete",
            related=Reference.to(PODS, planned.pod),
        )

    def status_written(self, before: api.NodeDrain, after: api.NodeDrain, now: datetime) -> None:
        """Record what a status update changed: newly blocked pods, the end, late pods.

        Args:
            before: The drain before the update.
            after: The drain after it, with the same status if nothing had to be written.
            now: The present time.
        """
        self._record_preparation(before, after, now)
        self._record_blocked(before, after)
        if after.status.is_final and not before.status.is_final:
            self._record_end(after, now)
        if before.status.is_final and not after.status.is_final:
            drained = find_condition(after.status.conditions, ConditionType.NODE_DRAINED)
            _log.warning(
                "late_pods_found",
                kind=api.NODE_DRAINS.kind,
                name=after.metadata.name,
                message=drained.message if drained is not None else "",
            )

    def forget(self, drain: str) -> None:
        """Forget the metrics of a drain that has ended."""
        self._metrics.forget(drain)

    def _record_preparation(
        self, before: api.NodeDrain, after: api.NodeDrain, now: datetime
    ) -> None:
        old = find_condition(before.status.conditions, ConditionType.PREPARED)
        new = find_condition(after.status.conditions, ConditionType.PREPARED)
        if new is None:
            return
        message = f"{_node(after)}: {new.message}"
        if has_unreadable_time(after.status) and not has_unreadable_time(before.status):
            self._warning(after, EventReason.TIMESTAMP_UNREADABLE, message, "Prepare")
        if old is not None and old.reason == new.reason:
            return
        began_at = after.status.prepare_timestamp
        match PrepareReason(new.reason):
            case PrepareReason.PREPARED:
                self._metrics.observe_preparation(began_at, now)
                prepared = f"{_node(after)} is prepared"
                self._normal(after, EventReason.NODE_PREPARED, prepared, "Prepare")
            case PrepareReason.SKIPPED:
                self._metrics.observe_preparation(began_at, now)
                self._warning(after, EventReason.PREPARATION_SKIPPED, message, "Prepare")
                _log.warning(
                    "preparation_skipped",
                    kind=api.NODE_DRAINS.kind,
                    name=after.metadata.name,
                    error=new.message,
                )
            case PrepareReason.MARK_REMOVED_BY_OTHERS:
                self._warning(after, EventReason.MARK_REMOVED_BY_OTHERS, message, "Prepare")
            case (
                PrepareReason.WAITING_FOR_LOAD_BALANCERS
                | PrepareReason.WAITING_FOR_TIMESTAMP
                | PrepareReason.WAITING_FOR_HOOKS
            ):
                pass
            case reason:
                assert_never(reason)

    def _record_blocked(self, before: api.NodeDrain, after: api.NodeDrain) -> None:
        known = {blocker.uid for blocker in before.status.blockers}
        blockers = after.status.blockers
        new = [blocker for blocker in blockers if blocker.uid not in known]
        # The event of a failed drain says why the drain failed.
        if new and after.status.phase is not api.DrainPhase.FAILED:
            more = f"; and {len(new) - _MAX_NAMED} more" if len(new) > _MAX_NAMED else ""
            named = "; ".join(_describe(blocker) for blocker in new[:_MAX_NAMED])
            message = f"cannot evict {len(new)} pods: {named}{more}"
            self._warning(after, EventReason.EVICTION_BLOCKED, message, "Evict")
        since = min((b.first_seen for b in blockers if b.first_seen is not None), default=None)
        self._metrics.set_blocked(after.metadata.name, after.status.blocked, since)

    def _record_end(self, drain: api.NodeDrain, now: datetime) -> None:
        status = drain.status
        facts = {"kind": api.NODE_DRAINS.kind, "name": drain.metadata.name, "reason": status.reason}
        if status.phase is api.DrainPhase.FAILED:
            self._metrics.observe_end(api.DrainPhase.FAILED, status.start_timestamp, now)
            message = f"drain of {_node(drain)} failed: {status.message}"
            self._warning(drain, EventReason.DRAIN_FAILED, message, "Drain")
            _log.warning("drain_failed", error=status.message, **facts)
            return
        self._metrics.observe_end(api.DrainPhase.COMPLETED, status.start_timestamp, now)
        _log.info("drain_completed", **facts)
        if status.reason == Reason.NODE_DRAINED:
            message = f"{_node(drain)} is drained: {status.evicted} pods were evicted"
            self._normal(drain, EventReason.NODE_DRAINED, message, "Drain")

    def _warning(
        self, drain: api.NodeDrain, reason: EventReason, message: str, action: str
    ) -> None:
        self._recorder.record(
            api.NODE_DRAINS, drain, EventType.WARNING, str(reason), message, action=action
        )

    def _normal(self, drain: api.NodeDrain, reason: EventReason, message: str, action: str) -> None:
        self._recorder.record(
            api.NODE_DRAINS, drain, EventType.NORMAL, str(reason), message, action=action
        )


def _describe(blocker: api.Blocker) -> str:
    budget = f" {blocker.budget}" if blocker.budget else ""
    return f"{blocker.namespace}/{blocker.pod}: {blocker.reason}{budget}"


def _node(drain: api.NodeDrain) -> str:
    return f"node {drain.spec.node_name}"
