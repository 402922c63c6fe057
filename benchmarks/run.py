"""Measure what the framework's promise stands on, each beside a peer in the same run.

    make bench

Prints a table of ratios. Absolute times depend on the machine; ratios much less.
The peers of the field (client-go, the official client) need a real control plane
and are measured where that is available.
"""

import json
import statistics
import time
from collections.abc import Callable
from queue import SimpleQueue

import msgspec

from navarchos.client import Client, ClientConfig, Resource
from navarchos.drain import PODS
from navarchos.meta import Unstructured
from navarchos.testing.apiserver import ApiServer
from navarchos.workqueue import PriorityQueue, WorkQueue

ROUNDS = 5
CYCLES = 50_000
LISTED = 2_000


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time that one call takes."""
    started = time.process_time()
    work()
    return time.process_time() - started


def compare(what: str, ours: Callable[[], object], peer: Callable[[], object], name: str) -> None:
    """Run both in turn, A B A B, and print the medians and their ratio."""
    pairs = [(seconds(ours), seconds(peer)) for _ in range(ROUNDS)]
    mine = statistics.median(pair[0] for pair in pairs)
    theirs = statistics.median(pair[1] for pair in pairs)
    print(
        f"{what:<34} {mine * 1e3:9.1f} ms  {name:<28} {theirs * 1e3:9.1f} ms  {mine / theirs:6.2f}x"
    )


def work_queue() -> None:
    """Add, lend and close, one worker."""
    queue: WorkQueue[int] = WorkQueue()
    for key in range(CYCLES):
        queue.add(key)
        loan = queue.get()
        assert loan is not None
        with loan:
            pass


def priority_queue() -> None:
    """The controllers' queue, the same way."""
    queue: PriorityQueue[int] = PriorityQueue()
    for key in range(CYCLES):
        queue.add(key)
        loan = queue.get()
        assert loan is not None
        with loan:
            pass
    queue.shut_down()


def bare_queue() -> None:
    """What the standard library offers, without deduplication, loans or metrics."""
    queue: SimpleQueue[int] = SimpleQueue()
    for key in range(CYCLES):
        queue.put(key)
        queue.get()


def pod(number: int) -> dict[str, object]:
    """Return a pod with the usual ballast."""
    name = f"web-{number:05d}"
    container = {
        "name": "app",
        "image": "registry.example/app:1",
        "env": [{"name": f"VARIABLE_{n}", "value": "x" * 40} for n in range(20)],
        "volumeMounts": [{"name": f"v{n}", "mountPath": f"/mnt/{n}"} for n in range(5)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "nodeName": f"node-{number % 50}",
            "containers": [container],
            "volumes": [{"name": f"v{n}", "emptyDir": {}} for n in range(5)],
        },
    }


def main() -> None:
    """Print the table."""
    print(f"{'ours':<34} {'':>12}  {'peer':<28} {'':>12}  {'ratio':>8}")
    compare(f"work queue, {CYCLES} cycles", work_queue, bare_queue, "SimpleQueue, no promises")
    compare(
        f"priority queue, {CYCLES} cycles", priority_queue, bare_queue, "SimpleQueue, no promises"
    )
    with ApiServer() as server, Client(ClientConfig(host=server.url)) as client:
        server.install(*(pod(number) for number in range(LISTED)))
        body = client.raw("GET", "/api/v1/pods").body
        megabytes = len(body) / 1e6
        typed = client.resource(PODS)
        everything: Resource[Unstructured] = Resource(
            group="", version="v1", plural="pods", kind="Pod", namespaced=True, type=dict
        )
        untyped = client.resource(everything)
        compare(
            f"list {LISTED} pods ({megabytes:.0f} MB), projection",
            typed.list,
            untyped.list,
            "the same as dicts",
        )
        compare(
            "decode them to dicts, msgspec",
            lambda: msgspec.json.decode(body),
            lambda: json.loads(body),
            "json.loads",
        )


if __name__ == "__main__":
    main()
