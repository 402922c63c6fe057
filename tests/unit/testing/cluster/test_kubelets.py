"""The simulated kubelets on a cluster where other nodes have another kubelet."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.cases.waiting import wait_for

from navarchos.client import Client, ClientConfig
from navarchos.clock import SYSTEM_CLOCK
from navarchos.runtime import Manager, ManagerOptions
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.cluster import ClusterOptions, Span
from navarchos.testing.cluster.context import SimulatorContext
from navarchos.testing.cluster.controllers import kubelets
from navarchos.testing.cluster.kinds import Node
from navarchos.testing.cluster.options import Agent
from navarchos.testing.cluster.pod_lifecycle import RUNS_FOR, STARTS_AFTER, TERMINATES_AFTER
from navarchos.threads import ThreadGroup

LIMIT = 30.0
NOW = Span(0.0, 0.0)
NEVER = Span(1e9, 1e9)
OURS = {"kubelet": "simulated"}


class Scene:
    """A server, kubelets for some nodes, and a way to wait for their writes."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    def pod(self, name: str, node: str, **annotations: str) -> None:
        self.server.install(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "annotations": annotations},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "c"}]},
            }
        )

    def phases(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in self.all("default")}

    def all(self, namespace: str) -> list[dict[str, Any]]:
        return self.server.list("pods", namespace)

    def wait_until(self, reached: Callable[[], bool]) -> None:
        wait_for("what the test is about", reached, LIMIT)


def start(scene: Scene, cleanup: ExitStack, **options: Any) -> None:
    """Run kubelets for the labelled nodes until the end of the test."""
    stop = StopToken()
    config = ClientConfig(scene.server.url)
    clients = {agent: cleanup.enter_context(Client(config)) for agent in Agent}
    manager = Manager(
        clients[Agent.CONTROLLERS],
        options=ManagerOptions(metrics_address="0", health_address="0", component="simulator"),
    )
    paces = {"pod_start": NOW, "pod_termination": NOW, "pod_quarantine": NOW, **options}
    world = SimulatorContext(manager, clients, ClusterOptions(**paces), SYSTEM_CLOCK, stop)
    kubelets.install(world, serves=is_ours, collects=False)
    threads = ThreadGroup("kubelets", stop=stop)
    cleanup.callback(threads.join, LIMIT)
    cleanup.callback(stop.stop)
    threads.start("manager", lambda: manager.run(stop))


def is_ours(node: Node) -> bool:
    return OURS.items() <= node.metadata.labels.items()


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ApiServer() as server:
        server.install(node("ours", **OURS), node("theirs"))
        yield Scene(server)


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_nodes_that_are_not_served_are_left_alone(scene: Scene, cleanup: ExitStack) -> None:
    for name, at in (("a", "theirs"), ("b", "nowhere"), ("c", "ours")):
        scene.pod(name, at)
    start(scene, cleanup)
    scene.wait_until(lambda: scene.phases()["c"] == "Running")
    scene.wait_until(lambda: bool(scene.all("kube-system")))
    # Requests are handled in order: the earlier pods would have been started by now.
    scene.pod("d", "ours")
    scene.wait_until(lambda: scene.phases()["d"] == "Running")
    assert scene.phases() == {"a": "Pending", "b": "Pending", "c": "Running", "d": "Running"}
    assert [pod["spec"]["nodeName"] for pod in scene.all("kube-system")] == ["ours"]


def test_a_pod_keeps_the_pace_that_its_annotations_tell(scene: Scene, cleanup: ExitStack) -> None:
    scene.pod("told", "ours", **{STARTS_AFTER: "1ms", TERMINATES_AFTER: "1ms"})
    scene.pod("untold", "ours", **{RUNS_FOR: "1ms"})  # only pods of Jobs finish
    start(scene, cleanup, pod_start=NEVER, pod_termination=NEVER)
    scene.wait_until(lambda: scene.phases()["told"] == "Running")
    assert scene.phases()["untold"] == "Pending"
