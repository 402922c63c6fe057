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
from navarchos.operator.crew import Crew
from navarchos.operator.objects import Objects
from navarchos.operator.pace import Pace, times_few
from navarchos.operator.replacements import transitions
from navarchos.operator.replacements.admission import admit_apart
from navarchos.operator.replacements.announce import Announcer
from navarchos.operator.replacements.budgets import BudgetLook
from navarchos.operator.replacements.drains import belongs_to, drain_name, has_ended
from navarchos.operator.replacements.metrics import Progress
from navarchos.operator.replacements.pending import Pod, pending_pods
from navarchos.operator.replacements.waiting import Wait
from navarchos.operator.replacements.world import World
from navarchos.runtime import OUTDATED_READ

__all__ = ["RBAC", "WRITES_PER_PASS", "Admission"]

WRITES_PER_PASS: Final = 100
"""Waiting reasons written in one pass; starts are never behind more than these."""

_OVERTAKEN_PAUSE: Final = 0.1
"""Seconds for the cache to catch up with whoever wrote before us."""

_ALL: Final = "admission"

_AT_ONCE: Final = 0.01
"""Seconds before the rest of the reasons is written: nodes get their turn."""

RBAC: Final = (
    PolicyRule(NODE_REPLACEMENTS, ("get",)),  # what became of a write without an answer
    PolicyRule(NODE_REPLACEMENTS, ("patch",), subresource="status"),
)
"""What admission asks of the server."""

_log = get_logger(__name__)

_Change = tuple[NodeReplacement, NodeReplacementStatus]
"""A replacement as it was read, and its next status."""


class Admission:
    """Looks at everything, starts what may start, and says why the rest waits.

    One pass costs O(n log n) in the number of replacements, and one request for
    each node that starts or whose reason to wait has changed. When a node starts beside
    others, the pods of a few nodes are listed, at most `budgets.MOST_LOOKS`.

    Threads: one thread only (OP-21). Reasons to wait are written on those of the crew, of
    which it waits for the last.
    """

    def __init__(
        self,
        objects: Objects,
        pending: Callable[[], Iterable[Pod]],
        look_at_budgets: BudgetLook,
        announcer: Announcer,
        progress: Progress,
        crew: Crew,
        clock: Clock,
    ) -> None:
        self._objects = objects
        self._pending = pending
        self._look_at_budgets = look_at_budgets
        self._announcer = announcer
        self._progress = progress
        self._crew = crew
        self._clock = clock
        self._pace = Pace(clock)
        self._overtaken = False  # by another writer, during the present pass
        # reasons, and when they are to be written; monotonic, by name
        self._untold: dict[str, tuple[Wait, float]] = {}
        self._unsure: dict[str, None] = {}  # written, and the cache may not show what became of it

    def early(self) -> float | None:
        """Return the seconds for which a pass had better wait for more changes, if any."""
        return self._pace.left(_ALL)

    def run(self) -> float | None:
        """Run one pass, however early.

        Returns:
            Seconds until the next pass is due by time alone, next to nothing when
            this one left work; `None` when only a change of some object makes one due.
        """
        self._make_sure()
        world = self._look()
        self._pace.passed(_ALL, len(world.replacements))
        self._progress.publish(world)
        decisions = admit_apart(world, self._clock.now(), self._look_at_budgets)
        by_name = {replacement.metadata.name: replacement for replacement in world.replacements}
        self._overtaken = False
        for name in decisions.start:
            self._start(by_name[name])
            if self._overtaken:
                return _OVERTAKEN_PAUSE  # the others were decided on what is no longer so
        for name in decisions.expired:
            self._expire(by_name[name])
        for name in decisions.stuck:
            self._let_others_pass(by_name[name])
        explained_after = self._explain(by_name, decisions.waiting)
        if self._overtaken:
            return _OVERTAKEN_PAUSE
        soonest = [t for t in (explained_after, decisions.recheck_after) if t is not None]
        return min(soonest, default=None)

    def _make_sure(self) -> None:
        """Read what was written without an answer, or in vain: it may hold a slot.

        A lagging cache shows such a node as one that waits, and another one would start
        in its place.

        Raises:
            ClientError: It could not be read, so nothing may start.
        """
        for name in list(self._unsure):
            found = self._objects.replacements.fetch(name)
            if found is not None:
                self._objects.replacements.observe(found)
            del self._unsure[name]

    def _look(self) -> World:
        replacements = self._objects.replacements.list()
        alive = {replacement.metadata.uid for replacement in replacements}
        nodes = {node.metadata.name: node for node in self._objects.nodes.list()}
        return World(
            replacements=replacements,
            rollouts={r.metadata.uid: r for r in self._objects.rollouts.list()},
            nodes=nodes,
            orphaned=frozenset(
                drain.spec.node_name
                for drain in self._objects.drains.list()
                if not has_ended(drain)
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
        saved = self._save(replacement, transitions.reserved(replacement, self._clock.now()))
        if saved is not None:
            self._announcer.moved(replacement, saved)

    def _expire(self, replacement: NodeReplacement) -> None:
        now = self._clock.now()
        failed = transitions.attempt_failed(
            replacement, "PendingPodsTimeout", Wait.PENDING_PODS.message, now
        )
        # Nothing was taken, so there is nothing to release.
        with_failure = msgspec.structs.replace(replacement, status=failed)
        saved = self._save(replacement, transitions.released(with_failure, now))
        if saved is not None:
            self._announcer.expired(saved)

    def _let_others_pass(self, replacement: NodeReplacement) -> None:
        """Write that a node takes no slot any more; the next pass gives it to another."""
        saved = self._save(replacement, transitions.stuck(replacement, self._clock.now()))
        if saved is not None:
            self._announcer.got_stuck(saved)

    def _explain(
        self, by_name: Mapping[str, NodeReplacement], waiting: Mapping[str, Wait]
    ) -> float | None:
        """Write changed reasons; return the seconds until more are to be written, if any are."""
        now, moment = self._clock.now(), self._clock.monotonic()
        known, self._untold = self._untold, {}
        # A thousand writes take whole seconds from the nodes that have just started.
        times = times_few(len(waiting))
        told: list[_Change] = []
        for name, reason in waiting.items():
            status = transitions.waits(by_name[name], reason, now)
            if status is None:
                continue
            before, due = known.get(name, (None, 0.0))
            if before is not reason:
                due = moment + times * reason.patience
            if due > moment or len(told) == WRITES_PER_PASS:
                self._untold[name] = reason, due
            else:
                told.append((by_name[name], status))
        saved = self._save_all(told)
        for replacement, _ in told:
            if replacement.metadata.name in saved:
                self._announcer.held_back(replacement, waiting[replacement.metadata.name])
        left = min((due for _, due in self._untold.values()), default=None)
        return None if left is None else max(_AT_ONCE, left - moment)

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
            self._crew.map(save, changes)
        finally:
            self._unsure.update((name, None) for name in begun if name not in saved)
        self._overtaken |= len(saved) < len(begun)
        return saved
