"""The rollout's reconciler: plan, create, follow, report, clean up."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.errors import ConfigError
from navarchos.logs import get_logger
from navarchos.operator.api.v1alpha1 import (
    NODE_ROLLOUTS,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
    NodeRolloutStatus,
    PlannedNode,
    RolloutPhase,
    Step,
    status_diff,
)
from navarchos.operator.objects import OWNER_INDEX, Objects
from navarchos.operator.rollouts.children import ChildReconciler, ChildSync
from navarchos.operator.rollouts.events import RolloutEvents
from navarchos.operator.rollouts.plan import make_plan, reprioritize
from navarchos.operator.rollouts.status import (
    StatusInputs,
    compute_status,
    initial_status,
    only_counts_changed,
)
from navarchos.operator.throttle import DeferredWrites, ScanThrottle, delay_factor
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

_PLAN_TIMEOUT: Final = 30.0
_REQUEUE_SOON: Final = 0.01
"""Seconds before the next pass over one large rollout: others get their turn."""

_PROGRESS_DELAY: Final = 1.0
"""Seconds by which the lists of nodes in status may be out of date, or several times that in a
large rollout. Nothing is decided from them; and each write carries all of its nodes."""

RBAC: Final = (
    PolicyRule(NODE_ROLLOUTS, ("patch",), subresource="status"),
    PolicyRule(NODE_ROLLOUTS, ("delete",)),  # once its ttlSecondsAfterFinished have passed
)
"""What the reconciler asks of the server."""


class RolloutReconciler(Reconciler):
    """Brings one rollout a step further; every decision is made from the objects.

    Order matters in it: the plan is recorded before the first child exists, so
    that a crash can never lead to another node set (OP-03), and children exist
    before the status says so.

    Threads: safe from any thread, for different rollouts.
    """

    def __init__(
        self, objects: Objects, events: RolloutEvents, worker_pool: WorkerPool, clock: Clock
    ) -> None:
        self._objects = objects
        self._events = events
        self._clock = clock
        self._children = ChildReconciler(objects, worker_pool)
        self._deferred = DeferredWrites(_PROGRESS_DELAY, clock)
        self._throttle = ScanThrottle(clock)

    def reconcile(self, request: Request) -> Result:
        """Do what is due for the rollout of that name.

        Raises:
            TerminalError: Its spec cannot be understood; only an edit helps.
            CreationFailed: Some replacements could not be created.
        """
        rollout = self._objects.rollouts.find(request.name)
        if rollout is None or rollout.metadata.deletion_timestamp is not None:
            # Its children go with it: the garbage collector sees to that (OP-07).
            self._deferred.clear(request.name)
            self._throttle.forget(request.name)
            return DONE
        early = self._throttle.wait(request.name, _edited(rollout))
        if early is not None:
            return Result(requeue_after=early)
        try:
            return self._advance(rollout)
        except OUTDATED_READ as error:
            _log.debug("rollout_overtaken", name=request.name, error=str(error))
            return Result(requeue=True)
        except ConfigError as error:
            raise TerminalError(f"rollout {request.name}: {error}") from error

    def _advance(self, rollout: NodeRollout) -> Result:
        if rollout.status.start_timestamp is None:
            rollout = self._start(rollout)
        if rollout.status.phase is RolloutPhase.COMPLETED:
            return self._expire(rollout)
        nodes = self._nodes(rollout)
        made = self._write_children(rollout, nodes)
        inputs = StatusInputs(
            nodes=nodes,
            children=made.children,
            drains=self._drains(made.children),
            creation_error=str(made.failure) if made.failure else "",
        )
        saved = self._report(rollout, compute_status(rollout, inputs, self._clock.now()))
        if made.failure is not None:
            raise made.failure
        if made.unfinished:
            return Result(requeue_after=_REQUEUE_SOON)
        self._throttle.record(rollout.metadata.name, len(nodes), _edited(rollout))
        if saved.status.phase is RolloutPhase.COMPLETED:
            return self._expire(saved)
        unwritten = self._deferred.remaining(rollout.metadata.name)
        return DONE if unwritten is None else Result(requeue_after=unwritten)

    def _report(self, rollout: NodeRollout, status: NodeRolloutStatus) -> NodeRollout:
        """Write a status, unless all that is new may wait."""
        name = rollout.metadata.name
        times = delay_factor(len(status.nodes))
        if only_counts_changed(rollout.status, status) and self._deferred.due_in(name, times):
            return rollout
        saved = self._save(rollout, status)
        self._deferred.clear(name)
        return saved

    def _start(self, rollout: NodeRollout) -> NodeRollout:
        # The set is fixed for ever, so it is taken from the nodes of this moment.
        if not self._objects.nodes.informer.catch_up(_PLAN_TIMEOUT):
            raise CacheNotCaughtUp(str(self._objects.nodes.resource))
        plan = make_plan(rollout.spec, self._objects.nodes.list())
        return self._save(rollout, initial_status(rollout, plan, self._clock.now()))

    def _nodes(self, rollout: NodeRollout) -> tuple[PlannedNode, ...]:
        """Return the planned nodes, with new priorities when the spec was edited."""
        recorded = rollout.status.nodes
        if rollout.status.observed_generation == rollout.metadata.generation:
            return recorded
        nodes = {node.metadata.name: node for node in self._objects.nodes.list()}
        edited = reprioritize(rollout.spec, recorded, nodes)
        children = self._own_children(rollout)
        return tuple(
            new if _may_follow(children.get(old.name)) else old
            for old, new in zip(recorded, edited, strict=True)
        )

    def _write_children(self, rollout: NodeRollout, nodes: Sequence[PlannedNode]) -> ChildSync:
        children = self._own_children(rollout)
        finished = {
            *rollout.status.replacements_completed,
            *rollout.status.replacements_failed,
        }
        missing = [
            node for node in nodes if node.name not in children and node.name not in finished
        ]
        followed = self._children.sync_specs(rollout, nodes, children)
        made = self._children.create_missing(rollout, missing, followed.children)
        return ChildSync(
            made.children, made.failure, unfinished=made.unfinished or followed.unfinished
        )

    def _own_children(self, rollout: NodeRollout) -> dict[str, NodeReplacement]:
        """Return the rollout's own children, by owner uid (OP-04)."""
        owned = self._objects.replacements.by_index(OWNER_INDEX, rollout.metadata.uid)
        return {child.spec.node_name: child for child in owned}

    def _drains(self, children: Mapping[str, NodeReplacement]) -> list[NodeDrain]:
        return [
            drain
            for child in children.values()
            if child.status.current.in_flight
            for drain in self._objects.drains.by_index(OWNER_INDEX, child.metadata.uid)
        ]

    def _expire(self, rollout: NodeRollout) -> Result:
        """Delete a completed rollout when its time has come."""
        ttl, done_at = rollout.spec.ttl_seconds_after_finished, rollout.status.completion_timestamp
        if ttl is None or done_at is None:
            return DONE
        left = (done_at + timedelta(seconds=ttl) - self._clock.now()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        _log.info("rollout_expired", name=rollout.metadata.name)
        self._objects.rollouts.delete(rollout)
        return DONE

    def _save(self, rollout: NodeRollout, status: NodeRolloutStatus) -> NodeRollout:
        saved = self._objects.rollouts.patch_status(rollout, status_diff(rollout.status, status))
        self._events.changed(rollout, saved)
        return saved


def _edited(rollout: NodeRollout) -> object:
    """Return what a person changes."""
    return rollout.metadata.generation, rollout.metadata.annotations


def _may_follow(child: NodeReplacement | None) -> bool:
    """Tell whether a node has not started: only then does an edit reach it (OP-10)."""
    return child is None or child.status.current is Step.WAITING
