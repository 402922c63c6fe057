"""Changes pods at a steady rate, as kubelets do."""

import itertools
import json
import queue
import threading
import time
from typing import Any, Final

from benchmarks.servers import Served
from navarchos.client import Client

__all__ = ["WRITTEN_AT", "churn"]

WRITTEN_AT: Final = "benchmark.navarchos/written-at"
"""The annotation that says when a change was written, in nanoseconds since the epoch."""

_WRITERS: Final = 8
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}


def churn(served: Served, *, rate: float, seconds: float) -> int:
    """Patch one pod after the other, and return how many were.

    At the given rate even if an answer takes long; each pod at most once, so that no
    change hides another. Returns when all are answered.
    """
    with served.client() as client:
        count = int(rate * seconds)
        paths = itertools.islice(_paths(client), count)
        due: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        writers = [threading.Thread(target=_write, args=(client, due)) for _ in range(_WRITERS)]
        for writer in writers:
            writer.start()
        began, made = time.monotonic(), 0
        for path in paths:
            time.sleep(max(0.0, began + made / rate - time.monotonic()))
            due.put(path)
            made += 1
        for _ in writers:
            due.put(None)
        for writer in writers:
            writer.join()
    return made


def _paths(client: Client) -> list[str]:
    names = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    found = json.loads(client.raw("GET", "/api/v1/pods", headers={"Accept": names}).body)
    return [_path(item["metadata"]) for item in found["items"]]


def _path(metadata: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _write(client: Client, due: "queue.SimpleQueue[str | None]") -> None:
    while (path := due.get()) is not None:
        body = {"metadata": {"annotations": {WRITTEN_AT: str(time.time_ns())}}}
        answer = client.raw("PATCH", path, body=body, headers=_MERGE)
        if answer.status != 200:
            raise RuntimeError(f"{path} is not patched: {answer.status}")
