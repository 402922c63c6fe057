"""Measure a simulated cluster of a thousand nodes and thirty thousand pods.

    make bench-cluster
    python -m benchmarks.cluster 100 30     # nodes, pods on each

Prints the wall time, processor time and memory of filling it, of starting its controllers,
of a pause, and of emptying a fiftieth of its nodes.
"""

import logging
import sys
import time
from contextlib import suppress
from pathlib import Path

import structlog

from navarchos.client import Client, Conflict, NotFound, TooManyRequests
from navarchos.stopping import StopToken
from navarchos.testing.apiserver import ApiServer
from navarchos.testing.cluster import Cluster, ClusterOptions, Span
from navarchos.testing.cluster.kinds import NODES, PODS

REST = 10.0
LIMIT = 600.0
NEVER = Span(1e9, 1e9)


class Stages:
    """Prints a line for each stage."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def done(self, what: str) -> None:
        """Print the cost of the stage that ends now."""
        wall, processor = time.perf_counter(), time.process_time()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        print(
            f"{what:<44} {wall - self._wall:7.1f} s {processor - self._processor:7.1f} s of"
            f" processor {pages * 4096 / 1e6:7.0f} MB",
            flush=True,
        )
        self._wall, self._processor = wall, processor


def empty(server: ApiServer, client: Client, nodes: set[str]) -> int:
    """Cordon nodes and evict their pods; return the number of pods."""
    pods, evicted, nobody = client.resource(PODS), 0, StopToken()
    for node in nodes:
        client.resource(NODES).patch(node, {"spec": {"unschedulable": True}})
    while left := [pod for pod in server.list("pods") if is_movable(pod, nodes)]:
        for pod in left:
            metadata = pod["metadata"]
            with suppress(TooManyRequests, NotFound, Conflict):
                pods.evict(metadata["name"], metadata["namespace"], uid=metadata["uid"])
                evicted += 1
        nobody.wait(0.5)
    return evicted


def is_movable(pod: dict[str, object], nodes: set[str]) -> bool:
    """Return whether a pod is on one of the nodes and can be evicted."""
    metadata, spec = pod["metadata"], pod["spec"]
    assert isinstance(metadata, dict)
    assert isinstance(spec, dict)
    return (
        spec.get("nodeName") in nodes
        and metadata["ownerReferences"][0]["kind"] not in {"DaemonSet", "Node"}
        and "deletionTimestamp" not in metadata
    )


def main(nodes: int = 1_000, pods_per_node: int = 30) -> None:
    """Run and print all stages."""
    # Warnings only: handlers that are late for a tenth of a second are expected here.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    options = ClusterOptions(nodes=nodes, pods_per_node=pods_per_node, job_pod_run=NEVER)
    with ApiServer() as server, Cluster(server, options=options) as cluster:
        stages = Stages()
        cluster.populate()
        stages.done(f"{nodes:,} nodes, {len(server.list('pods')):,} pods installed")
        cluster.start()
        assert cluster.wait_until_ready(LIMIT), "not ready"
        stages.done("controllers started and idle")
        for what in ("s of first reconciles", "s without changes"):
            time.sleep(REST)
            stages.done(f"{REST:g} {what}")
        with Client(server.client_config(user_agent="bench")) as client:
            open_ones = [each for each in server.list("nodes") if not each["spec"].get("taints")]
            drained = {each["metadata"]["name"] for each in open_ones[: max(1, nodes // 50)]}
            evicted = empty(server, client, drained)
        assert cluster.wait_until_ready(LIMIT), "not ready"
        stages.done(f"{len(drained)} nodes emptied, {evicted:,} pods moved")
        assert cluster.violations == []


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
