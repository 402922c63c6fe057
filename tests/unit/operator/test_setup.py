"""All controllers in one manager, on an in-process API server with simulated kubelets."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import pytest
from tests.clocks import HeldClock

from navarchos.client import Client, ClientConfig
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.operator import setup
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    Step,
)
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.operator.nodes import CONTROL_PLANE_LABEL, NODES
from navarchos.runtime import Manager, ManagerOptions
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, Change
from navarchos.threads import ThreadGroup

LIMIT = 60.0
"""Seconds after which a test fails; far more than any step takes."""


class Watcher:
    """Follows every write to the server, in order."""

    def __init__(self, server: ApiServer, on_done: Callable[[], object] = lambda: None) -> None:
        self._on_done = on_done
        self._reached = threading.Condition()
        self._phases: dict[str, str] = {}  # guarded by _reached
        self.steps: dict[str, Step] = {}
        self.order: list[str] = []
        self.most_in_flight = 0
        server.subscribe(self._on_change)

    def wait_for(self, rollout: str, phase: str) -> None:
        with self._reached:
            assert self._reached.wait_for(lambda: self._phases.get(rollout) == phase, LIMIT)

    def wait_for_step(self, replacement: str, step: Step) -> None:
        """Wait until the replacement has reached this step or a later one."""
        reached = list(Step)[list(Step).index(step) :]
        with self._reached:
            assert self._reached.wait_for(lambda: self.steps.get(replacement) in reached, LIMIT)

    def _on_change(self, change: Change) -> None:
        obj: Any = change.object
        status = obj.get("status") or {}
        name = (obj.get("metadata") or {}).get("name", "")
        if obj.get("kind") == "NodeRollout":
            with self._reached:
                self._phases[name] = status.get("phase", "")
                self._reached.notify_all()
        if obj.get("kind") == "NodeReplacement" and status.get("step"):
            step = Step(status["step"]["name"])
            if step is Step.RESERVED and self.steps.get(name) is not step:
                self.order.append(obj["spec"]["nodeName"])
            if step is Step.DONE and self.steps.get(name) is not step:
                self._on_done()
            with self._reached:
                self.steps[name] = step
                self._reached.notify_all()
            in_flight = sum(step.in_flight for step in self.steps.values())
            self.most_in_flight = max(self.most_in_flight, in_flight)


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    stop = StopToken()
    with Client(ClientConfig(host=server.url), stop=stop) as client:
        yield client
        stop.stop("the test is over")


@contextmanager
def operator_runs(
    client: Client,
    clock: Clock = SYSTEM_CLOCK,
    *,
    sync_period: float | None = None,
    assemble: Callable[[setup.OperatorParts], None] | None = None,
) -> Iterator[Manager]:
    options = ManagerOptions(kinds=setup.KINDS, sync_period=sync_period)
    manager = Manager(client, options=options, clock=clock)
    parts = setup.add_operator(manager)
    if assemble is not None:
        assemble(parts)
    stop = StopToken()
    threads = ThreadGroup("operator", stop=stop)
    threads.start("manager", lambda: manager.run(stop))
    yield manager
    stop.stop("the test is over")
    assert threads.join(LIMIT)
    threads.raise_failure()


@pytest.fixture
def running(client: Client) -> Iterator[Manager]:
    """The operator, running."""
    with operator_runs(client) as manager:
        yield manager


def add_nodes(server: ApiServer, *names: str, **labels: str) -> None:
    for name in names:
        metadata = {"name": name, "labels": labels}
        server.install({"apiVersion": "v1", "kind": "Node", "metadata": metadata})


@pytest.mark.rule("OP-09")
@pytest.mark.rule("OP-24")
def test_a_rollout_of_the_published_form_runs_from_end_to_end(
    server: ApiServer, client: Client, running: Manager
) -> None:
    watcher = Watcher(server)
    add_nodes(server, "a-worker", role="worker")
    add_nodes(server, "important")
    spec = {
        "nodeNames": [{"name": "important", "replacement": {"priority": 40}}],
        "nodeSelectors": [
            {"matchLabels": {"role": "worker"}, "replacement": {"priority": 20}},
        ],
    }
    client.resource(NODE_ROLLOUTS).create({"metadata": {"name": "roll"}, "spec": spec})
    watcher.wait_for("roll", "Completed")
    assert watcher.order == ["important", "a-worker"]
    assert watcher.most_in_flight == 1
    for node in client.resource(NODES).list().items:
        assert DRAIN_COMPLETED_LABEL in node.metadata.labels
        assert node.spec.unschedulable


@pytest.mark.rule("N-23")
def test_nodes_are_patched_and_never_replaced_even_without_any_labels(
    server: ApiServer, client: Client, running: Manager
) -> None:
    """Concurrent writes of kubelets and other clients to a node are never overwritten."""
    watcher = Watcher(server)
    server.install({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}})
    spec = {"nodeSelectors": [{"matchAll": True}]}
    client.resource(NODE_ROLLOUTS).create({"metadata": {"name": "roll"}, "spec": spec})
    watcher.wait_for("roll", "Completed")
    writes = [
        record.verb
        for record in server.audit
        if record.resource == "nodes" and record.verb not in {"get", "list", "watch"}
    ]
    assert set(writes) == {"patch"}
    assert set(client.resource(NODES).get("bare").metadata.labels) == {DRAIN_COMPLETED_LABEL}


@pytest.mark.rule("OP-22")
def test_the_limit_holds_and_is_used(server: ApiServer, client: Client, running: Manager) -> None:
    watcher = Watcher(server)
    add_nodes(server, *(f"n{number}" for number in range(4)))
    spec = {"nodeSelectors": [{"matchAll": True}], "strategy": {"maxConcurrent": 3}}
    client.resource(NODE_ROLLOUTS).create({"metadata": {"name": "roll"}, "spec": spec})
    watcher.wait_for("roll", "Completed")
    assert watcher.order == [f"n{number}" for number in range(4)]
    assert watcher.most_in_flight == 3


@pytest.mark.rule("OP-23")
@pytest.mark.rule("N-15")
def test_the_next_node_starts_as_soon_as_one_is_done(server: ApiServer, client: Client) -> None:
    """No back-off, resync or timer delays the next node.

    The operator's clock stops when a node is done, so a start that waited for time to pass
    would never happen.
    """
    clock, nodes = HeldClock(speed=10), ["n0", "n1", "n2"]
    watcher = Watcher(server, on_done=clock.hold)
    add_nodes(server, *nodes)
    with operator_runs(client, clock):
        spec = {"nodeSelectors": [{"matchAll": True}]}
        client.resource(NODE_ROLLOUTS).create({"metadata": {"name": "roll"}, "spec": spec})
        for before, after in pairwise(nodes):
            watcher.wait_for_step(f"roll-{before}", Step.DONE)
            watcher.wait_for_step(f"roll-{after}", Step.RESERVED)
            clock.go_on()
        watcher.wait_for("roll", "Completed")
    assert watcher.order == nodes


@pytest.mark.rule("OP-21")
def test_the_control_plane_is_replaced_once_its_unready_node_is_ready(
    server: ApiServer, client: Client, running: Manager
) -> None:
    """The condition Ready starts the next node, not a timer."""
    watcher = Watcher(server)
    nodes = client.resource(NODES)
    add_nodes(server, "m1", "m2", **{CONTROL_PLANE_LABEL: ""})
    add_nodes(server, "worker")
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    nodes.patch("m1", ready, subresource="status")
    names = [{"name": "m1"}, {"name": "worker"}]
    spec = {"nodeNames": names, "strategy": {"maxConcurrent": 3}}
    client.resource(NODE_ROLLOUTS).create({"metadata": {"name": "roll"}, "spec": spec})
    watcher.wait_for_step("roll-worker", Step.DONE)
    assert watcher.steps["roll-m1"] is Step.WAITING
    nodes.patch("m2", ready, subresource="status")
    watcher.wait_for("roll", "Completed")
    assert watcher.order == ["worker", "m1"]


@pytest.mark.rule("OP-07")
def test_deleting_a_rollout_leaves_no_object(
    server: ApiServer, client: Client, running: Manager
) -> None:
    watcher = Watcher(server)
    add_nodes(server, "a")
    spec = {"nodeSelectors": [{"matchAll": True}]}
    client.resource(NODE_ROLLOUTS).create({"metadata": {"name": "roll"}, "spec": spec})
    watcher.wait_for("roll", "Completed")
    gone = threading.Event()

    def look(_: Change) -> None:
        left = [
            server.list(resource.plural, group=resource.group)
            for resource in (NODE_ROLLOUTS, NODE_REPLACEMENTS, NODE_DRAINS)
        ]
        if not any(left):
            gone.set()

    server.subscribe(look)
    client.resource(NODE_ROLLOUTS).delete("roll")
    assert gone.wait(LIMIT)
    # This node is drained: it must stay cordoned.
    assert client.resource(NODES).get("a").spec.unschedulable


def add_pod(server: ApiServer, node: str, *, owned: bool = True) -> None:
    """Add a pod that cannot be evicted: a budget protects it, or it has no controller."""
    owner = {"apiVersion": "example.org/v1", "kind": "Set", "name": "web", "uid": "web"}
    server.install(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"on-{node}",
                "namespace": "default",
                "labels": {"app": "web"},
                "ownerReferences": [owner | {"controller": True}] if owned else [],
            },
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )


def add_budget_of_nothing(server: ApiServer) -> None:
    """Add a budget that never allows a disruption."""
    server.install(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 0},
            "status": {
                "observedGeneration": 1,
                "disruptionsAllowed": 0,
                "currentHealthy": 2,
                "desiredHealthy": 2,
                "expectedPods": 2,
            },
        }
    )


def let_pass(clock: HeldClock, seconds: float) -> None:
    """Return when this many seconds of the operator's clock have passed."""
    passed, deadline = threading.Condition(), clock.monotonic() + seconds
    with passed:
        while clock.monotonic() < deadline:
            clock.wait(passed, deadline - clock.monotonic())


