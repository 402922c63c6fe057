"""`kubectl drain` in Python, against a server, on a clock that jumps."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from navarchos.client import Client, ClientConfig
from navarchos.drain import (
    Answer,
    DrainOptions,
    DrainTimeout,
    EvictionForbidden,
    NodeReplaced,
    Outcome,
    PodsNotAllowed,
    drain_node,
)
from navarchos.errors import Stopped
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, Change, Fault


class JumpingClock:
    """Every wait ends at once, at its deadline; what happens meanwhile is up to the test."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.meanwhile: Callable[[float], object] = lambda passed: None

    def monotonic(self) -> float:
        return self.passed

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.passed)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        assert timeout is not None
        self.passed += timeout
        condition.release()
        try:
            self.meanwhile(self.passed)
        finally:
            condition.acquire()
        return False


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        yield server


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(ClientConfig(host=server.url)) as client:
        yield client


def pod(name: str, *, owner: bool = True, node: str = "n1", **spec: Any) -> dict[str, Any]:
    reference = {"apiVersion": "example.org/v1", "kind": "Set", "name": "web", "uid": "web"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": "web"},
            "ownerReferences": [{**reference, "controller": True}] if owner else [],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **spec},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def budget(allowed: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
        "status": {
            "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1,
            "desiredHealthy": 1, "expectedPods": 1,
        },
    }  # fmt: skip


def end_terminating(server: ApiServer, client: Client) -> None:
    """Do what a kubelet does."""
    for found in server.list("pods"):
        meta = found["metadata"]
        if meta.get("deletionTimestamp"):
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            client.raw("DELETE", path, body={"gracePeriodSeconds": 0})


def names(server: ApiServer) -> list[str]:
    return [found["metadata"]["name"] for found in server.list("pods")]


def test_a_node_is_cordoned_emptied_and_left_cordoned(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    server.install(pod("a"), pod("b"), pod("elsewhere", node="n2"))
    clock.meanwhile = lambda _: end_terminating(server, client)
    seen: list[tuple[str, Answer]] = []

    def note(name: str, outcome: Outcome) -> None:
        seen.append((name, outcome.answer))

    report = drain_node(client, "n1", clock=clock, on_progress=note)

    assert report.evicted == ("default/a", "default/b")
    assert report.cordoned
    assert names(server) == ["elsewhere"]
    assert server.get("nodes", "n1")["spec"]["unschedulable"] is True
    assert seen == [("default/a", Answer.EVICTED), ("default/b", Answer.EVICTED)]


def test_a_pod_that_may_not_go_refuses_the_drain_before_any_eviction(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    server.install(pod("a"), pod("bare", owner=False))
    with pytest.raises(PodsNotAllowed) as refused:
        drain_node(client, "n1", clock=clock)
    assert [planned.name for planned in refused.value.pods] == ["default/bare"]
    assert "force: true" in str(refused.value)
    assert server.requests.get("evict", 0) == 0


def test_a_budget_is_waited_for_and_obeyed(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    server.install(pod("a"), budget(0))

    def meanwhile(passed: float) -> None:
        end_terminating(server, client)
        if passed >= 20:
            path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web/status"
            client.raw(
                "PATCH",
                path,
                body={"status": {"disruptionsAllowed": 1}},
                headers={"Content-Type": "application/merge-patch+json"},
            )

    clock.meanwhile = meanwhile
    seen: list[Outcome] = []
    drain_node(client, "n1", clock=clock, on_progress=lambda _, outcome: seen.append(outcome))
    assert names(server) == []
    assert clock.passed >= 20
    assert {o.answer for o in seen[:-1]} == {Answer.BLOCKED_BY_BUDGET}
    assert seen[0].budget == "web"
    assert seen[-1].answer is Answer.EVICTED
    # Asked every five seconds and more, not at every look.
    assert len(seen) <= 5


def test_time_runs_out_with_the_reason_for_each_pod(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    server.install(pod("a"), budget(0))
    with pytest.raises(DrainTimeout) as late:
        drain_node(client, "n1", DrainOptions(timeout=30.0), clock=clock)
    assert "disruption budget web" in late.value.pending["default/a"]
    assert 30 <= clock.passed <= 31
    assert names(server) == ["a"]


def test_a_pod_that_arrives_late_is_drained_too(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    server.install(pod("a"))
    arrived = threading.Event()

    def meanwhile(passed: float) -> None:
        end_terminating(server, client)
        if not arrived.is_set():
            arrived.set()
            server.install(pod("late"))

    clock.meanwhile = meanwhile
    assert drain_node(client, "n1", clock=clock).evicted == ("default/a", "default/late")


def test_another_node_of_that_name_is_left_alone(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    server.install(pod("a"), budget(0))

    def replace_node(passed: float) -> None:
        client.raw("DELETE", "/api/v1/nodes/n1")
        server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        clock.meanwhile = lambda passed: None

    clock.meanwhile = replace_node
    with pytest.raises(NodeReplaced):
        drain_node(client, "n1", clock=clock)
    assert names(server) == ["a"]


def test_a_missing_right_ends_the_drain_with_the_servers_words(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    server.install(pod("a"))
    message = 'User "x" cannot create resource "pods/eviction" in API group ""'
    server.faults.add(Fault(verb="evict", status=403, message=message))
    with pytest.raises(EvictionForbidden, match="pods/eviction"):
        drain_node(client, "n1", clock=clock)


def test_a_node_that_was_cordoned_is_reported_as_such(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    client.raw(
        "PATCH",
        "/api/v1/nodes/n1",
        body={"spec": {"unschedulable": True}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert not drain_node(client, "n1", clock=clock).cordoned


def test_a_cordon_that_loses_a_race_is_tried_again(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    server.faults.add(Fault(verb="patch", resource="nodes", status=409))
    assert drain_node(client, "n1", clock=clock).cordoned


def test_a_stop_ends_the_drain(server: ApiServer, client: Client, clock: JumpingClock) -> None:
    server.install(pod("a"), budget(0))
    stop = StopToken(clock=clock)
    clock.meanwhile = lambda passed: stop.stop("enough")
    with pytest.raises(Stopped, match="enough"):
        drain_node(client, "n1", clock=clock, stop=stop)


def test_pods_are_deleted_past_their_budget_when_asked_to(
    server: ApiServer, client: Client, clock: JumpingClock
) -> None:
    server.install(pod("a"), budget(0))
    changes: list[Change] = []
    server.subscribe(changes.append)
    clock.meanwhile = lambda _: end_terminating(server, client)
    drain_node(client, "n1", DrainOptions(disable_eviction=True), clock=clock)
    assert names(server) == []
    assert server.requests.get("evict", 0) == 0
