"""Whether gates are open, since when, and what they mean for the next node. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec

from navarchos.errors import ConfigError
from navarchos.meta import EPOCH
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates.expressions import Outcome
from navarchos.operator.names import DRAIN_COMPLETED_LABEL, JOINING_TAINT
from navarchos.operator.nodes import Node

__all__ = [
    "ALERT_MAX_AGE",
    "WORKLOAD_SETTLE",
    "AlertResult",
    "GateObservation",
    "GateRecord",
    "GateTimeout",
    "GateWait",
    "ObservedObject",
    "Verdict",
    "Workload",
    "find_timeout",
    "follow",
    "gate_wait",
    "gate_waits",
    "judge",
    "needs_alerts",
    "recorded",
    "restarted",
    "to_status",
]

ALERT_MAX_AGE: Final = 15.0
"""Seconds for which a result of Prometheus may let a node start."""

WORKLOAD_SETTLE: Final = 2.0
"""Seconds after the last drained node for which `evictedPods` is not decided.

The controllers of the evicted pods need this time to count the pods that are gone."""

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class ObservedObject:
    """An object of a gate: its name, and how it meets the gate's expression."""

    name: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Workload:
    """A controller of pods: its name, and its wanted and its Ready pods."""

    name: str
    wanted: int
    ready: int


