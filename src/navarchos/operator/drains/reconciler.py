"""One reconcile of one drain: observe, decide, act, persist."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from navarchos.client import ApiError, Conflict
from navarchos.client.rbac import PolicyRule
from navarchos.clock import Clock
from navarchos.drain import DrainPlan, PlannedPod
from navarchos.errors import ConfigError
from navarchos.logs import get_logger
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains import decide as decisions
from navarchos.operator.drains import successors
from navarchos.operator.drains.cordon import NodeCordoner
from navarchos.operator.drains.events import DrainEvents
from navarchos.operator.drains.evictions import DrainRuntime, EvictionDispatcher
from navarchos.operator.drains.memory import DrainMemory
from navarchos.operator.drains.observation import DrainObservation, Read
from navarchos.operator.drains.pods import NodePods
from navarchos.operator.drains.preparing import holder_of, marks_of
from navarchos.operator.drains.settings import DrainSettings
from navarchos.operator.drains.status import compute_status, only_counts_changed
from navarchos.operator.marks import MarkHolder, NodeMarks, holders_of
from navarchos.operator.names import DRAIN_FINALIZER
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.throttle import REQUEUE_SOON
from navarchos.runtime import (
    DONE,
    OUTDATED_READ,
    CachedClient,
    Reconciler,
    Request,
    Result,
)

__all__ = ["RBAC", "DrainParts", "DrainReconciler", "sweep_request"]

_REQUEUE_OUTDATED: Final = 0.1

RBAC: Final = (
    PolicyRule(api.NODE_DRAINS, ("get",)),
    PolicyRule(api.NODE_DRAINS, ("patch",)),  # finalizer and nodeUID
    PolicyRule(api.NODE_DRAINS, ("patch",), subresource="status"),
)
"""The permissions (RBAC) to write drains; the cache of drains needs others."""

_SWEEP: Final = "marks"

_log = get_logger(__name__)


def sweep_request(node: str) -> Request:
    """Return the request to remove the marks of a node whose holders are gone.

    Drains have no namespace, so the namespace distinguishes it from a request for a drain.
    """
    return Request(_SWEEP, node)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainParts:
    """The parts of the reconciler.

    Attributes:
        drains: Reads and writes drains.
        nodes: Reads and cordons nodes.
        marks: Marks nodes.
        pods: Reads pods.
        dispatcher: Sends evictions.
        deployments: Asks Deployments to replace pods first.
        memory: Remembers what the process did.
        runtime: Whether evictions may be sent.
        events: Records transitions.
        clock: Time.
        is_suspended: Whether the replacement or the rollout above an ended drain is paused or
            being deleted.
        is_held: Whether the action of the replacement above a drain may still affect the node.
        marked_by: Returns the nodes whose marks a drain of this name holds, from the cache.
    """

    drains: CachedClient[api.NodeDrain]
    nodes: NodeCordoner
    marks: NodeMarks
    pods: NodePods
    dispatcher: EvictionDispatcher
    deployments: successors.Successors
    memory: DrainMemory
    runtime: DrainRuntime
    events: DrainEvents
    clock: Clock
    is_suspended: Callable[[api.NodeDrain], bool]
    is_held: Callable[[api.NodeDrain], bool]
    marked_by: Callable[[str], Sequence[str]]


class DrainReconciler(Reconciler):
    """Cordons nodes and evicts their pods, in small steps.

    A reconcile never waits for a pod: it evicts the pods that are due, writes the status, and
    returns when to reconcile again. Everything that matters is read from the objects, so a
    process that dies at any point is continued by the next one; the memory of a process only
    saves requests.

    Threads: several drains at once, with one reconcile per drain at a time, which the queue of
    a controller guarantees.
    """

    def __init__(self, parts: DrainParts) -> None:
        self._drains = parts.drains
        self._nodes = parts.nodes
        self._pods = parts.pods
        self._memory = parts.memory
        self._events = parts.events
        self._parts = parts

    def reconcile(self, request: Request) -> Result:
        """Reconcile one drain.

        Raises:
            ClientError: The server refused a request or did not answer. Nothing is lost.
        """
        try:
            if request.namespace == _SWEEP:
                self._sweep(request.name)
                return DONE
            drain = self._drains.find(request.name)
            if drain is not None:
                return self._reconcile(drain)
            self._forget(request.name)
            for node in self._parts.marked_by(request.name):
                self._sweep(node)
            return DONE
        except OUTDATED_READ as error:
            # The object has changed or is gone; the cache will show that shortly.
            _log.debug(
                "drain_outdated", kind=api.NODE_DRAINS.kind, name=request.name, error=error.why
            )
            return Result(requeue_after=_REQUEUE_OUTDATED)

    def _reconcile(self, drain: api.NodeDrain) -> Result:
        seen = self._observe(drain)
        while isinstance(decision := decisions.decide(seen), Read):
            seen = self._read(seen, decision)
        report, refusal = decision.report, self._act(seen, decision.actions)
        if refusal is not None:
            report = decisions.Report.CORDON_REFUSED
        wait = self._persist(seen, report, refusal) if report is not None else 0.0
        if refusal is not None:
            raise refusal
        if decision.is_over and wait <= 0:
            self._forget(drain.metadata.name)
        delays = [] if decision.requeue_after is None else [decision.requeue_after]
        delays += [wait] if wait > 0 else []
        return Result(requeue_after=max(REQUEUE_SOON, min(delays))) if delays else DONE

    # Observe

    def _observe(self, drain: api.NodeDrain) -> DrainObservation:
        """Return the observation as far as it needs no request."""
        remembered = self._memory.of(drain.metadata.name)
        clock, is_suspended = self._parts.clock, self._parts.is_suspended
        try:
            settings: DrainSettings | ConfigError = DrainSettings.from_spec(
                drain.spec, evicts=drain.spec.evicts
            )
        except ConfigError as error:
            settings = error
        return DrainObservation(
            drain=drain,
            settings=settings,
            now=clock.now().replace(microsecond=0),
            monotonic=clock.monotonic(),
            # The pause in the spec of a reported drain is left over: its replacement no longer
            # sets or clears it. The objects above the drain decide then.
            is_suspended=is_suspended(drain) if drain.is_reported else drain.spec.paused,
            is_held=drain.metadata.deletion_timestamp is not None and self._parts.is_held(drain),
            is_halted=self._parts.runtime.is_halted,
            attempts=remembered.attempts,
            cordoned_for=remembered.cordoned_for,
            status_wait=remembered.status_wait,
            successors=remembered.known_successors,
        )

    def _read(self, seen: DrainObservation, read: Read) -> DrainObservation:
        """Return the observation with one more read."""
        seen = replace(seen, reads=seen.reads | {read})
        match read:
            case Read.NODE:
                return replace(seen, node=self._nodes.find(seen.drain))
            case Read.LIVE_NODE:
                return replace(seen, node=self._nodes.fetch(seen.drain))
            case Read.PODS:
                return self._with_plan(seen, self._pods.from_cache)
            case Read.LIVE_PODS:
                return self._with_plan(seen, self._pods.from_server)
            case Read.SUCCESSORS:
                return self._with_successors(seen)
            case Read.LIVE_DRAIN:
                live = self._drains.fetch(seen.drain.metadata.name)
                is_same = live is not None and live.metadata.uid == seen.drain.metadata.uid
                return replace(seen, live_drain=live if is_same else None)
            case _:
                assert_never(read)

    def _with_plan(
        self, seen: DrainObservation, read: Callable[..., DrainPlan | None]
    ) -> DrainObservation:
        if isinstance(seen.settings, ConfigError):
            return seen
        plan = read(seen.drain, seen.settings.options, seen.now)
        if plan is not None:
            self._memory.keep(seen.drain.metadata.name, {planned.uid for planned in plan.evict})
        return replace(seen, plan=plan)

    def _with_successors(self, seen: DrainObservation) -> DrainObservation:
        evicted = seen.plan.evict if seen.plan is not None else ()
        unknown = [
            planned
            for planned in evicted
            if successors.may_have_successor(planned) and planned.uid not in seen.successors
        ]
        found = self._parts.deployments.look(seen.drain, unknown)
        self._remember_successors(seen, found)
        return replace(seen, successors={**seen.successors, **found})

    # Act

    def _act(
        self, seen: DrainObservation, actions: tuple[decisions.Action, ...]
    ) -> ApiError | None:
        """Carry out the actions; return the error if the server refuses to cordon the node."""
        drain = seen.drain
        for action in actions:
            match action:
                case decisions.AdoptDrain(node_uid):
                    self._adopt(drain, node_uid)
                case decisions.ReleaseDrain():
                    self._release(drain)
                case decisions.TakeMarks() | decisions.ReturnMarks():
                    self._mark(seen, action)
                case decisions.CordonNode(node, message):
                    return self._cordon(drain, node, message)
                case decisions.DropOwnership(node):
                    self._nodes.drop_ownership(node)
                case decisions.UncordonNode():
                    if self._nodes.uncordon(drain):
                        self._events.node_uncordoned(drain)
                case decisions.AskSuccessors() | decisions.EvictPods():
                    self._move_pods(seen, action)
                case _:
                    assert_never(action)
        return None

    def _adopt(self, drain: api.NodeDrain, node_uid: str) -> None:
        """Add the finalizer, and record the uid of the node, which never changes afterwards."""
        body: dict[str, object] = {}
        finalizers = drain.metadata.finalizers
        if DRAIN_FINALIZER not in finalizers:
            body["metadata"] = {"finalizers": [*finalizers, DRAIN_FINALIZER]}
        if not drain.spec.node_uid:
            body["spec"] = {"nodeUID": node_uid}
        self._drains.patch(drain, body)

    def _cordon(self, drain: api.NodeDrain, node: Node, message: str) -> ApiError | None:
        try:
            self._nodes.cordon(node, drain)
        except Conflict:
            raise
        except ApiError as error:
            # The usual cause is a missing permission, and the user who can grant it reads the
            # drain. So the error is reported in the status before it is raised.
            return error
        self._memory.node_cordoned(drain.metadata.name)
        self._events.node_cordoned(drain, message)
        return None

    def _move_pods(
        self, seen: DrainObservation, action: decisions.AskSuccessors | decisions.EvictPods
    ) -> None:
        match action:
            case decisions.AskSuccessors(pods):
                for planned, due in pods:
                    self._ask_successor(seen, planned, due)
            case decisions.EvictPods(requests, settings):
                self._parts.dispatcher.send(seen.drain, requests, settings.options)
            case _:
                assert_never(action)

    def _ask_successor(
        self, seen: DrainObservation, planned: PlannedPod, due: successors.SuccessorDue
    ) -> None:
        answer = self._parts.deployments.ask(seen.drain, due.deployment)
        if isinstance(answer, successors.SuccessorAsked):
            self._events.replaced_first(seen.drain, planned, due.deployment)
        self._remember_successors(seen, {planned.uid: answer})

    def _remember_successors(
        self, seen: DrainObservation, found: Mapping[str, successors.Successor]
    ) -> None:
        retry = float(seen.drain.spec.eviction_retry_seconds)
        self._memory.found_successors(seen.drain.metadata.name, found, retry_after=retry)

    def _mark(
        self, seen: DrainObservation, action: decisions.TakeMarks | decisions.ReturnMarks
    ) -> None:
        spec, holder, marks = seen.drain.spec, holder_of(seen.drain), self._parts.marks
        match action:
            case decisions.TakeMarks(node):
                marks.take(node, marks_of(spec.prepare), holder, seen.now)
            case decisions.ReturnMarks(is_kept):
                # A node that stays cordoned holds the marks itself.
                heir = MarkHolder(NODES.kind, spec.node_name, spec.node_uid) if is_kept else None
                marks.give_back(spec.node_name, spec.node_uid, {holder}, heir)
            case _:
                assert_never(action)

    def _sweep(self, name: str) -> None:
        """Give back the marks of a node whose holders are gone (IG-28)."""
        node = self._nodes.find_by_name(name)
        # mutant: marks-not-swept
        if node is not None and (gone := {h for h in holders_of(node) if self._is_gone(h, node)}):
            self._parts.marks.give_back(name, node.metadata.uid, gone)
            _log.info("marks_swept", kind=NODES.kind, name=name, holders=sorted(map(str, gone)))

    def _is_gone(self, holder: MarkHolder, node: Node) -> bool:
        """Return whether a holder does not exist any more. Other systems judge their own."""
        if holder.kind == NODES.kind:
            # The marks of a drained node stay until it is uncordoned.
            return holder.uid != node.metadata.uid or not node.spec.unschedulable
        if holder.kind != api.NODE_DRAINS.kind:
            return False
        cached = self._drains.find(holder.name)
        if cached is not None and cached.metadata.uid == holder.uid:
            return False
        live = self._drains.fetch(holder.name)  # the cache may be late
        return live is None or live.metadata.uid != holder.uid

    def _release(self, drain: api.NodeDrain) -> None:
        """Remove the finalizer, so that the API server deletes the drain."""
        meta = drain.metadata
        left = [name for name in meta.finalizers if name != DRAIN_FINALIZER]
        # The cache must not show the result, because the drain is gone after this write.
        self._drains.client.patch(
            meta.name,
            {"metadata": {"finalizers": left}},
            uid=meta.uid,
            resource_version=meta.resource_version,
        )

    # Persist

    def _persist(
        self, seen: DrainObservation, report: decisions.Report, refusal: ApiError | None
    ) -> float:
        """Write the status, unless it is stored already or it is too early.

        Returns:
            The seconds until the status may be written; 0 if it is stored.
        """
        before = seen.live_drain or seen.drain
        name = before.metadata.name
        status = compute_status(seen, report, str(refusal) if refusal is not None else "")
        change = api.status_diff(before.status, status)
        stored = before
        if change:
            only_counts = only_counts_changed(before.status, status)
            wait = self._memory.status_wait(name, only_counts=only_counts)
            if wait > 0:
                return wait
            stored = self._drains.patch_status(before, change)
        self._memory.status_written(name, is_new=bool(change))
        self._events.status_written(before, stored, seen.now)
        return 0.0

    def _forget(self, name: str) -> None:
        """Free the memory and the watch of a drain that has ended."""
        self._pods.forget(name)
        self._memory.forget(name)
        self._events.forget(name)
