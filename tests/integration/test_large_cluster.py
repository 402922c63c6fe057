"""A cluster of any size: unchanged objects cost no requests, and a moved pod a few writes.

`NAVARCHOS_SCALE_NODES` is the number of nodes, with thirty pods each.
"""

import os
from collections.abc import Iterator

import pytest
from tests.cases.waiting import wait_for

from navarchos.client import Client, Conflict, NotFound, TooManyRequests
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.cluster import Cluster, ClusterOptions, Span
from navarchos.testing.cluster.kinds import DEPLOYMENTS, NODES, PODS

COUNT = int(os.environ.get("NAVARCHOS_SCALE_NODES", "30"))
PODS_PER_NODE = 30
LIMIT = 60.0 + COUNT  # seconds; a large one may take a while
WRITES = ("create", "update", "patch", "delete", "evict")
TEMPLATE = {
    "metadata": {"labels": {"app": "many"}},
    "spec": {"containers": [{"name": "c", "image": "c:1"}]},
}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[Cluster]:
    options = ClusterOptions(
        nodes=COUNT, pods_per_node=PODS_PER_NODE, speed=100.0, job_pod_run=Span(1e9, 1e9)
    )
    with Cluster(server, options=options) as cluster:
        cluster.populate()
        cluster.start()
        assert cluster.wait_until_ready(LIMIT)
        yield cluster
    assert cluster.violations == []


def writes(server: ApiServer) -> int:
    return sum(server.requests[verb] for verb in WRITES)


def movable(server: ApiServer, nodes: set[str]) -> list[tuple[str, str, str]]:
    return [
        (pod["metadata"]["namespace"], pod["metadata"]["name"], pod["metadata"]["uid"])
        for pod in server.list("pods")
        if pod["spec"].get("nodeName") in nodes
        and pod["metadata"]["ownerReferences"][0]["kind"] not in {"DaemonSet", "Node"}
        and "deletionTimestamp" not in pod["metadata"]
    ]


@pytest.mark.timeout(0)
def test_an_idle_cluster_sends_no_requests_and_a_rollout_a_dozen_writes_per_pod(
    server: ApiServer, cluster: Cluster
) -> None:
    assert len(server.list("pods")) == COUNT * PODS_PER_NODE
    assert writes(server) == 0, "it was settled"
    open_ones = [n["metadata"]["name"] for n in server.list("nodes") if not n["spec"].get("taints")]
    nodes = set(open_ones[: max(2, COUNT // 20)])
    with Client(server.client_config(user_agent="a-person")) as client:
        for node in nodes:
            client.resource(NODES).patch(node, {"spec": {"unschedulable": True}})
        count, pods, refused = len(movable(server, nodes)), client.resource(PODS), 0
        assert count

        def emptied() -> bool:
            nonlocal refused
            left = movable(server, nodes)
            for namespace, name, uid in left:
                try:
                    pods.evict(name, namespace, uid=uid)
                except TooManyRequests:
                    refused += 1
                except (NotFound, Conflict):
                    continue
            return not left

        wait_for("all evictions are granted", emptied, LIMIT)
    assert cluster.wait_until_ready(LIMIT)
    assert len(server.list("pods")) == COUNT * PODS_PER_NODE
    assert writes(server) - refused <= 12 * count + 2 * len(nodes)


@pytest.mark.timeout(0)
def test_new_workloads_need_a_few_writes_per_pod(server: ApiServer, cluster: Cluster) -> None:
    workloads, replicas = COUNT, 10
    with Client(server.client_config(user_agent="a-person")) as client:
        for number in range(workloads):
            labels = {"app": f"many-{number}"}
            template = {**TEMPLATE, "metadata": {"labels": labels}}
            spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
            body = {"metadata": {"name": f"many-{number}"}, "spec": spec}
            client.resource(DEPLOYMENTS).create(body, "default")
    assert cluster.wait_until_ready(LIMIT)
    phases = [pod["status"]["phase"] for pod in server.list("pods", "default")]
    assert phases == ["Running"] * workloads * replicas
    # Create, bind, start, and a share of the status writes of its owners.
    assert writes(server) <= 5 * workloads * replicas
