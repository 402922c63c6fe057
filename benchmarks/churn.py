"""Change pods at a steady rate, as kubelets do."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from benchmarks.servers import Served
from navarchos.client import Client

__all__ = ["WRITTEN_AT", "churn"]

WRITTEN_AT: Final = "benchmark.navarchos/written-at"
"""The annotation with the time of a write, in nanoseconds since the epoch."""

_WRITERS: Final = 8
_LIST_TIMEOUT: Final = 120.0
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}


def churn(served: Served, *, rate: float, seconds: float) -> int:
    """Patch one pod after the other and return the number of patched pods.

    The rate is kept even if an answer takes long. Each pod is patched at most once, so that
    no change hides another. The function returns when all patches were answered.
    """
    with served.client() as client, ThreadPoolExecutor(_WRITERS) as writers:
        paths = _paths(client, int(rate * seconds))
        began = time.monotonic()
        written = []
        for number, path in enumerate(paths):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            written.append(writers.submit(_write, client, path))
        for each in written:
            each.result()
    return len(written)


def _paths(client: Client, count: int) -> list[str]:
    names = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    query = {"limit": str(count)}
    answer = client.raw(
        "GET", "/api/v1/pods", headers={"Accept": names}, query=query, timeout=_LIST_TIMEOUT
    )
    items = json.loads(answer.body)["items"]
    return [_path(item["metadata"]) for item in items[:count]]


def _path(metadata: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _write(client: Client, path: str) -> None:
    body = {"metadata": {"annotations": {WRITTEN_AT: str(time.time_ns())}}}
    answer = client.raw("PATCH", path, body=body, headers=_MERGE)
    if answer.status != 200:
        raise RuntimeError(f"patch of {path} failed: {answer.status}")
