"""Runs admission: observes the cluster, decides, and writes its decisions, on one thread."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.logs import get_logger
from navarchos.operator.actions import Actions
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates import GateMonitor
from navarchos.operator.reasons import Reason, WaitReason
from navarchos.operator.replacements import status as statuses
from navarchos.operator.replacements.admission import Decisions, admit_with_budgets
from navarchos.operator.replacements.budgets import BudgetLookup
from navarchos.operator.replacements.events import ReplacementEvents
from navarchos.operator.replacements.metrics import ReplacementMetrics
from navarchos.operator.replacements.preparation import NodePreparation
from navarchos.operator.replacements.snapshot import ClusterSnapshot
from navarchos.operator.slots import Slots
from navarchos.operator.throttle import ScanThrottle, delay_factor
from navarchos.parallel import WorkerPool
from navarchos.runtime import OUTDATED_READ, CachedClient

__all__ = ["MAX_REASON_WRITES", "RBAC", "AdmissionInputs", "AdmissionLoop"]

MAX_REASON_WRITES: Final = 100
"""Wait reasons, or cancelled nodes, written in one run, so that started nodes never wait for more
writes."""

_OUTDATED_PAUSE: Final = 0.1
"""Seconds for the cache to receive the write of the other client."""

_ALL: Final = "admission"

_SLOTS_DELAY: Final = 0.5
"""The longest pause, in seconds, after the slots of another system have changed."""

_YIELD_DELAY: Final = 0.01
"""Seconds before the remaining reasons are written: started nodes are reconciled first."""

RBAC: Final = (
    PolicyRule(api.NODE_REPLACEMENTS, ("get",)),  # after a write whose response was lost
    PolicyRule(api.NODE_REPLACEMENTS, ("patch",), subresource="status"),
)
"""Permissions of admission."""

_log = get_logger(__name__)

_Change = tuple[api.NodeReplacement, api.NodeReplacementStatus]
"""A replacement as it was read, and its next status."""


@dataclass(frozen=True, slots=True)
class AdmissionInputs:
    """The sources that admission decides from."""

    snapshot: Callable[[], ClusterSnapshot]
    budgets: BudgetLookup
    slots: Slots
    preparation: NodePreparation = field(default_factory=lambda: NodePreparation(Actions()))
    gates: GateMonitor | None = None


class AdmissionLoop:
    """Starts the nodes that may start, and writes why the others wait.

    One run costs O(n log n) in the number of replacements, and one request for each node that
    starts or whose wait reason has changed. When a node starts beside others, the pods of at
    most `budgets.MAX_LOOKUPS` nodes are listed.

    A run takes its turn with the admissions of other systems (NP-03).

    Threads: one thread only (OP-21), if not said otherwise. Wait reasons are written by the threads
    of the worker pool; a run waits for the last of them.
    """

    def __init__(
        self,
        inputs: AdmissionInputs,
        replacements: CachedClient[api.NodeReplacement],
        events: ReplacementEvents,
        metrics: ReplacementMetrics,
        worker_pool: WorkerPool,
        clock: Clock,
    ) -> None:
        self._inputs = inputs
        self._replacements = replacements
        self._events = events
        self._metrics = metrics
        self._worker_pool = worker_pool
        self._clock = clock
        self._throttle = ScanThrottle(clock)
        # The monotonic time at which other systems' slots changed. Set by any thread; the worker
        # clears it before it observes, so that no change is missed.
        self._slots_changed_at: float | None = None
        self._is_outdated = False  # another client wrote first, during this run
        # by name: the reason, and the monotonic time at which it is due
        self._deferred_reasons: dict[str, tuple[WaitReason, float]] = {}
        # Names whose write failed or had no response, so that the cache may be behind. Threads
        # of the worker pool add and remove a name each.
        self._unconfirmed: dict[str, None] = {}

    def run(self, *, urgent: bool = False) -> float | None:
        """Decide once, unless the last run was so recent that more changes should be awaited.

        Args:
            urgent: Run in any case: a slot has just been released.

        Returns:
            Seconds until the next run is due by time alone, very few if this run has left work;
            `None` if only a change of an object makes one due.
        """
        if not urgent and (pause := self._pause()) is not None:
            return pause
        self._slots_changed_at = None
        with self._inputs.slots.turn():
            return self._run()

    def slots_changed(self) -> None:
        """Let the next run come soon: slots or objections of another system have changed.

        Threads: safe from any thread.
        """
        if self._slots_changed_at is None:
            self._slots_changed_at = self._clock.monotonic()

    def _pause(self) -> float | None:
        pause = self._throttle.wait(_ALL)
        changed_at = self._slots_changed_at
        if pause is None or changed_at is None:
            return pause
        pause = min(pause, changed_at + _SLOTS_DELAY - self._clock.monotonic())
        return pause if pause > 0 else None

    def _run(self) -> float | None:
        snapshot = self._inputs.snapshot()
        self._throttle.record(_ALL, len(snapshot.replacements))
        self._metrics.publish(snapshot)
        prepared = self._inputs.preparation.run(snapshot)
        if prepared.holds:
            snapshot = replace(snapshot, holds=prepared.holds)
        decisions = admit_with_budgets(snapshot, self._clock.now(), self._inputs.budgets)
        self._metrics.publish_windows(decisions.openings)
        if self._inputs.gates is not None:
            self._inputs.gates.want_alerts(decisions.at_gates)
        by_name = {replacement.metadata.name: replacement for replacement in snapshot.replacements}
        self._is_outdated = False
        for name in decisions.start:
            self._start(by_name[name])
            if self._is_outdated:
                return _OUTDATED_PAUSE  # the decisions on the other nodes are outdated too
        for name in decisions.expired:
            message = WaitReason.PENDING_PODS.message
            self._fail(by_name[name], Reason.PENDING_PODS_TIMEOUT, message)
        for name, failure in prepared.failed.items():
            self._fail(by_name[name], failure.reason, failure.message)
        for name in decisions.stalled:
            self._release_slot(by_name[name])
        cancels_after = self._cancel(by_name, decisions.cancelled)
        reasons_after = self._write_reasons(by_name, decisions)
        if self._is_outdated:
            return _OUTDATED_PAUSE
        times = cancels_after, reasons_after, decisions.recheck_after
        soonest = [time for time in times if time is not None]
        return min(soonest, default=None)

    def confirm_unanswered_writes(self) -> None:
        """Read replacements whose last write may have succeeded: they may occupy a slot.

        Called at the beginning of each turn of any admission.

        A cache that is behind shows such a node as waiting, and another node would start in
        its place.

        Raises:
            ClientError: An object could not be read, so no node may start.
        """
        for name in list(self._unconfirmed):
            found = self._replacements.fetch(name)
            if found is not None:
                self._replacements.observe(found)
            del self._unconfirmed[name]

    def _start(self, replacement: api.NodeReplacement) -> None:
        """Occupy a slot. The node itself is not changed yet."""
        saved = self._write((replacement, statuses.reserved_status(replacement, self._clock.now())))
        if saved is not None:
            self._events.moved(replacement, saved)

    def _fail(self, replacement: api.NodeReplacement, reason: str, message: str) -> None:
        """Record that an attempt has failed before it started."""
        now = self._clock.now()
        failed = statuses.failed_attempt_status(replacement, reason, message, now)
        # Nothing must be undone: the node never had a slot or a drain.
        with_failure = msgspec.structs.replace(replacement, status=failed)
        saved = self._write((replacement, statuses.released_status(with_failure, now)))
        if saved is not None:
            self._events.expired(saved)

    def _cancel(
        self, by_name: Mapping[str, api.NodeReplacement], names: Sequence[str]
    ) -> float | None:
        """Write that nodes never start; return the seconds until more are due, if any are."""
        now = self._clock.now()
        changes: list[_Change] = [
            (by_name[name], statuses.cancelled_status(by_name[name], now))
            for name in names[:MAX_REASON_WRITES]
        ]
        written = self._worker_pool.map(self._write, changes)
        for (replacement, _), saved in zip(changes, written, strict=True):
            if saved is not None:
                self._events.moved(replacement, saved)
        return _YIELD_DELAY if len(names) > MAX_REASON_WRITES else None

    def _release_slot(self, replacement: api.NodeReplacement) -> None:
        """Record that a node is stalled; the next run gives its slot to another node."""
        saved = self._write((replacement, statuses.stalled_status(replacement, self._clock.now())))
        if saved is not None:
            self._events.stalled(saved)

    def _write_reasons(
        self, by_name: Mapping[str, api.NodeReplacement], decisions: Decisions
    ) -> float | None:
        """Write changed wait reasons; return the seconds until more are due, if any are."""
        waiting = decisions.waiting
        now, monotonic = self._clock.now(), self._clock.monotonic()
        known, self._deferred_reasons = self._deferred_reasons, {}
        # A thousand writes take whole seconds, and started nodes would have to wait for them.
        factor = delay_factor(len(waiting))
        changes: list[_Change] = []
        for name, reason in waiting.items():
            status = statuses.waiting_status(
                by_name[name], reason, now, decisions.details.get(name, "")
            )
            if status is None:
                continue
            before, due = known.get(name, (None, 0.0))
            if before is not reason:
                due = monotonic + factor * reason.report_delay
            if due > monotonic or len(changes) == MAX_REASON_WRITES:
                self._deferred_reasons[name] = reason, due
            else:
                changes.append((by_name[name], status))
        self._write_all(changes, waiting)
        due_next = min((due for _, due in self._deferred_reasons.values()), default=None)
        return None if due_next is None else max(_YIELD_DELAY, due_next - monotonic)

    def _write_all(self, changes: Sequence[_Change], waiting: Mapping[str, WaitReason]) -> None:
        written = self._worker_pool.map(self._write, changes)
        for (replacement, _), saved in zip(changes, written, strict=True):
            if saved is not None:
                self._events.held_back(replacement, waiting[replacement.metadata.name])

    def _write(self, change: _Change) -> api.NodeReplacement | None:
        """Write a status if the replacement has not changed since the snapshot.

        Returns:
            The stored replacement; `None` if another client has changed it.
        """
        replacement, status = change
        name = replacement.metadata.name
        self._unconfirmed[name] = None
        try:
            saved = self._replacements.patch_status(
                replacement, api.status_diff(replacement.status, status)
            )
        except OUTDATED_READ as error:
            # The watch will bring the other client's change to the cache.
            _log.debug(
                "replacement_write_outdated",
                kind=api.NODE_REPLACEMENTS.kind,
                name=name,
                error=str(error),
            )
            self._is_outdated = True
            return None
        del self._unconfirmed[name]
        return saved
