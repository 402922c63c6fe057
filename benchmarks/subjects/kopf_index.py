"""Keep an index of the cluster's pods with kopf, as its documentation does.

python -m benchmarks.subjects.kopf_index PODS KUBECONFIG
"""

import asyncio
import logging
import os
import sys
from typing import Any

from benchmarks.subjects.reporting import Reporter


def main() -> None:
    """Report the stages `synced` and `after_gc`."""
    count, os.environ["KUBECONFIG"] = int(sys.argv[1]), sys.argv[2]
    reporter = Reporter()
    import kopf

    logging.basicConfig(level=logging.WARNING)  # log lines for each pod would be measured too
    heard: set[str] = set()
    filled = asyncio.Event()

    @kopf.index("", "v1", "pods")
    async def pods(name: str, namespace: str | None, body: Any, **_: Any) -> Any:
        return {(namespace, name): body}

    @kopf.on.event("", "v1", "pods")
    async def on_event(uid: str, **_: Any) -> None:
        heard.add(uid)
        if len(heard) >= count:
            filled.set()

    async def watch() -> None:
        operator = asyncio.create_task(kopf.operator(clusterwide=True, standalone=True))
        await filled.wait()
        reporter.end("synced", objects=len(heard))
        reporter.collect_garbage()
        operator.cancel()
        await asyncio.wait([operator])

    reporter.begin()
    asyncio.run(watch())


if __name__ == "__main__":
    main()