QUIET: Final[dict[str, dict[str, Any]]] = {
    "blocked": {"drain": {"timeoutSeconds": 0}},
    "held": {"drain": {"timeoutSeconds": 30, "onTimeout": "Hold"}},
    "halted": {"strategy": {"maxConcurrent": 9, "retries": 0}},
    "paused": {"paused": True},
}
"""Rollouts in a state that does not change any more."""


@pytest.mark.rule("OP-47")
@pytest.mark.timeout(240)
def test_ten_minutes_without_changes_cause_no_write(server: ApiServer, client: Client) -> None:
    """Evictions are retried every five seconds, and every cached object is resynced."""
    clock, watcher = HeldClock(speed=100), Watcher(server)
    add_budget_of_nothing(server)
    for name in QUIET:
        add_nodes(server, name)
        add_pod(server, name, owned=name != "halted")
    with operator_runs(client, clock, sync_period=60.0):
        for name, spec in QUIET.items():
            body = {"nodeNames": [{"name": name}], "strategy": {"maxConcurrent": 9}} | spec
            client.resource(NODE_ROLLOUTS).create({"metadata": {"name": name}, "spec": body})
        watcher.wait_for("halted", "Halted")
        watcher.wait_for_step("blocked-blocked", Step.DRAINING)
        watcher.wait_for_step("held-held", Step.DRAINING)
        let_pass(clock, 120)
        drain = client.resource(NODE_DRAINS).get("held-held")
        assert [(b.reason, b.budget) for b in drain.status.blockers] == [
            ("BlockedByBudget", "default/web")
        ]
        refused = sum(record.verb == "evict" for record in server.audit)
        changes: list[Change] = []
        server.subscribe(changes.append)
        let_pass(clock, 600)
        tried = sum(record.verb == "evict" for record in server.audit) - refused
    found = [(each.type, each.resource.plural, each.object["metadata"]["name"]) for each in changes]
    assert found == []
    assert tried > 10, "the operator reconciled all the time"
    assert watcher.steps["paused-paused"] is Step.WAITING
