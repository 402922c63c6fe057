"""Verdicts, their times, waits and timeouts, as pure functions."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from navarchos.client.taints import Taint
from navarchos.meta import ObjectMeta
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates.decide import (
    AlertResult,
    GateObservation,
    GateRecord,
    ObservedObject,
    Verdict,
    Workload,
    find_timeout,
    follow,
    gate_wait,
    judge,
    recorded,
    restarted,
    to_status,
)
from navarchos.operator.gates.expressions import Outcome
from navarchos.operator.nodes import Node, NodeCondition, NodeSpec, NodeStatus

NOW = datetime(2026, 6, 5, 10, tzinfo=UTC)
OPEN, CLOSED, PENDING = api.GateState.OPEN, api.GateState.CLOSED, api.GateState.PENDING


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def gate(**fields: object) -> api.GateSpec:
    return msgspec.convert({"name": "g", **fields}, api.GateSpec)


WEB: dict[str, object] = {
    "object": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    "for": "condition=A",
}


def objects(**met: bool) -> GateObservation:
    found = [ObservedObject(name, Outcome(ok, f"A={ok}")) for name, ok in met.items()]
    return GateObservation(objects=found)


@pytest.mark.rule("MA-60")
def test_all_objects_must_meet_the_expression() -> None:
    assert judge(gate(**WEB), objects(a=True, b=True), NOW).state is OPEN
    verdict = judge(gate(**WEB), objects(a=True, c=False, b=False), NOW)
    assert verdict.state is CLOSED
    assert verdict.message == "Deployment b: A=False, Deployment c: A=False"


@pytest.mark.rule("MA-60")
def test_no_object_is_false_unless_the_gate_says_otherwise() -> None:
    assert judge(gate(**WEB), objects(), NOW).message == "Deployment web does not exist"
    assert judge(gate(**WEB), objects(), NOW).state is CLOSED
    assert judge(gate(**WEB, onMissing="Pass"), objects(), NOW).state is OPEN
    # Before the first list nothing is known.
    assert judge(gate(**WEB, onMissing="Pass"), GateObservation(), NOW).state is PENDING


def test_a_problem_closes_a_gate_of_every_kind() -> None:
    specs: list[dict[str, object]] = [WEB, {"nodes": {"maxUnready": 9}}, {"evictedPods": {}}]
    for spec in specs:
        verdict = judge(gate(**spec), GateObservation(problem="forbidden"), NOW)
        assert (verdict.state, verdict.message, verdict.is_broken) == (CLOSED, "forbidden", True)
    assert judge(gate(), GateObservation(), NOW).is_broken
    assert judge(gate(nodes={"maxUnready": "many"}), GateObservation(), NOW).is_broken


def node(name: str, *, ready: bool = True, joins: bool = False, drained: bool = False) -> Node:
    labels = {"navarchos.pusher.com/drain-completed": "x"} if drained else {}
    taints = (Taint(key="navarchos.pusher.com/joining", effect="NoSchedule"),) if joins else ()
    condition = NodeCondition(type="Ready", status="True" if ready else "Unknown")
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=NodeSpec(unschedulable=drained, taints=taints),
        status=NodeStatus(conditions=(condition,)),
    )


@pytest.mark.rule("MA-60")
@pytest.mark.parametrize(
    ("limit", "unready", "state"),
    [
        (0, 0, OPEN),
        (0, 1, CLOSED),
        (1, 1, OPEN),
        (1, 2, CLOSED),
        ("20%", 2, OPEN),
        ("20%", 3, CLOSED),
    ],
)
def test_nodes_that_are_not_ready_are_counted(
    limit: int | str, unready: int, state: api.GateState
) -> None:
    excused = [
        node("in-flight", ready=False),
        node("joins", ready=False, joins=True),
        node("drained", ready=False, drained=True),
    ]
    others = [node(f"n{n}", ready=n >= unready) for n in range(10 - len(excused))]
    seen = GateObservation(nodes=[*excused, *others], in_flight={"in-flight"})
    assert judge(gate(nodes={"maxUnready": limit}), seen, NOW).state is state


@pytest.mark.rule("NP-30")
def test_controllers_of_evicted_pods_need_their_wanted_pods() -> None:
    pods = gate(evictedPods={})
    assert judge(pods, GateObservation(), NOW).state is PENDING
    short = GateObservation(workloads=[Workload("ReplicaSet a/web", 3, 2)])
    assert judge(pods, short, NOW).message == "ReplicaSet a/web: 2 of 3 pods Ready"
    well = GateObservation(workloads=[Workload("ReplicaSet a/web", 3, 3)], last_drained_at=NOW)
    # The controller may not have counted the evicted pods yet.
    assert (judge(pods, well, at(1)).state, judge(pods, well, at(1)).until) == (PENDING, at(2))
    assert judge(pods, well, at(2)).state is OPEN


ALERTS: dict[str, object] = {"alerts": {"url": "http://prometheus"}}


@pytest.mark.rule("RB-66")
def test_a_result_of_alerts_lets_nodes_start_for_fifteen_seconds() -> None:
    def state(seconds: float, result: AlertResult | None, version: int = 1) -> api.GateState:
        seen = GateObservation(alerts=result, slots_version=version)
        return judge(gate(**ALERTS), seen, at(seconds)).state

    assert state(0, None) is PENDING
    assert state(15, AlertResult(NOW, 1)) is OPEN
    assert state(15.1, AlertResult(NOW, 1)) is PENDING
    # A node has started or finished since the query was sent.
    assert state(1, AlertResult(NOW, 1), 2) is PENDING
    assert state(60, AlertResult(NOW, 1, ("NodeDown",)), 2) is CLOSED
    assert state(60, AlertResult(NOW, 1, failure="timeout")) is CLOSED


@pytest.mark.rule("RB-65")
def test_a_failed_query_blocks_with_its_reason() -> None:
    seen = GateObservation(alerts=AlertResult(NOW, 0, failure="status 500"))
    assert judge(gate(**ALERTS), seen, NOW).message == "AlertQueryFailed: status 500"


def closed(subject: str = "x") -> Verdict:
    return Verdict(CLOSED, subject, f"{subject} is bad")


@pytest.mark.rule("NP-30")
def test_a_gate_counts_from_its_last_opening() -> None:
    record = follow(GateRecord("g"), Verdict(OPEN), at(0))
    record = follow(record, closed(), at(20))
    record = follow(record, Verdict(OPEN), at(30))
    record = follow(record, Verdict(OPEN), at(40))
    assert record.since == at(30)
    stable = gate(**WEB, stableSeconds=15)
    early, late = (gate_wait([stable], {"g": record}, at(second)) for second in (44, 45))
    assert early is not None
    assert (early.until, early.is_closed) == (at(45), True)
    assert late is None


@pytest.mark.rule("NP-30")
def test_the_first_closed_gate_is_named_before_gates_that_are_not_known() -> None:
    gates = [gate(**WEB), gate(**WEB | {"name": "h"}), gate(**WEB | {"name": "i"})]
    records = {
        "g": follow(GateRecord("g"), Verdict(OPEN), NOW),
        "i": follow(GateRecord("i"), closed("web"), NOW),
    }
    wait = gate_wait(gates, records, NOW)
    assert wait is not None
    assert (wait.message, wait.is_closed) == ("gate i is closed: web is bad", True)
    wait = gate_wait(gates[:2], records, NOW)
    assert wait is not None
    assert (wait.message, wait.is_closed) == ("gate h is being evaluated", False)
    assert gate_wait(gates[:1], records, NOW) is None


@pytest.mark.rule("NP-30")
def test_the_status_changes_with_the_state_and_the_object_but_not_with_the_value() -> None:
    first = follow(GateRecord("g"), Verdict(CLOSED, "a", "a=1"), at(0))
    second = follow(first, Verdict(CLOSED, "a", "a=2"), at(1))
    assert to_status(second) == to_status(first)
    assert second.verdict.message == "a=2"
    third = follow(second, Verdict(CLOSED, "b", "b=2"), at(2))
    assert to_status(third).message == "b=2"
    assert to_status(third).since == at(0)
    assert to_status(follow(third, Verdict(PENDING), at(3))) == to_status(third)


def test_one_result_of_alerts_after_the_other_keeps_a_gate_open() -> None:
    record = follow(GateRecord("g"), Verdict(OPEN, until=at(15)), at(0))
    expired = follow(record, Verdict(PENDING), at(15.1))
    assert follow(expired, Verdict(OPEN, until=at(31)), at(16)).since == at(0)
    assert follow(expired, Verdict(OPEN, until=at(75)), at(60)).since == at(60)
    assert follow(follow(expired, closed(), at(16)), Verdict(OPEN), at(17)).since == at(17)


def timeout_at(record: GateRecord, waiting_since: datetime | None) -> datetime | None:
    found = find_timeout([gate(**WEB, timeoutSeconds=60)], {"g": record}, waiting_since)
    return None if found is None else found.at


@pytest.mark.rule("NP-30")
def test_a_timeout_counts_while_a_node_could_otherwise_start() -> None:
    record = follow(GateRecord("g"), closed(), at(0))
    assert timeout_at(record, None) is None
    assert timeout_at(record, at(-100)) == at(60)
    assert timeout_at(record, at(30)) == at(90)
    assert timeout_at(follow(record, Verdict(OPEN), at(1)), at(0)) is None
    forever = gate(**WEB, timeoutSeconds=0)
    assert find_timeout([forever], {"g": record}, NOW) is None


@pytest.mark.rule("NP-30")
def test_the_time_of_a_closed_gate_survives_a_restart_and_ends_with_a_resume() -> None:
    record = recorded(to_status(follow(GateRecord("g"), closed(), at(0))))
    record = follow(record, closed(), at(50))
    assert timeout_at(record, at(0)) == at(60)
    resumed = restarted(record, at(70))
    assert timeout_at(resumed, at(0)) == at(130)
    assert to_status(resumed).since == at(70)
