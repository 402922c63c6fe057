"""The three controllers in one manager, against a server: nobody plays a part."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from navarchos.client import Client, ClientConfig
from navarchos.operator import assembly
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    Step,
)
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.operator.nodes import NODES
from navarchos.runtime import Manager
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer, Change
from navarchos.threads import ThreadGroup

LIMIT = 60.0
"""Seconds after which a test gives up; nothing is expected to take that long."""


class Watcher:
    """Follows every write to the server, in order."""

    def __init__(self, server: ApiServer) -> None:
        self._reached = threading.Condition()
        self._phases: dict[str, str] = {}  # guarded by _reached
        self.steps: dict[str, Step] = {}
        self.order: list[str] = []
        self.most_in_flight = 0
        server.subscribe(self._on_change)

    def wait_for(self, rollout: str, phase: str) -> None:
        with self._reached:
            assert self._reached.wait_for(lambda: self._phases.get(rollout) == phase, LIMIT)

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
            self.steps[name] = step
            in_flight = sum(step.in_flight for step in self.steps.values())
            self.most_in_flight = max(self.most_in_flight, in_flight)


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    stop = StopToken()
    with Client(ClientConfig(host=server.url), stop=stop) as client:
        yield client
        stop.stop("the test is over")


@pytest.fixture
def running(client: Client) -> Iterator[Manager]:
    """The operator, running."""
    manager = Manager(client)
    assembly.build(manager)
    stop = StopToken()
    threads = ThreadGroup("operator", stop=stop)
    threads.start("manager", lambda: manager.run(stop))
    yield manager
    stop.stop("the test is over")
    assert threads.join(LIMIT)
    threads.raise_failure()


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


@pytest.mark.rule("OP-22")
def test_the_limit_holds_and_is_used(server: ApiServer, client: Client, running: Manager) -> None:
    watcher = Watcher(server)
    add_nodes(server, *(f"n{number}" for number in range(4)))
    spec = {"nodeSelectors": [{"matchAll": True}], "strategy": {"maxConcurrent": 3}}
    client.resource(NODE_ROLLOUTS).create({"metadata": {"name": "roll"}, "spec": spec})
    watcher.wait_for("roll", "Completed")
    assert watcher.order == [f"n{number}" for number in range(4)]
    assert watcher.most_in_flight == 3


@pytest.mark.rule("OP-07")
def test_what_is_deleted_with_its_rollout_leaves_no_object(
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
    # It was drained: it waits for its end, and takes no pods again.
    assert client.resource(NODES).get("a").spec.unschedulable
