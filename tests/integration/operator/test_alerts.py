"""Gates of a whole manager on the alerts of a real Prometheus."""

from typing import Any

import pytest
from tests.cases.case import Case
from tests.cases.prometheus import Prometheus
from tests.cases.waiting import wait_for

pytestmark = pytest.mark.timeout(240)


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
