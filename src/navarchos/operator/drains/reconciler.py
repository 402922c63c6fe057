"""One pass over one drain: look, decide, act, write, say when to look again."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from navarchos.client import ApiError, Conflict
from navarchos.clock import Clock
from navarchos.drain import DrainPlan
from navarchos.errors import ConfigError
from navarchos.informers import SharedInformer
from navarchos.logs import get_logger
from navarchos.operator.api.v1alpha1 import DrainPhase, NodeDrain, NodeDrainStatus
from navarchos.operator.drains import status as to
from navarchos.operator.drains.aftercare import is_handed_over, next_looks
from navarchos.operator.drains.attempts import Attempts
from navarchos.operator.drains.blockers import Explainer, find_blockers
from navarchos.operator.drains.cordoning import CordonStep, Verdict, decide
from navarchos.operator.drains.due import Due, due_requests, whose_turn
from navarchos.operator.drains.gate import NodeGate
from navarchos.operator.drains.rules import Rules
from navarchos.operator.drains.sender import Sender
from navarchos.operator.drains.status import DrainReason
from navarchos.operator.drains.survey import Survey
from navarchos.operator.drains.teller import Teller
from navarchos.operator.drains.turn import Turn, clocks_ahead, late_binding_left
from navarchos.operator.drains.watches import PodWatches
from navarchos.operator.drains.writer import DrainWriter
from navarchos.operator.names import DRAIN_FINALIZER
from navarchos.operator.nodes import Node
from navarchos.runtime import DONE, OUTDATED_READ, Reconciler, Request, Result

__all__ = ["DrainReconciler"]

_MOST_REQUESTS: Final = 64
"""Pods asked to go in one pass: a pass lasts seconds, however many pods there are."""

_MOMENT: Final = 0.001
_UNSYNCED: Final = 0.1
_AFTER_CONFLICT: Final = 0.1
_RESUMED_WITHIN: Final = 5.0
"""Seconds. No event of its own wakes a drain that goes by the pause of a rollout."""

_log = get_logger(__name__)


class DrainReconciler(Reconciler):
    """Cordons nodes and empties them, a little in each pass.

    A pass never waits for a pod: it asks those that are due to go, writes down how
    things stand, and returns when it wants to look again (OP-40). All that matters
    is read from the objects, so a process that dies at any point is continued by
    the next one; what is kept in memory only saves requests.

    Threads: several drains at once, one pass per drain at a time, which is what a
    controller's queue gives.
    """

    def __init__(
        self,
        *,
        drains: SharedInformer[NodeDrain],
        gate: NodeGate,
        survey: Survey,
        watches: PodWatches,
        attempts: Attempts,
        sender: Sender,
        writer: DrainWriter,
        teller: Teller,
        clock: Clock,
        is_held: Callable[[NodeDrain], bool],
    ) -> None:
        self._drains = drains
        self._gate = gate
        self._survey = survey
        self._watches = watches
        self._attempts = attempts
        self._sender = sender
        self._writer = writer
        self._teller = teller
        self._clock = clock
        self._is_held = is_held

    def reconcile(self, request: Request) -> Result:
        """Do what is due for one drain.

        Raises:
            ClientError: The server refused or did not answer; nothing is lost.
        """
        drain = self._drains.lister.find(request.name)
        if drain is None:
            self._retire(request.name)
            return DONE
        try:
            return self._pass(drain)
        except OUTDATED_READ as error:
            # Somebody was faster, or it is gone; the cache is about to hear of it.
            _log.debug("drain_overtaken", drain=request.name, why=error.why)
            return Result(requeue_after=_AFTER_CONFLICT)

    def _pass(self, drain: NodeDrain) -> Result:
        if drain.metadata.deletion_timestamp is not None:
            return self._release(drain)
        if to.is_over(drain.status):
            self._retire(drain.metadata.name)
            return self._look_after(drain)
        now = self._clock.now().replace(microsecond=0)
        status = replace(drain.status, observed_generation=drain.metadata.generation)
        node = self._gate.target(drain)
        if node is None:
            return self._end(drain, _gone(drain, status, now), now)
        try:
            rules = Rules.of(drain.spec)
        except ConfigError as error:
            invalid = to.failed(status, DrainReason.INVALID_SPEC, str(error), now=now)
            return self._end(drain, invalid, now)
        return self._advance(Turn(drain, status, rules, now, paused=self._is_paused(drain)), node)

    def _is_paused(self, drain: NodeDrain) -> bool:
        """Tell whether nothing may be sent.

        Nobody pauses and resumes the drain of a replacement that is done: when it is taken
        up again, it goes by those above it, and not by what was left in its spec.
        """
        return self._is_held(drain) if is_handed_over(drain) else drain.spec.paused

    def _look_after(self, drain: NodeDrain) -> Result:
        """Look for pods that were bound after the node had been empty (OP-44)."""
        now = self._clock.now().replace(microsecond=0)
        due, ahead = next_looks(drain.status, now)
        if due and not self._is_paused(drain) and self._came_late(drain, now):
            return Result(requeue_after=_AFTER_CONFLICT)
        return DONE if ahead is None else Result(requeue_after=ahead)

    def _came_late(self, drain: NodeDrain, now: datetime) -> bool:
        """Take the drain up again if there are pods to be moved, and the node is closed."""
        plan = self._survey.live(drain, Rules.of(drain.spec).options, now)
        late = len(plan.evict) + len(plan.wait)
        if not late:
            return False
        # Looked at after the pods: whoever opened the node meant them to come.
        node = self._gate.live(drain)
        if node is None or not node.spec.unschedulable:
            return False
        whole = self._writer.live(drain)
        if whole is None or whole.metadata.deletion_timestamp is not None:
            return False
        if whole.status.phase is not DrainPhase.COMPLETED:
            return False
        self._writer.store(whole, to.reopened(whole.status, late, now=now))
        _log.warning("pods_came_late", drain=drain.metadata.name, pods=late)
        return True

    def _release(self, drain: NodeDrain) -> Result:
        self._retire(drain.metadata.name)
        if DRAIN_FINALIZER not in drain.metadata.finalizers:
            return DONE
        if drain.spec.uncordon_on_delete and self._gate.give_back(drain):
            self._teller.uncordoned(drain)
        self._writer.release(drain)
        return DONE

    def _advance(self, turn: Turn, node: Node) -> Result:
        drain = self._writer.claim(turn.drain, node.metadata.uid)
        generation = drain.metadata.generation
        turn = turn.with_drain(drain).with_status(
            replace(turn.status, observed_generation=generation)
        )
        if turn.paused:
            turn = turn.with_status(to.paused(turn.status, now=turn.now))
            if not to.has_begun(turn.status):
                return self._store(turn.with_status(replace(turn.status, phase=DrainPhase.PENDING)))
        else:
            turn = turn.with_status(to.resumed(turn.status, now=turn.now))
        verdict = decide(node, turn.drain, turn.status)
        if verdict.step is CordonStep.CORDON and (wait := self._writer.wait(turn.name)) is not None:
            # Status tells how often the node was cordoned: what cannot be told yet is not
            # done yet, or whoever uncordons it would be contradicted for ever.
            return _again(wait)
        return self._look(self._close(turn, node, verdict))

    def _close(self, turn: Turn, node: Node, verdict: Verdict) -> Turn:
        """Close the node to new pods, unless somebody insists on having it open."""
        if verdict.step is CordonStep.CORDON:
            self._cordon(turn, node)
            self._teller.cordoned(turn.drain, verdict.message)
        elif verdict.step is CordonStep.LET_GO:
            self._gate.let_go(node)
        status = to.with_condition(
            turn.status,
            to.NODE_CORDONED,
            "True" if verdict.holds else "False",
            verdict.reason,
            verdict.message,
            now=turn.now,
        )
        return turn.with_status(status).at_gate(
            may_send=verdict.holds and not turn.paused,
            closed_for=self._gate.closed_for(turn.drain),
        )

    def _cordon(self, turn: Turn, node: Node) -> None:
        try:
            self._gate.cordon(node, turn.drain)
        except Conflict:
            raise
        except ApiError as error:
            # Most likely a missing right: the person who can mend it looks here first.
            told = to.with_condition(
                turn.status,
                to.NODE_CORDONED,
                "False",
                DrainReason.CORDON_FAILED,
                str(error),
                now=turn.now,
            )
            self._writer.store(turn.drain, told)
            raise

    def _look(self, turn: Turn) -> Result:
        options = turn.rules.options
        plan = self._survey.watched(turn.drain, options, turn.now)
        if not to.has_begun(turn.status):
            # What is found now decides whether anything is evicted at all.
            plan = self._survey.live(turn.drain, options, turn.now)
            if plan.refuse:
                return self._end(turn.drain, to.refused(turn.status, plan, now=turn.now), turn.now)
        if plan is None:
            return Result(requeue_after=_UNSYNCED)
        if plan.is_drained and late_binding_left(turn) <= 0:
            plan = self._survey.live(turn.drain, options, turn.now)
            if plan.is_drained:
                return self._end(turn.drain, _drained(turn, plan), turn.now)
        return self._move(turn.with_status(to.recorded(turn.status, plan, now=turn.now)), plan)

    def _move(self, turn: Turn, plan: DrainPlan) -> Result:
        if to.reveals(turn.drain.status, turn.status):
            turn = turn.with_status(self._progress(turn, plan))
            stored = self._writer.store(turn.drain, turn.status)
            if stored.wait is not None:
                return _again(stored.wait)
            turn = turn.with_drain(stored.drain)
        self._attempts.keep(turn.name, {planned.uid for planned in plan.evict})
        if _is_late(turn, plan) and not turn.rules.holds:
            return self._end(turn.drain, self._give_up(turn, plan), turn.now)
        due = self._due(turn, plan)
        if turn.may_send and due.requests:
            if self._gate.live(turn.drain) is None:
                return self._end(turn.drain, _gone(turn.drain, turn.status, turn.now), turn.now)
            self._sender.send(turn.drain, due.requests, turn.rules.options)
            due = self._due(turn, plan)
        return self._store(turn.with_status(self._progress(turn, plan)), *_ahead(turn, plan, due))

    def _due(self, turn: Turn, plan: DrainPlan) -> Due:
        attempts = self._attempts.of(turn.name)
        return due_requests(
            whose_turn(plan, attempts, turn.now),
            attempts,
            turn.rules.ladder,
            delete=turn.rules.options.disable_eviction,
            elapsed=turn.elapsed,
            monotonic=self._clock.monotonic(),
            limit=_MOST_REQUESTS,
        )

    def _progress(self, turn: Turn, plan: DrainPlan) -> NodeDrainStatus:
        status = self._blocked(turn, plan)
        holding = turn.rules.holds and _is_late(turn, plan)
        reason = DrainReason.HOLDING if holding else DrainReason.DRAINING
        message = "its time is up; evictions are still tried" if holding else ""
        return to.with_condition(status, to.NODE_DRAINED, "False", reason, message, now=turn.now)

    def _give_up(self, turn: Turn, plan: DrainPlan) -> NodeDrainStatus:
        limit = turn.rules.options.timeout or 0.0
        return to.timed_out(self._blocked(turn, plan), plan, limit, now=turn.now)

    def _blocked(self, turn: Turn, plan: DrainPlan) -> NodeDrainStatus:
        explainer = Explainer(
            attempts=self._attempts.of(turn.name),
            ladder=turn.rules.ladder,
            started_at=turn.status.start_timestamp or turn.now,
            elapsed=turn.elapsed,
            now=turn.now,
        )
        return to.blocked(turn.status, find_blockers(plan, explainer), now=turn.now)

    def _store(self, turn: Turn, *ahead: float) -> Result:
        stored = self._writer.store(turn.drain, turn.status)
        if stored.wait is not None:
            return _again(stored.wait, *ahead)
        self._teller.stored(turn.drain, stored.drain)
        return _again(*ahead)

    def _end(self, drain: NodeDrain, status: NodeDrainStatus, now: datetime) -> Result:
        stored = self._writer.store(drain, status)
        if stored.wait is not None:
            return _again(stored.wait)
        self._teller.ended(stored.drain, now)
        _log.info("drain_ended", drain=drain.metadata.name, phase=status.phase, why=status.reason)
        self._retire(drain.metadata.name)
        return DONE

    def _retire(self, name: str) -> None:
        self._watches.drop(name)
        self._attempts.forget(name)
        self._teller.forget(name)
        self._writer.forget(name)
        self._gate.forget(name)


def _again(*ahead: float) -> Result:
    # Zero would mean "never": what is due at once is due in a moment.
    return Result(requeue_after=max(_MOMENT, min(ahead))) if ahead else DONE


def _is_late(turn: Turn, plan: DrainPlan) -> bool:
    """Tell whether time is up; an empty node that awaits late pods has none to fail for."""
    return turn.time_is_up and not plan.is_drained


def _gone(drain: NodeDrain, status: NodeDrainStatus, now: datetime) -> NodeDrainStatus:
    message = f"there is no node {drain.spec.node_name} with this uid any more"
    return to.completed(status, DrainReason.NODE_GONE, message, now=now)


def _drained(turn: Turn, plan: DrainPlan) -> NodeDrainStatus:
    recorded = to.recorded(turn.status, plan, now=turn.now)
    message = f"{recorded.evicted} pods have left the node"
    return to.completed(recorded, DrainReason.NODE_DRAINED, message, now=turn.now)


def _ahead(turn: Turn, plan: DrainPlan, due: Due) -> list[float]:
    ahead = clocks_ahead(turn, plan)
    if turn.paused and is_handed_over(turn.drain):
        ahead.append(_RESUMED_WITHIN)
    if plan.is_drained:
        ahead.append(late_binding_left(turn))
    if turn.may_send:
        ahead += [0.0] if due.requests else []
        ahead += [due.next_in] if due.next_in is not None else []
    return ahead
