"""Gates on the alerts of a real Prometheus: its own query language, and a whole manager."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases.case import Case
from tests.cases.prometheus import Prometheus
from tests.cases.waiting import wait_for

from navarchos.clock import SYSTEM_CLOCK
from navarchos.instrument import Instruments
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates.alerts import (
    AlertPollers,
    AlertQuery,
    PrometheusReader,
    query_of_gate,
)
from navarchos.testing.clock import FakeClock
from navarchos.testing.controlplane.guard import Guard

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def prometheus(guard: Guard, tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus that was not started yet."""
    server = Prometheus(guard, tmp_path)
    try:
        yield server
    finally:
        server.close()


def gate(prometheus: Prometheus, name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "alerts": {"url": prometheus.url, **fields}}


def set_gates(case: Case, *gates: dict[str, Any]) -> None:
    case.target.patch("NodeRollout", case.name, {"spec": {"gates": list(gates)}})


def wait_for_gate(case: Case, name: str, state: str, says: str = "") -> None:
    """Wait for the state of a gate and its message."""
    seen: dict[str, dict[str, str]] = {}

    def is_seen() -> bool:
        seen.update({each["name"]: each for each in case.status().get("gates", ())})
        found = seen.get(name, {})
        return found.get("state") == state and found.get("message", "") == says

    try:
        wait_for(f"gate {name} to be {state}: {says}", is_seen)
    except AssertionError as error:
        error.add_note(f"last seen: {seen.get(name)}")
        raise


def assert_waits(case: Case, node: str, gate_name: str) -> None:
    """Check that a node waits for a gate and was not touched."""

    def waiting() -> dict[str, Any]:
        return case.condition("Waiting", "NodeReplacement", case.replacement(node))

    wait_for("the reason Gate", lambda: waiting().get("reason") == "Gate")
    assert f"gate {gate_name} is closed" in waiting()["message"]
    assert not case.is_cordoned(node)


@pytest.mark.rule("RB-65")
def test_a_real_prometheus_evaluates_each_row_of_the_query_table(prometheus: Prometheus) -> None:
    prometheus.start(firing=["RebootRequired", "NodeDown", 'a"b7'], pending=["NodeSlow"])
    active = prometheus.active
    assert active() == ("NodeDown", "NodeSlow", "RebootRequired", 'a"b7')
    assert active(states="Firing") == ("NodeDown", "RebootRequired", 'a"b7')
    # An anchored filter must match the whole name, and other filters match anywhere in it.
    assert active(filter="^Reboot$") == ("NodeDown", "NodeSlow", "RebootRequired", 'a"b7')
    assert active(filter="^RebootRequired$") == ("NodeDown", "NodeSlow", 'a"b7')
    assert active(filter="eDow", match="Only") == ("NodeDown",)
    assert active(filter="Reboot|Node") == ('a"b7',)
    assert active(filter="(?i)node", match="Only") == ("NodeDown", "NodeSlow")
    only = active(filter="Reboot|Node", match="Only", states="Firing")
    assert only == ("NodeDown", "RebootRequired")
    assert active(filter=r'a"b\d') == ("NodeDown", "NodeSlow", "RebootRequired")
    prometheus.set_alerts()
    assert active() == ()


@pytest.mark.rule("RB-66")
def test_a_query_follows_alerts_in_turns_of_15_seconds(prometheus: Prometheus) -> None:
    clock = FakeClock()
    seen: list[tuple[float, tuple[str, ...], str]] = []
    query = query_of_gate(msgspec.convert({"url": prometheus.url}, api.AlertsGate))

    def note(_: AlertQuery) -> None:
        result = pollers.result(query)
        assert result is not None
        seen.append((clock.monotonic() - began, result.alerts, result.failure))

    pollers = AlertPollers(
        PrometheusReader(SYSTEM_CLOCK), on_result=note, clock=clock, instruments=Instruments()
    )
    began = clock.monotonic()
    try:
        prometheus.start(firing=["WebDown"])
        pollers.want({query: 0})
        clock.advance(14.9)
        assert seen == [(0.0, ("WebDown",), "")]
        prometheus.stop()
        clock.advance(14.9)
        assert seen[1:] == [(15.0, (), f"{prometheus.url} did not answer: Connection refused")]
        prometheus.start()
        clock.advance(0.3)
        assert seen[2:] == [(30.0, (), "")]
        pollers.want({})
        clock.advance(600.0)
        assert len(seen) == 3
    finally:
        pollers.close()


@pytest.mark.rule("RB-65")
@pytest.mark.rule("NP-30")
def test_no_node_starts_while_an_alert_that_counts_is_active(
    case: Case, prometheus: Prometheus
) -> None:
    (node,) = case.add_nodes(1)
    case.manager()
    down = gate(prometheus, "web", filter="^Web", match="Only")
    case.roll(gates=[down])
    refused = f"AlertQueryFailed: {prometheus.url} did not answer: Connection refused"
    wait_for_gate(case, "web", "Closed", refused)
    assert_waits(case, node, "web")
    prometheus.start(firing=["WebDown", "DiskFull"], pending=["NodeSlow"])
    # A changed query is sent at once, so that this case need not wait for the next turn.
    web = gate(prometheus, "web", filter="^Web.+", match="Only")
    others = gate(prometheus, "others", filter="Down$|^Disk")
    set_gates(case, web, others)
    wait_for_gate(case, "web", "Closed", "alerts: WebDown")
    wait_for_gate(case, "others", "Closed", "alerts: NodeSlow")
    others["alerts"]["states"] = "Firing"
    set_gates(case, web, others)
    wait_for_gate(case, "others", "Open")
    assert_waits(case, node, "web")
    prometheus.set_alerts(firing=["DiskFull"], pending=["NodeSlow"])
    web["alerts"]["filter"] = "^WebD"
    set_gates(case, web, others)
    status = case.wait_for_phase("Completed")
    assert status["replacementsCompleted"] == [node]


@pytest.mark.long
@pytest.mark.rule("RB-66")
def test_a_gate_follows_an_alert_and_the_end_of_prometheus_by_itself(
    case: Case, prometheus: Prometheus
) -> None:
    (node,) = case.add_nodes(1)
    prometheus.start(firing=["WebDown"])
    case.manager()
    case.roll(gates=[gate(prometheus, "alerts")])
    wait_for_gate(case, "alerts", "Closed", "alerts: WebDown")
    assert_waits(case, node, "alerts")
    prometheus.stop()
    refused = f"AlertQueryFailed: {prometheus.url} did not answer: Connection refused"
    wait_for_gate(case, "alerts", "Closed", refused)
    assert_waits(case, node, "alerts")
    prometheus.start()
    status = case.wait_for_phase("Completed")
    assert status["replacementsCompleted"] == [node]
    events = case.events(case.name)
    assert len(events["GateClosed"]) == len(events["GateOpened"]) == 1
