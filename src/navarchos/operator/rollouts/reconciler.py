"""The rollout's reconciler: plans, creates replacements, updates them, reports, cleans up."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from navarchos.client import Propagation
from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.errors import ConfigError
from navarchos.instrument import Instruments
from navarchos.logs import get_logger
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.clients import OWNER_INDEX, OperatorClients
from navarchos.operator.gates import GateMonitor, Records
from navarchos.operator.rollouts import status as statuses
from navarchos.operator.rollouts.children import ChildReconciler, ChildSync
from navarchos.operator.rollouts.events import RolloutEvents
from navarchos.operator.rollouts.metrics import RolloutMetrics
from navarchos.operator.rollouts.plan import make_plan, reprioritize
from navarchos.operator.throttle import REQUEUE_SOON, DeferredWrites, ScanThrottle, delay_factor
from navarchos.parallel import WorkerPool
from navarchos.runtime import (
    DONE,
    OUTDATED_READ,
    CacheNotCaughtUp,
    Reconciler,
    Request,
    Result,
    TerminalError,
)

__all__ = ["RBAC", "RolloutReconciler"]

_log = get_logger(__name__)

_CATCH_UP_TIMEOUT: Final = 30.0
_YIELD_DELAY: Final = 0.01
"""Seconds before the next reconcile of a large rollout: other rollouts come in between."""

_COUNTS_DELAY: Final = 1.0
"""Seconds for which changed lists of nodes are not written, and more in a large rollout.