@dataclass(frozen=True, slots=True)
class AlertResult:
    """The answer of Prometheus: names of active alerts, or why there is none."""

    at: datetime
    """When the query was sent."""
    slots_version: int
    """The version of the nodes in flight when the query was sent."""
    alerts: tuple[str, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateObservation:
    """What one gate is judged by; only the part of its kind is filled in."""

    problem: str = ""
    """Why the gate cannot be judged: an invalid expression, a missing kind or permission."""
    objects: Sequence[ObservedObject] | None = None
    """`None` until they have been read for the first time."""
    nodes: Sequence[Node] = ()
    in_flight: Collection[str] = frozenset()
    """Names of the nodes in flight."""
    workloads: Sequence[Workload] | None = None
    """The controllers of evicted pods; `None` until they have been read for the first time."""
    last_drained_at: datetime | None = None
    alerts: AlertResult | None = None
    slots_version: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of a gate, and what blocks.

    Attributes:
        state: Open, closed, or not known yet.
        subject: The first object that blocks. A closed gate is reported again when it changes.
        message: What blocks, with values, in words.
        until: When time alone changes the verdict; `None` if it never does.
        is_broken: Whether the gate cannot be judged until a user changes something.
    """

    state: api.GateState
    subject: str = ""
    message: str = ""
    until: datetime | None = None
    is_broken: bool = False


_PENDING: Final = Verdict(api.GateState.PENDING, message="not evaluated yet")
_OPEN: Final = Verdict(api.GateState.OPEN)


@dataclass(frozen=True, slots=True)
class GateRecord:
    """A gate's verdict over time.

    Attributes:
        name: The gate.
        verdict: What is true now.
        since: Since when the state is the same.
        shown: The entry of `status.gates`. It does not become Pending again, and it changes only
            with the state or with the first object that blocks.
        reopens: Of a gate whose result has expired: since when it was open, and until when
            another result continues this time.
    """

    name: str
    verdict: Verdict = _PENDING
    since: datetime | None = None
    shown: api.GateStatus | None = None
    reopens: tuple[datetime, datetime] | None = None


def judge(gate: api.GateSpec, observed: GateObservation, now: datetime) -> Verdict:
    """Return whether a gate is open now. Never raises."""
    if observed.problem:
        return _broken(observed.problem)
    kind = gate.kind
    match kind:
        case api.GateKind.OBJECT:
            return _judge_objects(gate, observed.objects)
        case api.GateKind.NODES:
            return _judge_nodes(gate, observed)
        case api.GateKind.EVICTED_PODS:
            return _judge_workloads(observed, now)
        case api.GateKind.ALERTS:
            return _judge_alerts(observed, now)
        case None:
            return _broken("set exactly one of object, nodes, evictedPods and alerts")
        case _:
            assert_never(kind)


def _closed(subject: str, message: str) -> Verdict:
    return Verdict(api.GateState.CLOSED, subject, message)


def _broken(problem: str) -> Verdict:
    return Verdict(api.GateState.CLOSED, problem, problem, is_broken=True)


def _judge_objects(gate: api.GateSpec, objects: Sequence[ObservedObject] | None) -> Verdict:
    if objects is None:
        return _PENDING
    wanted = gate.object
    if not objects:
        if gate.on_missing is api.OnMissing.PASS:  # mutant: missing-objects-block
            return _OPEN
        name = f"{wanted.kind} {_wanted_name(wanted)}" if wanted is not None else "object"
        return _closed(name, f"{name} does not exist")
    unmet = sorted((o for o in objects if not o.outcome.met), key=lambda o: o.name)
    if not unmet:  # mutant: one-object-is-enough
        return _OPEN
    kind = wanted.kind if wanted is not None else ""
    shown = ", ".join(f"{kind} {o.name}: {o.outcome.value}" for o in unmet[:_SHOWN])
    return _closed(unmet[0].name, shown + _more(unmet))


def _wanted_name(wanted: api.ObjectGate) -> str:
    scope = f"{wanted.namespace}/" if wanted.namespace else ""
    return f"{scope}{wanted.name}" if wanted.name else f"{scope}(with the labels of selector)"


def _more(found: Sequence[object]) -> str:
    more = len(found) - _SHOWN
    return f" and {more} more" if more > 0 else ""


def _judge_nodes(gate: api.GateSpec, observed: GateObservation) -> Verdict:
    assert gate.nodes is not None
    total = len(observed.nodes)
    try:
        limit = api.resolve_count(gate.nodes.max_unready, total, round_up=False)
    except ConfigError as error:
        return _broken(str(error))
    unready = sorted(
        node.metadata.name
        for node in observed.nodes
        if not node.is_ready and not _is_excused(node, observed.in_flight)
    )
    if len(unready) <= limit:  # mutant: one-unready-node-too-many
        return _OPEN
    shown = ", ".join(unready[:_SHOWN]) + _more(unready)
    message = f"{len(unready)} nodes are not Ready, more than maxUnready ({limit}): {shown}"
    return _closed("nodes", message)


def _is_excused(node: Node, in_flight: Collection[str]) -> bool:
    """Return whether it is no sign of an unwell cluster that a node is not Ready."""
    if node.metadata.name in in_flight:
        return True
    if any(taint.key == JOINING_TAINT for taint in node.spec.taints):
        return True
    # Drained nodes are empty, and their machines are often terminated next.
    return node.spec.unschedulable and DRAIN_COMPLETED_LABEL in node.metadata.labels


def _judge_workloads(observed: GateObservation, now: datetime) -> Verdict:
    if observed.workloads is None:
        return _PENDING
    short = sorted(
        (each for each in observed.workloads if each.ready < each.wanted),
        key=lambda workload: workload.name,
    )
    if short:
        shown = ", ".join(f"{w.name}: {w.ready} of {w.wanted} pods Ready" for w in short[:_SHOWN])
        return _closed(short[0].name, shown + _more(short))
    settled = (observed.last_drained_at or EPOCH) + timedelta(seconds=WORKLOAD_SETTLE)
    if now < settled:  # mutant: evicted-pods-not-settled
        message = "the controllers of the evicted pods may not have counted their pods yet"
        return Verdict(api.GateState.PENDING, message=message, until=settled)
    return _OPEN


def _judge_alerts(observed: GateObservation, now: datetime) -> Verdict:
    result = observed.alerts
    if result is None:
        return _PENDING
    if result.failure:
        message = f"AlertQueryFailed: {result.failure}"
        return _closed("AlertQueryFailed", message)
    if result.alerts:
        shown = ", ".join(result.alerts[:_SHOWN]) + _more(result.alerts)
        return _closed(result.alerts[0], f"alerts: {shown}")
    expires = result.at + timedelta(seconds=ALERT_MAX_AGE)
    # mutant: old-alerts-let-nodes-start
    if now > expires or result.slots_version != observed.slots_version:
        return Verdict(api.GateState.PENDING, message="the alerts must be queried again")
    return Verdict(api.GateState.OPEN, until=expires)


# Over time


def recorded(status: api.GateStatus) -> GateRecord:
    """Return the record that an earlier process stored in the status of the rollout."""
    verdict = Verdict(status.state, status.message, status.message)
    return GateRecord(status.name, verdict, status.since, status)


def follow(record: GateRecord, verdict: Verdict, now: datetime) -> GateRecord:
    """Return the record after another verdict; an equal state keeps its time.

    An alert result that has expired leaves a gate Pending. If the next result comes as soon as a
    query can be answered, the gate counts as open all the time.
    """
    before = record.verdict
    since, reopens = record.since, None
    if verdict.state is not before.state:
        since = now
        if before.state is api.GateState.OPEN and before.until is not None:
            reopens = (record.since or now, before.until + _QUERY_TIME)
        elif verdict.state is api.GateState.OPEN and record.reopens is not None:
            opened, latest = record.reopens
            since = opened if now <= latest else now
    elif verdict.state is api.GateState.PENDING:
        reopens = record.reopens
    shown = record.shown
    if verdict.state is not api.GateState.PENDING and (
        shown is None
        or shown.state is not verdict.state
        or (verdict.state is before.state and verdict.subject != before.subject)
    ):
        shown = api.GateStatus(
            name=record.name, state=verdict.state, since=since, message=verdict.message
        )
    return GateRecord(record.name, verdict, since, shown, reopens)


_QUERY_TIME: Final = timedelta(seconds=12)
"""The time that the next alert query may take."""


def restarted(record: GateRecord, now: datetime) -> GateRecord:
    """Return the record after a resume: the timeout of a closed gate begins again."""
    shown = record.shown
    if record.verdict.state is api.GateState.OPEN:
        return record
    if shown is not None and shown.state is api.GateState.CLOSED:
        shown = msgspec.structs.replace(shown, since=now)
    return replace(record, since=now, shown=shown)


def to_status(record: GateRecord) -> api.GateStatus:
    """Return the entry of `status.gates`."""
    return record.shown or api.GateStatus(name=record.name, message=record.verdict.message)


# What it means


@dataclass(frozen=True, slots=True)
class GateWait:
    """Why no node of a rollout may start.

    Attributes:
        message: The gate and what blocks. It stays equal while the gate and its subject do.
        is_closed: Whether a gate is closed; otherwise all gates are open or not known yet.
        until: When time alone ends the wait; `None` if it never does.
    """

    message: str
    is_closed: bool
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class GateTimeout:
    """A gate that was closed for too long, or will have been."""

    at: datetime
    message: str


def gate_wait(
    gates: Iterable[api.GateSpec], records: Mapping[str, GateRecord], now: datetime
) -> GateWait | None:
    """Return why gates let no node start now; `None` if all of them let nodes start.

    A closed gate comes before a gate that is not known yet, and that one before a gate that has
    not been open for long enough.
    """
    pending: GateWait | None = None
    unstable: GateWait | None = None
    for gate in gates:
        record = records.get(gate.name, GateRecord(gate.name))
        state = record.verdict.state
        match state:
            case api.GateState.CLOSED:  # mutant: closed-gates-let-nodes-start
                message = f"gate {gate.name} is closed: {to_status(record).message}"
                return GateWait(message, True, record.verdict.until)
            case api.GateState.PENDING:
                message = f"gate {gate.name} is being evaluated"
                pending = pending or GateWait(message, False, record.verdict.until)
            case api.GateState.OPEN:
                stable_at = (record.since or now) + timedelta(seconds=gate.stable_seconds)
                if (
                    gate.stable_seconds
                    and now < stable_at
                    and (  # mutant: unstable-gates-let-nodes-start
                        unstable is None or (unstable.until or now) < stable_at
                    )
                ):
                    message = (
                        f"gate {gate.name} is open, but not yet for {gate.stable_seconds} seconds"
                    )
                    unstable = GateWait(message, True, stable_at)
            case _:
                assert_never(state)
    return pending or unstable


def gate_waits(
    rollouts: Mapping[str, api.NodeRollout],
    records: Mapping[str, Mapping[str, GateRecord]],
    now: datetime,
) -> dict[str, GateWait]:
    """Return the waits of all rollouts, by uid; the records have the same keys."""
    waits = {
        uid: gate_wait(rollout.spec.gates, records.get(uid, {}), now)
        for uid, rollout in rollouts.items()
        if rollout.spec.gates
    }
    return {uid: wait for uid, wait in waits.items() if wait is not None}


def needs_alerts(gates: Iterable[api.GateSpec]) -> bool:
    """Return whether a start needs an alert query that was sent after the last start."""
    return any(gate.alerts is not None for gate in gates)


def find_timeout(
    gates: Iterable[api.GateSpec],
    records: Mapping[str, GateRecord],
    waiting_since: datetime | None,
) -> GateTimeout | None:
    """Return the first timeout of the closed gates, in the past or in the future.

    Args:
        gates: The gates of the rollout.
        records: Their states.
        waiting_since: Since when a node could have started but for a gate; `None` if none could.
    """
    if waiting_since is None:
        return None
    found = []
    for gate in gates:
        record = records.get(gate.name)
        if record is None or record.since is None or not gate.timeout_seconds:
            continue
        if record.verdict.state is not api.GateState.CLOSED:
            continue
        at = max(record.since, waiting_since) + timedelta(seconds=gate.timeout_seconds)
        message = (
            f"gate {gate.name} was closed for {gate.timeout_seconds} seconds: "
            f"{record.verdict.message}"
        )
        found.append(GateTimeout(at, message))
    return min(found, key=lambda timeout: timeout.at, default=None)
