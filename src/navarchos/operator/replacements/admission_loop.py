"""Carries out what admission decides, on one thread."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.logs import get_logger
from navarchos.meta import controller_of
from navarchos.operator.api.v1alpha1 import (
    NODE_REPLACEMENTS,
    NodeDrain,
    NodeReplacement,
    NodeReplacementStatus,
    Step,
    status_diff,
)
from navarchos.operator.objects import Objects
from navarchos.operator.replacements.admission import admit_with_budgets
from navarchos.operator.replacements.attempt_drain import belongs_to, drain_name
from navarchos.operator.replacements.budgets import BudgetLookup
from navarchos.operator.replacements.events import ReplacementEvents
from navarchos.operator.replacements.metrics import ReplacementMetrics
from navarchos.operator.replacements.snapshot import ClusterSnapshot, Pod, pending_pods
from navarchos.operator.replacements.status import (
    failed_attempt_status,
    released_status,
    reserved_status,
    stalled_status,
    waiting_status,
)
from navarchos.operator.replacements.waiting import WaitReason
from navarchos.operator.throttle import ScanThrottle, delay_factor
from navarchos.parallel import WorkerPool
from navarchos.runtime import OUTDATED_READ

__all__ = ["MAX_REASON_WRITES", "RBAC", "AdmissionLoop"]

MAX_REASON_WRITES: Final = 100
"""Waiting reasons written in one pass; starts are never behind more than these."""

_OVERTAKEN_PAUSE: Final = 0.1
"""Seconds for the cache to catch up with whoever wrote before us."""

_ALL: Final = "admission"

_REQUEUE_SOON: Final = 0.01
"""Seconds before the rest of the reasons is written: nodes get their turn."""

RBAC: Final = (
    PolicyRule(NODE_REPLACEMENTS, ("get",)),  # what became of a write without an answer
    PolicyRule(NODE_REPLACEMENTS, ("patch",), subresource="status"),
)
"""What admission asks of the server."""

_log = get_logger(__name__)

_Change = tuple[NodeReplacement, NodeReplacementStatus]
"""A replacement as it was read, and its next status."""


class AdmissionLoop:
    """Looks at everything, starts what may start, and says why the rest waits.

    One pass costs O(n log n) in the number of replacements, and one request for
    each node that starts or whose reason to wait has changed. When a node starts beside
    others, the pods of a few nodes are listed, at most `budgets.MAX_LOOKUPS`.

    Threads: one thread only (OP-21). Reasons to wait are written on those of the crew, of
    which it waits for the last.
    """

    def __init__(
        self,
        objects: Objects,
        pending: Callable[[], Iterable[Pod]],
        budget_lookup: BudgetLookup,
        events: ReplacementEvents,
        progress: ReplacementMetrics,
        worker_pool: WorkerPool,
        clock: Clock,
    ) -> None:
        self._objects = objects
        self._pending = pending
        self._budget_lookup = budget_lookup
        self._events = events
        self._progress = progress
        self._worker_pool = worker_pool
        self._clock = clock
        self._throttle = ScanThrottle(clock)
        self._overtaken = False  # by another writer, during the present pass
        # reasons, and when they are to be written; monotonic, by name
        self._deferred_reasons: dict[str, tuple[WaitReason, float]] = {}
        self._unconfirmed: dict[
            str, None
        ] = {}  # written, and the cache may not show what became of it

    def throttled_for(self) -> float | None:
        """Return the seconds for which a pass had better wait for more changes, if any."""
        return self._throttle.wait(_ALL)

    def run(self) -> float | None:
        """Run one pass, however early.

        Returns:
            Seconds until the next pass is due by time alone, next to nothing when
            this one left work; `None` when only a change of some object makes one due.
        """
        self._confirm_unanswered_writes()
        snapshot = self._snapshot()
        self._throttle.record(_ALL, len(snapshot.replacements))
        self._progress.publish(snapshot)
        decisions = admit_with_budgets(snapshot, self._clock.now(), self._budget_lookup)
        by_name = {replacement.metadata.name: replacement for replacement in snapshot.replacements}
        self._overtaken = False
        for name in decisions.start:
            self._start(by_name[name])
            if self._overtaken:
                return _OVERTAKEN_PAUSE  # the others were decided on what is no longer so
        for name in decisions.expired:
            self._expire(by_name[name])
        for name in decisions.stalled:
            self._release_slot(by_name[name])
        explained_after = self._explain(by_name, decisions.waiting)
        if self._overtaken:
            return _OVERTAKEN_PAUSE
        soonest = [t for t in (explained_after, decisions.recheck_after) if t is not None]
        return min(soonest, default=None)

    def _confirm_unanswered_writes(self) -> None:
        """Read what was written without an answer, or in vain: it may hold a slot.

        A lagging cache shows such a node as one that waits, and another one would start
        in its place.

        Raises:
            ClientError: It could not be read, so nothing may start.
        """
        for name in list(self._unconfirmed):
            found = self._objects.replacements.fetch(name)
            if found is not None:
                self._objects.replacements.observe(found)
            del self._unconfirmed[name]

    def _snapshot(self) -> ClusterSnapshot:
        replacements = self._objects.replacements.list()
        alive = {replacement.metadata.uid for replacement in replacements}
        nodes = {node.metadata.name: node for node in self._objects.nodes.list()}
        return ClusterSnapshot(
            replacements=replacements,
            rollouts={r.metadata.uid: r for r in self._objects.rollouts.list()},
            nodes=nodes,
            orphaned=frozenset(
                drain.spec.node_name
                for drain in self._objects.drains.list()
                if not drain.status.is_final
                and drain.spec.node_name in nodes
                and (owner := controller_of(drain.metadata)) is not None
                and owner.uid not in alive
            ),
            drains={
                replacement.metadata.name: drain
                for replacement in replacements
                if replacement.status.current is Step.DRAINING
                and (drain := self._drain_of(replacement)) is not None
            },
            pending=pending_pods(self._pending()),
        )

    def _drain_of(self, replacement: NodeReplacement) -> NodeDrain | None:
        drain = self._objects.drains.find(drain_name(replacement))
        return drain if drain is not None and belongs_to(drain, replacement) else None

    def _start(self, replacement: NodeReplacement) -> None:
        """Take a slot; nothing else has happened to the node yet."""
        saved = self._save(replacement, reserved_status(replacement, self._clock.now()))
        if saved is not None:
            self._events.moved(replacement, saved)

    def _expire(self, replacement: NodeReplacement) -> None:
        now = self._clock.now()
        failed = failed_attempt_status(
            replacement, "PendingPodsTimeout", WaitReason.PENDING_PODS.message, now
        )
        # Nothing was taken, so there is nothing to release.
        with_failure = msgspec.structs.replace(replacement, status=failed)
        saved = self._save(replacement, released_status(with_failure, now))
        if saved is not None:
            self._events.expired(saved)

    def _release_slot(self, replacement: NodeReplacement) -> None:
        """Write that a node takes no slot any more; the next pass gives it to another."""
        saved = self._save(replacement, stalled_status(replacement, self._clock.now()))
        if saved is not None:
            self._events.stalled(saved)

    def _explain(
        self, by_name: Mapping[str, NodeReplacement], waiting: Mapping[str, WaitReason]
    ) -> float | None:
        """Write changed reasons; return the seconds until more are to be written, if any are."""
        now, moment = self._clock.now(), self._clock.monotonic()
        known, self._deferred_reasons = self._deferred_reasons, {}
        # A thousand writes take whole seconds from the nodes that have just started.
        times = delay_factor(len(waiting))
        told: list[_Change] = []
        for name, reason in waiting.items():
            status = waiting_status(by_name[name], reason, now)
            if status is None:
                continue
            before, due = known.get(name, (None, 0.0))
            if before is not reason:
                due = moment + times * reason.report_delay
            if due > moment or len(told) == MAX_REASON_WRITES:
                self._deferred_reasons[name] = reason, due
            else:
                told.append((by_name[name], status))
        saved = self._save_all(told)
        for replacement, _ in told:
            if replacement.metadata.name in saved:
                self._events.held_back(replacement, waiting[replacement.metadata.name])
        left = min((due for _, due in self._deferred_reasons.values()), default=None)
        return None if left is None else max(_REQUEUE_SOON, left - moment)

    def _save(
        self, replacement: NodeReplacement, status: NodeReplacementStatus
    ) -> NodeReplacement | None:
        return self._save_all([(replacement, status)]).get(replacement.metadata.name)

    def _save_all(self, changes: Sequence[_Change]) -> Mapping[str, NodeReplacement]:
        """Write statuses, each on condition that the decision's ground is unchanged.

        Returns:
            What was written, by name; without those that somebody else had changed.
        """
        begun: dict[str, None] = {}
        saved: dict[str, NodeReplacement] = {}

        def save(change: _Change) -> None:
            replacement, status = change
            name = replacement.metadata.name
            begun[name] = None
            try:
                saved[name] = self._objects.replacements.patch_status(
                    replacement, status_diff(replacement.status, status)
                )
            except OUTDATED_READ as error:
                # The change that beat us is on its way to the cache.
                _log.debug("admission_overtaken", name=name, error=str(error))

        try:
            self._worker_pool.map(save, changes)
        finally:
            self._unconfirmed.update((name, None) for name in begun if name not in saved)
        self._overtaken |= len(saved) < len(begun)
        return saved