Nothing is decided from these lists, and each write contains all nodes of the rollout.
"""

RBAC: Final = (
    PolicyRule(api.NODE_ROLLOUTS, ("patch",), subresource="status"),
    PolicyRule(api.NODE_ROLLOUTS, ("delete",)),  # after its ttlSecondsAfterFinished
)
"""Permissions of the reconciler."""


class RolloutReconciler(Reconciler):
    """Advances one rollout. Every decision is computed from the objects.

    The order matters: the plan is recorded before the first child exists, so that a crash can
    never lead to another set of nodes (OP-03), and children exist before the status says so.

    Threads: safe from any thread, for different rollouts.
    """

    def __init__(
        self,
        clients: OperatorClients,
        events: RolloutEvents,
        worker_pool: WorkerPool,
        clock: Clock,
        gates: GateMonitor | None = None,
        metrics: RolloutMetrics | None = None,
    ) -> None:
        self._metrics = metrics or RolloutMetrics(Instruments())
        self._clients = clients
        self._events = events
        self._clock = clock
        self._gates = gates
        self._children = ChildReconciler(clients, worker_pool)
        self._deferred = DeferredWrites(_COUNTS_DELAY, clock)
        self._throttle = ScanThrottle(clock)

    def reconcile(self, request: Request) -> Result:
        """Do what the rollout of this name needs now.

        Raises:
            TerminalError: Its spec is invalid; only an edit helps.
            CreationFailed: Some replacements could not be created.
        """
        rollout = self._clients.rollouts.find(request.name)
        if rollout is None or rollout.metadata.deletion_timestamp is not None:
            # The garbage collector deletes its children (OP-07).
            self._deferred.clear(request.name)
            self._throttle.forget(request.name)
            self._metrics.forget(request.name)
            return DONE
        pause = self._throttle.wait(request.name, _user_input(rollout))
        if pause is not None:
            return Result(requeue_after=pause)
        try:
            return self._advance(rollout)
        except OUTDATED_READ as error:
            _log.debug(
                "rollout_outdated", kind=api.NODE_ROLLOUTS.kind, name=request.name, error=str(error)
            )
            return Result(requeue=True)
        except ConfigError as error:
            raise TerminalError(f"rollout {request.name}: {error}") from error

    def _advance(self, rollout: api.NodeRollout) -> Result:
        if rollout.status.start_timestamp is None:
            rollout = self._start(rollout)
        self._metrics.observe(rollout)
        if rollout.status.phase is api.RolloutPhase.COMPLETED:
            return self._expire(rollout)
        nodes = self._nodes(rollout)
        synced = self._write_children(rollout, nodes)
        inputs = statuses.StatusInputs(
            nodes=nodes,
            children=synced.children,
            drains=self._drains(synced.children),
            creation_error=str(synced.failure) if synced.failure else "",
            gates=self._records(rollout),
        )
        now = self._clock.now()
        saved = self._report(rollout, statuses.compute_status(rollout, inputs, now))
        if synced.failure is not None:
            raise synced.failure
        if synced.unfinished:
            return Result(requeue_after=_YIELD_DELAY)
        self._throttle.record(rollout.metadata.name, len(nodes), _user_input(rollout))
        if saved.status.phase is api.RolloutPhase.COMPLETED:
            return self._expire(saved)
        due = [self._deferred.remaining(rollout.metadata.name), self._wave_due(saved)]
        if (timeout := statuses.gate_timeout(saved, inputs)) is not None:
            due.append(max(REQUEUE_SOON, (timeout.at - now).total_seconds()))
        after = min((seconds for seconds in due if seconds is not None), default=None)
        return DONE if after is None else Result(requeue_after=after)

    def _wave_due(self, rollout: api.NodeRollout) -> float | None:
        """Return the seconds until the current wave has soaked; `None` if it does not soak."""
        wave = rollout.status.wave
        if wave is None or wave.until is None:
            return None
        return max((wave.until - self._clock.now()).total_seconds(), _YIELD_DELAY)

    def _records(self, rollout: api.NodeRollout) -> Records:
        """Return the gates; their timeouts begin again when a user resumes the rollout."""
        if self._gates is None or not rollout.spec.gates:
            return {}
        records = self._gates.records(rollout)
        if rollout.status.phase is api.RolloutPhase.HALTED and statuses.is_resumed(rollout):
            self._gates.restart(rollout)
            records = self._gates.records(rollout)
        return records

    def _report(self, rollout: api.NodeRollout, status: api.NodeRolloutStatus) -> api.NodeRollout:
        """Write a status, unless all its changes may be deferred."""
        name = rollout.metadata.name
        factor = delay_factor(len(status.nodes))
        if statuses.only_counts_changed(rollout.status, status) and self._deferred.due_in(
            name, factor
        ):
            return rollout
        saved = self._save(rollout, status)
        self._deferred.clear(name)
        return saved

    def _start(self, rollout: api.NodeRollout) -> api.NodeRollout:
        # The set of nodes is never changed, so the cache must be current when it is chosen.
        if not self._clients.nodes.informer.catch_up(_CATCH_UP_TIMEOUT):
            raise CacheNotCaughtUp(str(self._clients.nodes.resource))
        plan = make_plan(rollout.spec, self._clients.nodes.list())
        return self._save(rollout, statuses.initial_status(rollout, plan, self._clock.now()))

    def _nodes(self, rollout: api.NodeRollout) -> tuple[api.PlannedNode, ...]:
        """Return the planned nodes, with new priorities if the spec was edited."""
        recorded = rollout.status.nodes
        if rollout.status.observed_generation == rollout.metadata.generation:
            return recorded
        nodes = {node.metadata.name: node for node in self._clients.nodes.list()}
        edited = reprioritize(rollout.spec, recorded, nodes)
        children = self._own_children(rollout)
        return tuple(
            new if _may_follow(children.get(old.name)) else old
            for old, new in zip(recorded, edited, strict=True)
        )

    def _write_children(
        self, rollout: api.NodeRollout, nodes: Sequence[api.PlannedNode]
    ) -> ChildSync:
        children = self._own_children(rollout)
        finished = {
            *rollout.status.replacements_completed,
            *rollout.status.replacements_failed,
            *rollout.status.replacements_cancelled,
        }
        # Nodes of a cancelled rollout that have no replacement yet do not get one.
        missing = [
            node
            for node in nodes
            if not rollout.spec.cancel and node.name not in children and node.name not in finished
        ]
        updated = self._children.sync_specs(rollout, nodes, children)
        created = self._children.create_missing(rollout, missing, updated.children)
        return ChildSync(
            created.children, created.failure, unfinished=created.unfinished or updated.unfinished
        )

    def _own_children(self, rollout: api.NodeRollout) -> dict[str, api.NodeReplacement]:
        """Return the rollout's own children, by owner uid (OP-04)."""
        owned = self._clients.replacements.by_index(OWNER_INDEX, rollout.metadata.uid)
        return {child.spec.node_name: child for child in owned}

    def _drains(self, children: Mapping[str, api.NodeReplacement]) -> list[api.NodeDrain]:
        return [
            drain
            for child in children.values()
            if child.status.current.in_flight
            for drain in self._clients.drains.by_index(OWNER_INDEX, child.metadata.uid)
        ]

    def _expire(self, rollout: api.NodeRollout) -> Result:
        """Delete a completed rollout after its time to live."""
        ttl, done_at = rollout.spec.ttl_seconds_after_finished, rollout.status.completion_timestamp
        if ttl is None or done_at is None:
            return DONE
        remaining = (done_at + timedelta(seconds=ttl) - self._clock.now()).total_seconds()
        if remaining > 0:
            return Result(requeue_after=remaining)
        _log.info("rollout_expired", kind=api.NODE_ROLLOUTS.kind, name=rollout.metadata.name)
        self._clients.rollouts.delete(rollout, propagation=Propagation.BACKGROUND)
        return DONE

    def _save(self, rollout: api.NodeRollout, status: api.NodeRolloutStatus) -> api.NodeRollout:
        change = api.status_diff(rollout.status, status)
        saved = self._clients.rollouts.patch_status(rollout, change)
        self._metrics.observe(saved)
        self._events.changed(rollout, saved)
        return saved


def _user_input(rollout: api.NodeRollout) -> object:
    """Return what users change. It is never throttled."""
    return rollout.metadata.generation, rollout.metadata.annotations


def _may_follow(child: api.NodeReplacement | None) -> bool:
    """Return whether a node has not started: only then an edit changes its priority (OP-10)."""
    return child is None or child.status.current is api.Step.WAITING
