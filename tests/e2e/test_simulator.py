"""The simulator on a real API server: complete, or only its kubelets and its cloud."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.cases.waiting import LATE, wait_for

from navarchos.client import Client, Conflict, NotFound, TooManyRequests
from navarchos.testing.cluster import Agent, Cluster, ClusterOptions, Span
from navarchos.testing.cluster.kinds import NODES, PODS
from navarchos.testing.controlplane import ControlPlane

DONE = "example.com/replace"
OPTIONS = ClusterOptions(
    nodes=5, pods_per_node=5, speed=20.0, terminate_label=DONE, job_pod_run=Span(1e9, 1e9)
)
NODE, SUCCESSOR = "node-2", "node-2-r1"


@pytest.fixture(params=["all of it", "kubelets and cloud"])
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[ControlPlane, Cluster]]:
    """Run the simulator, and the real programs for the parts that it does not simulate."""
    is_alone = request.param == "all of it"
    agents = frozenset(Agent) if is_alone else {Agent.KUBELET, Agent.CLOUD}
    with (
        ControlPlane(controllers=not is_alone, scheduler=not is_alone) as plane,
        Cluster(plane, options=OPTIONS, agents=agents) as cluster,
    ):
        cluster.populate()
        cluster.start()
        assert cluster.wait_until_ready(LATE)
        yield plane, cluster


@pytest.mark.timeout(400)
def test_a_drained_machine_is_replaced_and_its_pods_run_elsewhere(
    cluster: tuple[ControlPlane, Cluster],
) -> None:
    plane, simulated = cluster
    before = len(plane.list("pods"))
    with plane.client(user_agent="a-person") as client:
        client.resource(NODES).patch(NODE, {"spec": {"unschedulable": True}})
        wait_for("the node to be empty", lambda: not evicted(plane, client))
        client.resource(NODES).patch(NODE, {"metadata": {"labels": {DONE: "yes"}}})
    wait_for("another machine", lambda: simulated.stats.nodes_replaced == 1)
    # The DaemonSet pod of the removed machine is collected after forty seconds, like upstream.
    wait_for("as many pods as before", lambda: len(placed(plane)) == before)
    assert simulated.wait_until_ready(LATE)
    names = {node["metadata"]["name"] for node in plane.list("nodes")}
    assert SUCCESSOR in names
    assert NODE not in names
    assert {pod["status"]["phase"] for pod in placed(plane)} == {"Running"}
    assert simulated.violations == []


def placed(plane: ControlPlane) -> list[dict[str, Any]]:
    """Return all pods, or an empty list while some are on deleted nodes."""
    names = {node["metadata"]["name"] for node in plane.list("nodes")}
    pods = plane.list("pods")
    return pods if all(pod["spec"].get("nodeName") in names for pod in pods) else []


def evicted(plane: ControlPlane, client: Client) -> list[dict[str, Any]]:
    """Evict the pods that a drain evicts from the node, and return them."""
    left = [pod for pod in plane.list("pods") if is_movable(pod)]
    for pod in left:
        metadata = pod["metadata"]
        with suppress(TooManyRequests, NotFound, Conflict):
            client.resource(PODS).evict(
                metadata["name"], metadata["namespace"], uid=metadata["uid"]
            )
    return left


def is_movable(pod: dict[str, Any]) -> bool:
    owners = pod["metadata"].get("ownerReferences", [])
    return pod["spec"].get("nodeName") == NODE and all(
        owner["kind"] not in {"DaemonSet", "Node"} for owner in owners
    )
