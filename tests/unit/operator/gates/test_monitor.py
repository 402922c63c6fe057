"""Gates on objects of a server, in virtual time."""

import queue
from collections.abc import Iterator

import pytest
from tests.unit.operator.conftest import Make, Operator

from navarchos.client import Client, ClientConfig, Resource
from navarchos.instrument import Instruments
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.gates import GateMonitor, GateWait, gate_wait

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", namespaced=True, type=dict)

GATE = {
    "name": "web",
    "object": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
    "for": "condition=Available",
    "stableSeconds": 30,
}

LATE = 20.0
"""Seconds of real time."""


class Watched:
    """A monitor, and one rollout whose gate observes the Deployment `web`."""

    def __init__(self, operator: Operator, rollout: api.NodeRollout) -> None:
        self.operator = operator
        self.rollout = rollout
        self.changes: queue.Queue[str] = queue.Queue()
        self.monitor = GateMonitor(
            operator.client, operator.clients, clock=operator.clock, instruments=Instruments()
        )
        self.monitor.on_change(self.changes.put)
        self.client = Client(ClientConfig(host=operator.server.url))

    def available(self, status: str) -> None:
        conditions = [{"type": "Available", "status": status}]
        body = {"status": {"conditions": conditions}}
        self.client.resource(DEPLOYMENTS).patch("web", body, "shop", subresource="status")

    def annotate(self, text: str) -> None:
        body = {"metadata": {"annotations": {"example.com/note": text}}}
        self.client.resource(DEPLOYMENTS).patch("web", body, "shop")

    def wait(self) -> GateWait | None:
        records = self.monitor.observe([self.rollout], ())
        return gate_wait(self.rollout.spec.gates, records["uid-roll"], self.operator.clock.now())

    def wait_for(self, state: api.GateState) -> None:
        while self.state() is not state:
            self.changes.get(timeout=LATE)

    def state(self) -> api.GateState:
        return self.monitor.observe([self.rollout], ())["uid-roll"]["web"].verdict.state


@pytest.fixture
def watched(operator: Operator, make: Make) -> Iterator[Watched]:
    labels = {"app": "web"}
    container = {"name": "c", "image": "i"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    found = Watched(operator, make.rollout(gates=[GATE]))
    found.client.resource(Resource("", "v1", "namespaces", "Namespace", False, dict)).create(
        {"metadata": {"name": "shop"}}
    )
    found.client.resource(DEPLOYMENTS).create(
        {
            "metadata": {"name": "web"},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        },
        "shop",
    )
    found.available("False")
    try:
        yield found
    finally:
        found.monitor.close()
        found.client.close()


@pytest.mark.rule("NP-30")
def test_no_node_starts_for_twenty_minutes_and_the_next_one_when_the_object_is_stable(
    watched: Watched,
) -> None:
    watched.wait_for(api.GateState.CLOSED)
    clock = watched.operator.clock
    for _ in range(20):
        clock.advance(60)
        wait = watched.wait()
        assert wait is not None
        assert wait.message == "gate web is closed: Deployment shop/web: Available=False"
    watched.available("True")
    watched.wait_for(api.GateState.OPEN)
    opened = clock.now()
    clock.advance(29.9)
    wait = watched.wait()
    assert wait is not None
    assert wait.until is not None
    assert (wait.until - opened).total_seconds() == 30
    clock.advance(0.1)
    assert watched.wait() is None


@pytest.mark.rule("NP-30")
def test_an_object_that_was_not_well_for_a_moment_counts_from_then(watched: Watched) -> None:
    watched.available("True")
    watched.wait_for(api.GateState.OPEN)
    watched.operator.clock.advance(60)
    assert watched.wait() is None
    watched.available("False")
    watched.wait_for(api.GateState.CLOSED)
    watched.available("True")
    watched.wait_for(api.GateState.OPEN)
    assert watched.wait() is not None


@pytest.mark.rule("NP-30")
def test_a_change_without_another_verdict_wakes_nothing(watched: Watched) -> None:
    watched.wait_for(api.GateState.CLOSED)
    while not watched.changes.empty():
        watched.changes.get_nowait()
    for number in range(5):
        watched.annotate(str(number))
    watched.available("True")
    assert watched.changes.get(timeout=LATE) == "roll"
    assert watched.state() is api.GateState.OPEN
    assert watched.changes.empty()


@pytest.mark.rule("NP-06")
def test_a_rollout_without_gates_is_not_observed(watched: Watched, make: Make) -> None:
    before = dict(watched.operator.server.requests)
    assert watched.monitor.observe([make.rollout()], ("n",)) == {}
    assert watched.monitor.records(make.rollout()) == {}
    assert dict(watched.operator.server.requests) == before
