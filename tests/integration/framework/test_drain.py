"""`kubectl drain` in Python, against an API server, on a clock that jumps."""

import pytest
from tests.clocks import JumpingClock
from tests.integration.framework.accounts import Account
from tests.integration.framework.kinds import BUDGETS, NODES, PODS

from navarchos.client import Client
from navarchos.drain import (
    DrainOptions,
    DrainTimeout,
    EvictionForbidden,
    EvictionOutcome,
    EvictionResult,
    NodeReplaced,
    PodsNotAllowed,
    drain_node,
)
from navarchos.errors import Stopped
from navarchos.stopping import StopToken

SET = {"apiVersion": "example.org/v1", "kind": "Set", "name": "web", "uid": "web"}


class Scene:
    """A node, pods of a namespace, their budget, and what a kubelet does."""

    def __init__(self, client: Client, node: str, namespace: str) -> None:
        self.node = node
        self.namespace = namespace
        self._client = client
        self._pods = client.resource(PODS)
        self._budgets = client.resource(BUDGETS)
        self._nodes = client.resource(NODES)

    def pod(self, name: str, *, node: str = "", owned: bool = True) -> None:
        """Create a pod that runs and is ready."""
        metadata = {
            "name": name,
            "labels": {"app": "web"},
            "ownerReferences": [{**SET, "controller": True}] if owned else [],
        }
        spec = {"nodeName": node or self.node, "containers": [{"name": "c", "image": "web:1"}]}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._pods.create({"metadata": metadata, "spec": spec}, self.namespace)
        self._pods.patch(name, {"status": status}, self.namespace, subresource="status")

    def budget(self) -> None:
        """Create a budget that matches them all."""
        spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1}
        self._budgets.create({"metadata": {"name": "web"}, "spec": spec}, self.namespace)
        self.allow(0)

    def allow(self, disruptions: int) -> None:
        """Do what the disruption controller does."""
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": disruptions,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
        }
        self._budgets.patch("web", {"status": status}, self.namespace, subresource="status")

    def end_terminating(self) -> None:
        """Do what a kubelet does."""
        for found in self._pods.list(self.namespace).items:
            if found["metadata"].get("deletionTimestamp"):
                self._pods.delete(found["metadata"]["name"], self.namespace, grace_period_seconds=0)

    def names(self) -> list[str]:
        return [found["metadata"]["name"] for found in self._pods.list(self.namespace).items]

    def terminating(self) -> list[str]:
        found = self._pods.list(self.namespace).items
        return [
            pod["metadata"]["name"] for pod in found if pod["metadata"].get("deletionTimestamp")
        ]

    def full(self, *names: str) -> tuple[str, ...]:
        return tuple(f"{self.namespace}/{name}" for name in names)

    def is_cordoned(self) -> bool:
        return bool(self._nodes.get(self.node)["spec"].get("unschedulable"))

    def cordon(self) -> None:
        self._nodes.patch(self.node, {"spec": {"unschedulable": True}})

    def replace_node(self) -> None:
        """Let another node of that name come."""
        self._nodes.delete(self.node)
        self._nodes.create({"metadata": {"name": self.node}})


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def scene(client: Client, node: str, namespace: str) -> Scene:
    return Scene(client, node, namespace)


def test_a_node_is_cordoned_emptied_and_left_cordoned(
    scene: Scene, client: Client, clock: JumpingClock
) -> None:
    scene.pod("a")
    scene.pod("b")
    scene.pod("elsewhere", node=f"{scene.node}-2")
    clock.meanwhile = lambda _: scene.end_terminating()
    seen: list[tuple[str, EvictionOutcome]] = []

    def note(name: str, result: EvictionResult) -> None:
        seen.append((name, result.outcome))

    report = drain_node(client, scene.node, clock=clock, on_progress=note)

    both = scene.full("a", "b")
    assert report.evicted == both
    assert report.cordoned
    assert scene.names() == ["elsewhere"]
    assert scene.is_cordoned()
    assert seen == [(name, EvictionOutcome.EVICTED) for name in both]


def test_a_pod_that_may_not_go_refuses_the_drain_before_any_eviction(
    scene: Scene, client: Client, clock: JumpingClock
) -> None:
    scene.pod("a")
    scene.pod("bare", owned=False)
    with pytest.raises(PodsNotAllowed) as refused:
        drain_node(client, scene.node, clock=clock)
    assert tuple(planned.name for planned in refused.value.pods) == scene.full("bare")
    assert "force: true" in str(refused.value)
    assert scene.names() == ["a", "bare"]
    assert scene.terminating() == []


