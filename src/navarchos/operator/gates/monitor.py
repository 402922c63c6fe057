"""Observes the gates of all unfinished rollouts, and keeps since when each one is open."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from navarchos.client import Client
from navarchos.clock import Clock
from navarchos.errors import ConfigError
from navarchos.informers import Registration
from navarchos.instrument import Instruments
from navarchos.logs import get_logger
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.clients import OWNER_INDEX, OperatorClients
from navarchos.operator.gates import alerts, decide, objects
from navarchos.operator.gates.decide import GateObservation, GateRecord, GateWait, Workload
from navarchos.operator.gates.expressions import parse
from navarchos.operator.nodes import Node
from navarchos.stopping import StopToken
from navarchos.threads import ThreadGroup

__all__ = ["GateMonitor", "Records"]

Records = Mapping[str, GateRecord]
"""The gates of one rollout, by name."""

_JOIN_TIMEOUT: Final = 12.0
"""Seconds. A request for the kinds of a group may take ten."""

_NO_RECORDS: Final[Records] = {}

_log = get_logger(__name__)


@dataclass(slots=True)
class _Followed:
    """A rollout whose gates are observed."""

    rollout: api.NodeRollout
    records: dict[str, GateRecord] = field(default_factory=dict)
    can_start: bool = False  # but for its gates
    is_ending: bool = False  # a node waits for a gate before it counts as done


class GateMonitor:
    """Observes gates while an unfinished rollout has them.

    A rollout without gates costs nothing: no request, no thread, no handler. Verdicts are computed
    again when an observed object changes, and callers are notified only if a verdict has changed.

    Promises: no method but `close` waits for a server; one thread opens informers, and others query
    alerts. A gate that closes and opens again counts from the second opening, also if
    no other thread ran in between. After a restart, states continue from `status.gates`.

    Does not promise: to notice that a gate was closed while no process led.

    Args:
        client: Lists and watches.
        clients: The caches of nodes and replacements.
        clock: Time.
        instruments: Where informers and queries count.
        read_alerts: Sends queries of alerts; to Prometheus by default.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        client: Client,
        clients: OperatorClients,
        *,
        clock: Clock,
        instruments: Instruments,
        read_alerts: alerts.AlertReader | None = None,
    ) -> None:
        self._clients = clients
        self._clock = clock
        self._listeners: list[Callable[[str], None]] = []
        self._watches = objects.ObjectWatches(
            client,
            on_change=self._object_changed,
            on_problem=self._wake_service,
            clock=clock,
            instruments=instruments,
        )
        self._pollers = alerts.AlertPollers(
            read_alerts or alerts.PrometheusReader(clock),
            on_result=self._alerts_changed,
            clock=clock,
            instruments=instruments,
        )
        self._state_lock = threading.RLock()  # handlers of caches may run within calls
        self._followed: dict[str, _Followed] = {}  # guarded by _state_lock; by uid
        self._in_flight: frozenset[str] = frozenset()  # guarded by _state_lock
        self._slots_version = 0  # guarded by _state_lock
        self._nodes_handler: Registration[Node] | None = None  # guarded by _state_lock
        self._stop = StopToken(clock=clock)
        self._threads = ThreadGroup("gates", stop=self._stop, clock=clock)
        self._service = threading.Condition(threading.Lock())
        self._is_service_due = False  # guarded by _service
        self._is_served = False  # guarded by _service; whether the thread runs

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call a function with the name of a rollout when the verdict on a gate has changed.

        Add listeners before the manager runs. They must be quick.
        """
        self._listeners.append(listener)

    # What controllers ask

    def observe(
        self, rollouts: Iterable[api.NodeRollout], in_flight: Collection[str]
    ) -> Mapping[str, Records]:
        """Follow the gates of these rollouts and of no others.

        Args:
            rollouts: All rollouts.
            in_flight: The names of all nodes in flight. Alerts are queried again after each
                change of it.

        Returns:
            The records by the uid of the rollout.
        """
        kept = {each.metadata.uid: each for each in rollouts if _is_observed(each)}
        with self._state_lock:
            if self._stop.is_set() or (not kept and not self._followed):
                return {}
            if frozenset(in_flight) != self._in_flight:
                self._in_flight = frozenset(in_flight)
                self._slots_version += 1
            for uid in self._followed.keys() - kept.keys():
                del self._followed[uid]
            for rollout in kept.values():
                self._follow_locked(rollout)
            self._watch_locked()
            now = self._clock.now()
            changed = [e for e in self._followed.values() if self._judge_locked(e, now)]
            found = {uid: dict(each.records) for uid, each in self._followed.items()}
        self._notify(changed)
        return found

    def records(self, rollout: api.NodeRollout) -> Records:
        """Return the gates of one rollout, as they are now; follow them if it is new."""
        if not _is_observed(rollout):
            return _NO_RECORDS
        with self._state_lock:
            if self._stop.is_set():
                return _NO_RECORDS
            followed = self._follow_locked(rollout)
            self._watch_locked()
            self._judge_locked(followed, self._clock.now())
            return dict(followed.records)

    def restart(self, rollout: api.NodeRollout) -> None:
        """Begin the timeouts of closed gates again: a user has resumed the rollout."""
        now = self._clock.now()
        with self._state_lock:
            followed = self._followed.get(rollout.metadata.uid)
            if followed is not None:
                records = followed.records
                followed.records = {n: decide.restarted(records[n], now) for n in records}

    def want_alerts(self, rollouts: Collection[str]) -> None:
        """Set the rollouts, by uid, of which a node could start but for its gates.

        Their alerts are queried at once and every 15 seconds; no other alerts are queried.
        """
        with self._state_lock:
            if not self._followed:
                return
            for uid, followed in self._followed.items():
                followed.can_start = uid in rollouts
                followed.is_ending = followed.is_ending and self._has_nodes_in_flight(uid)
            self._want_queries_locked()

    def wait_after(self, rollout: api.NodeRollout) -> GateWait | None:
        """Return which gate with `after` keeps a node from counting as done, or `None`.

        A caller whose node waits is notified as a listener, and comes back at `until`.
        """
        gates = [gate for gate in rollout.spec.gates if gate.after]
        if not gates:
            return None
        records = self.records(rollout)
        wait = decide.gate_wait(gates, records, self._clock.now())
        if decide.needs_alerts(gates):
            with self._state_lock:
                followed = self._followed.get(rollout.metadata.uid)
                if followed is not None:
                    followed.is_ending = wait is not None
                    self._want_queries_locked()
        return wait

    # Life

    def close(self) -> None:
        """End all threads and informers, and wait for them. Later calls observe nothing."""
        self._stop.stop("the gates end")
        with self._service:
            self._service.notify_all()
        self._threads.join(_JOIN_TIMEOUT)
        self._pollers.close()
        self._watches.close()
        self._remove_nodes_handler()

    def _wake_service(self) -> None:
        """Have informers opened or repaired, by a thread that exists from the first one on."""
        with self._service:
            self._is_service_due = True
            self._service.notify_all()
            if self._is_served or self._stop.is_set():
                return
            self._is_served = True
        self._threads.start("", self._serve)

    def _serve(self) -> None:
        after: float | None = None
        while not self._stop.is_set():
            self._wait_for_service(after)
            after = self._watches.service(self._stop)

    def _wait_for_service(self, after: float | None) -> None:
        # mutant: idle-gates-polled
        deadline = None if after is None else self._clock.monotonic() + after
        with self._service:
            while not self._is_service_due and not self._stop.is_set():
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    break
                self._clock.wait(self._service, left)
            self._is_service_due = False

    def _remove_nodes_handler(self) -> None:
        with self._state_lock:
            registration, self._nodes_handler = self._nodes_handler, None
        if registration is not None:
            registration.remove()

    # What is observed

    def _follow_locked(self, rollout: api.NodeRollout) -> _Followed:
        uid = rollout.metadata.uid
        followed = self._followed.get(uid)
        if followed is None:
            followed = self._followed[uid] = _Followed(rollout, _seeds(rollout))
        elif followed.rollout.spec.gates != rollout.spec.gates:
            before = {gate.name: gate for gate in followed.rollout.spec.gates}
            same = {gate.name for gate in rollout.spec.gates if before.get(gate.name) == gate}
            followed.records = {n: r for n, r in followed.records.items() if n in same}
        followed.rollout = rollout
        return followed

    def _gates_locked(self) -> list[api.GateSpec]:
        return [gate for each in self._followed.values() for gate in each.rollout.spec.gates]

    def _watch_locked(self) -> None:
        """Start and stop what the gates of the followed rollouts need."""
        gates = self._gates_locked()
        keys = {key: None for gate in gates if (key := objects.key_of_gate(gate)) is not None}
        if any(gate.evicted_pods is not None for gate in gates):
            keys.update(dict.fromkeys(objects.WORKLOAD_KINDS))
        if self._watches.want(keys):
            self._wake_service()
        needs_nodes = any(gate.nodes is not None for gate in gates)
        if needs_nodes and self._nodes_handler is None:
            self._nodes_handler = self._clients.nodes.informer.add_handler(
                on_add=lambda node, _: self._node_changed(None, node),
                on_update=self._node_changed,
                on_delete=lambda _: self._judge_all(_has_nodes),
            )
        elif not needs_nodes and self._nodes_handler is not None:
            self._nodes_handler.remove()
            self._nodes_handler = None
        self._pollers.forget(
            {alerts.query_of_gate(g.alerts) for g in gates if g.alerts is not None}
        )
        self._want_queries_locked()

    def _has_nodes_in_flight(self, uid: str) -> bool:
        children = self._clients.replacements.by_index(OWNER_INDEX, uid)
        return any(child.status.current.in_flight for child in children)

    def _want_queries_locked(self) -> None:
        wanted: dict[alerts.AlertQuery, int] = {
            alerts.query_of_gate(gate.alerts): self._slots_version
            for each in self._followed.values()
            if each.can_start or each.is_ending  # mutant: idle-alerts-queried
            for gate in each.rollout.spec.gates
            if gate.alerts is not None
        }
        self._pollers.want(wanted)

    # Changes

    def _object_changed(
        self, key: objects.ObservedKind, unmet: decide.ObservedObject | None
    ) -> None:
        """Judge the gates on a kind again; a gate with an unmet object was closed in between."""
        now = self._clock.now()
        changed: list[_Followed] = []
        with self._state_lock:
            for followed in self._followed.values():
                for gate in followed.rollout.spec.gates:
                    if not _observes(gate, key):
                        continue
                    if unmet is not None and gate.object is not None:
                        seen = GateObservation(objects=[unmet])
                        self._record_locked(followed, gate, decide.judge(gate, seen, now), now)
                    before = followed.records.get(gate.name)
                    verdict = decide.judge(gate, self._observe_locked(followed, gate), now)
                    self._record_locked(followed, gate, verdict, now)
                    if _differs(before, followed.records[gate.name]) or unmet is not None:
                        changed.append(followed)
        self._notify(changed)

    def _node_changed(self, old: Node | None, new: Node) -> None:
        if old is None or _node_inputs(old) != _node_inputs(new):
            self._judge_all(_has_nodes)

    def _alerts_changed(self, query: alerts.AlertQuery) -> None:
        with self._state_lock:
            asking = [
                followed
                for followed in self._followed.values()
                if any(
                    gate.alerts is not None and alerts.query_of_gate(gate.alerts) == query
                    for gate in followed.rollout.spec.gates
                )
            ]
            now = self._clock.now()
            changed = [followed for followed in asking if self._judge_locked(followed, now)]
        self._notify(changed)

    def _judge_all(self, concerns: Callable[[api.GateSpec], bool]) -> None:
        now = self._clock.now()
        with self._state_lock:
            changed = [
                followed
                for followed in self._followed.values()
                if any(map(concerns, followed.rollout.spec.gates))
                and self._judge_locked(followed, now)
            ]
        self._notify(changed)

    def _judge_locked(self, followed: _Followed, now: datetime) -> bool:
        """Judge all gates of a rollout; return whether a verdict has changed."""
        before = dict(followed.records)
        for gate in followed.rollout.spec.gates:
            verdict = decide.judge(gate, self._observe_locked(followed, gate), now)
            self._record_locked(followed, gate, verdict, now)
        return any(_differs(before.get(name), record) for name, record in followed.records.items())

    def _record_locked(
        self, followed: _Followed, gate: api.GateSpec, verdict: decide.Verdict, now: datetime
    ) -> None:
        record = followed.records.get(gate.name, GateRecord(gate.name))
        followed.records[gate.name] = decide.follow(record, verdict, now)

    def _notify(self, changed: Iterable[_Followed]) -> None:
        for name in dict.fromkeys(each.rollout.metadata.name for each in changed):
            for listener in self._listeners:
                listener(name)

    # Observations

    def _observe_locked(self, followed: _Followed, gate: api.GateSpec) -> GateObservation:
        if (key := objects.key_of_gate(gate)) is not None:
            problem = _expression_problem(gate) or self._watches.problem(key)
            return GateObservation(problem=problem, objects=self._watches.objects(key))
        if gate.nodes is not None:
            return GateObservation(nodes=self._clients.nodes.list(), in_flight=self._in_flight)
        if gate.alerts is not None:
            result = self._pollers.result(alerts.query_of_gate(gate.alerts))
            return GateObservation(alerts=result, slots_version=self._slots_version)
        problems = [self._watches.problem(key) for key in objects.WORKLOAD_KINDS]
        children = self._clients.replacements.by_index(OWNER_INDEX, followed.rollout.metadata.uid)
        return GateObservation(
            problem=next((problem for problem in problems if problem), ""),
            workloads=self._workloads(children),
            last_drained_at=max(
                (done for c in children if (done := c.status.completion_timestamp) is not None),
                default=None,
            ),
        )

    def _workloads(self, children: Sequence[api.NodeReplacement]) -> Sequence[Workload] | None:
        if not all(map(self._watches.has_synced, objects.WORKLOAD_KINDS)):
            return None
        owners = {owner.uid: owner for c in children for owner in c.status.evicted_owners}
        kinds = {key.kind: key for key in objects.WORKLOAD_KINDS}
        found = []
        for owner in owners.values():
            if (key := kinds.get(owner.kind)) is None:
                continue
            obj = self._watches.find(key, owner.name, owner.namespace)
            # A controller that was deleted wants no pods; one with the same name is another.
            if obj is not None and objects.uid_of(obj) == owner.uid:
                found.append(objects.workload_of(owner.kind, obj))
        return found


def _is_observed(rollout: api.NodeRollout) -> bool:
    return bool(
        rollout.spec.gates
        and rollout.status.phase is not api.RolloutPhase.COMPLETED
        and rollout.metadata.deletion_timestamp is None
    )


def _seeds(rollout: api.NodeRollout) -> dict[str, GateRecord]:
    """Return the states that an earlier process has stored.

    The result of an alert query is worth nothing later, and an edit may have changed a gate.
    """
    if rollout.status.observed_generation != rollout.metadata.generation:
        return {}
    kinds = {gate.name: gate.kind for gate in rollout.spec.gates}
    return {
        status.name: decide.recorded(status)
        for status in rollout.status.gates
        if status.state is api.GateState.CLOSED
        or (
            status.state is api.GateState.OPEN and kinds.get(status.name) is not api.GateKind.ALERTS
        )
    }


def _expression_problem(gate: api.GateSpec) -> str:
    try:
        parse(gate.condition)
    except ConfigError as error:
        return str(error)
    return ""


def _observes(gate: api.GateSpec, key: objects.ObservedKind) -> bool:
    return objects.key_of_gate(gate) == key or (
        gate.evicted_pods is not None and key in objects.WORKLOAD_KINDS
    )


def _has_nodes(gate: api.GateSpec) -> bool:
    return gate.nodes is not None


def _node_inputs(node: Node) -> object:
    return node.is_ready, node.spec.taints, node.spec.unschedulable, node.metadata.labels


def _differs(before: GateRecord | None, after: GateRecord) -> bool:
    """Return whether waiting nodes or the status must follow."""
    if before is None:
        return True
    return before.verdict.state is not after.verdict.state or before.shown != after.shown
