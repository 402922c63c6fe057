"""Measure what the framework's promise stands on, each beside a peer in the same run.

    make bench

Prints a table of ratios. Absolute times depend on the machine; ratios much less.
The peers of the field (client-go, the official client) need a real control plane
and are measured where that is available.
"""

import json
import socket
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import urlsplit

import msgspec

from navarchos.client import Client, ClientConfig, Resource
from navarchos.drain import PODS
from navarchos.meta import Unstructured
from navarchos.testing.apiserver import ApiServer
from navarchos.workqueue import DelayingQueue, PriorityQueue, WorkQueue

ROUNDS = 5
CYCLES = 50_000
DELAYED = 1_000_000
IDLE_SECONDS = 3.0
LISTED = 2_000
SERVED, GETS, WATCHES, EVENTS = 10_000, 5_000, 500, 20


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


def cycles_per_second(kind: type[WorkQueue[int] | PriorityQueue[int]], workers: int) -> float:
    """Let one thread add keys and others work through them; by the clock on the wall."""
    queue = kind()
    left = threading.Semaphore(0)

    def work() -> None:
        while (loan := queue.get()) is not None:
            with loan as key:
                pass
            if key >= CYCLES:
                left.release()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    started = time.perf_counter()
    for key in range(CYCLES + 1):
        queue.add(key)
    left.acquire()
    passed = time.perf_counter() - started
    queue.shut_down()
    for thread in threads:
        thread.join()
    return CYCLES / passed


def throughput(kind: type[WorkQueue[int] | PriorityQueue[int]]) -> None:
    """Print what a queue does with one worker and with four."""
    for workers in (1, 4):
        rates = [cycles_per_second(kind, workers) for _ in range(ROUNDS)]
        print(
            f"{kind.__name__:<14} {workers} worker(s)  {statistics.median(rates):9,.0f} cycles/s"
            f"  (most {max(rates):,.0f})"
        )


def resident_megabytes() -> float:
    """Return what this process holds now, on Linux."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


def delayed(kind: type[DelayingQueue[str] | PriorityQueue[str]]) -> None:
    """Print what keys that wait cost: memory beside their own, and processor time."""
    keys = [f"ns/key-{number:07d}" for number in range(DELAYED)]
    queue = kind()
    before = resident_megabytes()
    for number, key in enumerate(keys):
        queue.add_after(key, 3_600 + number / 1_000)
    megabytes = resident_megabytes() - before
    busy = time.process_time()
    time.sleep(IDLE_SECONDS)
    busy = time.process_time() - busy
    queue.shut_down()
    print(
        f"{kind.__name__:<14} {DELAYED:,} delayed keys  {megabytes:5.0f} MB"
        f"  {busy * 1e3:.2f} ms of processor in {IDLE_SECONDS:g} s"
    )


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


def settings(count: int, prefix: str) -> list[dict[str, object]]:
    """Return small objects."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{prefix}{number:05}"},
            "data": {"k": "v" * 200},
        }
        for number in range(count)
    ]


def in_process_server() -> None:
    """Print what the API server for tests does in a second of its processor's time.

    Its clients run in this process, so what they take is in the figures.
    """
    with ApiServer() as server, socket.socket() as probe:
        server.install(*settings(SERVED, "c"))
        url = urlsplit(server.url)
        probe.connect((url.hostname, url.port))
        line = "GET {} HTTP/1.1\r\nHost: x\r\n\r\n"
        one = line.format("/api/v1/namespaces/default/configmaps/c00000").encode()

        def gets() -> None:
            for _ in range(GETS):
                probe.sendall(one)
                probe.recv(65_536)

        print(f"server, small gets          {GETS / seconds(gets):9,.0f} a second of processor")
        with Client(ClientConfig(host=server.url)) as client:
            took = seconds(lambda: client.raw("GET", "/api/v1/configmaps"))
            listed = json.loads(client.raw("GET", "/api/v1/nodes").body)
        print(f"server, list of {SERVED:,}      {took * 1e3:9.1f} ms")
        version = listed["metadata"]["resourceVersion"]
        watch = line.format(f"/api/v1/configmaps?watch=1&resourceVersion={version}")
        watches = [socket.create_connection((url.hostname, url.port)) for _ in range(WATCHES)]
        for watcher in watches:
            watcher.sendall(watch.encode())
            watcher.recv(65_536)  # the head of the answer

        def follow() -> None:
            server.install(*settings(EVENTS, "w"))
            last = f"w{EVENTS - 1:05}".encode()
            for watcher in watches:
                seen = b""
                while last not in seen:
                    seen += watcher.recv(65_536)

        rate = WATCHES * EVENTS / seconds(follow)
        print(f"server, {WATCHES} watches, events {rate:10,.0f} a second of processor")
        for watcher in watches:
            watcher.close()


def main() -> None:
    """Print the tables."""
    delayed(DelayingQueue)
    delayed(PriorityQueue)
    throughput(WorkQueue)
    throughput(PriorityQueue)
    in_process_server()
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