def test_a_budget_is_waited_for_and_obeyed(
    scene: Scene, client: Client, clock: JumpingClock
) -> None:
    scene.pod("a")
    scene.budget()

    def meanwhile(passed: float) -> None:
        scene.end_terminating()
        if passed >= 20:
            scene.allow(1)

    clock.meanwhile = meanwhile
    seen: list[EvictionResult] = []
    drain_node(client, scene.node, clock=clock, on_progress=lambda _, result: seen.append(result))
    assert scene.names() == []
    assert clock.passed >= 20
    assert {o.outcome for o in seen[:-1]} == {EvictionOutcome.BLOCKED_BY_BUDGET}
    assert seen[0].budget == "web"
    assert seen[-1].outcome is EvictionOutcome.EVICTED
    # Asked every five seconds and more, not at every look.
    assert len(seen) <= 5


def test_a_budget_allows_only_its_number_of_evictions(
    scene: Scene, client: Client, clock: JumpingClock
) -> None:
    for name in "abc":
        scene.pod(name)
    scene.budget()
    scene.allow(2)
    with pytest.raises(DrainTimeout) as late:
        drain_node(client, scene.node, DrainOptions(timeout=30.0), clock=clock)
    assert scene.terminating() == ["a", "b"]
    assert "disruption budget web" in late.value.pending[f"{scene.namespace}/c"]


def test_two_budgets_on_one_pod_are_named_as_what_they_are(
    scene: Scene, client: Client, clock: JumpingClock
) -> None:
    scene.pod("a")
    scene.budget()
    scene.allow(1)
    second = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}
    body = {"metadata": {"name": "second"}, "spec": second}
    client.resource(BUDGETS).create(body, scene.namespace)
    seen: list[EvictionOutcome] = []
    with pytest.raises(DrainTimeout):
        drain_node(
            client,
            scene.node,
            DrainOptions(timeout=10.0),
            clock=clock,
            on_progress=lambda _, result: seen.append(result.outcome),
        )
    assert set(seen) == {EvictionOutcome.MULTIPLE_BUDGETS}
    assert scene.terminating() == []


def test_time_runs_out_with_the_reason_for_each_pod(
    scene: Scene, client: Client, clock: JumpingClock
) -> None:
    scene.pod("a")
    scene.budget()
    with pytest.raises(DrainTimeout) as late:
        drain_node(client, scene.node, DrainOptions(timeout=30.0), clock=clock)
    assert "disruption budget web" in late.value.pending[f"{scene.namespace}/a"]
    assert 30 <= clock.passed <= 31
    assert scene.names() == ["a"]


def test_a_pod_that_arrives_late_is_drained_too(
    scene: Scene, client: Client, clock: JumpingClock
) -> None:
    scene.pod("a")
    arrivals = ["late"]

    def meanwhile(passed: float) -> None:
        scene.end_terminating()
        if arrivals:
            scene.pod(arrivals.pop())

    clock.meanwhile = meanwhile
    assert drain_node(client, scene.node, clock=clock).evicted == scene.full("a", "late")


def test_another_node_of_that_name_is_left_alone(
    scene: Scene, client: Client, clock: JumpingClock
) -> None:
    scene.pod("a")
    scene.budget()

    def replace_node(passed: float) -> None:
        clock.meanwhile = lambda passed: None
        scene.replace_node()

    clock.meanwhile = replace_node
    with pytest.raises(NodeReplaced):
        drain_node(client, scene.node, clock=clock)
    assert scene.names() == ["a"]
    assert not scene.is_cordoned()


def test_a_missing_right_ends_the_drain_with_the_servers_words(
    account: Account, scene: Scene, clock: JumpingClock
) -> None:
    scene.pod("a")
    account.may("", "nodes", "get", "patch")
    account.may("", "pods", "list")
    with (
        Client(account.config()) as limited,
        pytest.raises(EvictionForbidden, match="pods/eviction"),
    ):
        drain_node(limited, scene.node, clock=clock)
    assert scene.terminating() == []


def test_a_node_that_was_cordoned_is_reported_as_such(
    scene: Scene, client: Client, clock: JumpingClock
) -> None:
    scene.cordon()
    assert not drain_node(client, scene.node, clock=clock).cordoned
    assert scene.is_cordoned()


def test_a_stop_ends_the_drain(scene: Scene, client: Client, clock: JumpingClock) -> None:
    scene.pod("a")
    scene.budget()
    stop = StopToken(clock=clock)
    clock.meanwhile = lambda passed: stop.stop("enough")
    with pytest.raises(Stopped, match="enough"):
        drain_node(client, scene.node, clock=clock, stop=stop)


def test_pods_are_deleted_past_their_budget_when_asked_to(
    scene: Scene, client: Client, clock: JumpingClock
) -> None:
    """An eviction would be refused, so the removed pods were deleted."""
    scene.pod("a")
    scene.budget()
    clock.meanwhile = lambda _: scene.end_terminating()
    seen: list[EvictionOutcome] = []
    drain_node(
        client,
        scene.node,
        DrainOptions(disable_eviction=True),
        clock=clock,
        on_progress=lambda _, result: seen.append(result.outcome),
    )
    assert scene.names() == []
    assert seen == [EvictionOutcome.DELETED]
