"""Fill a cache with the cluster's pods as a controller would, and process their changes.

python -m benchmarks.subjects.navarchos_informer drain|listed|dict PLACE [HANDLERS]

`drain` is the operator's projection of a pod, `listed` the same with an ordinary list
instead of a streamed one. PLACE is a kubeconfig, or a folder with the service account of a
pod.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.subjects.connecting import config_of
from benchmarks.subjects.reporting import Reporter
from navarchos import Client, InformerFactory, logs
from navarchos.client import Resource
from navarchos.drain import PODS
from navarchos.informers import FactoryOptions, HandlerOptions, KindOptions

WRITTEN_AT = "benchmark.navarchos/written-at"  # as `benchmarks.churn` writes it

UNSTRUCTURED: Resource[Any] = Resource("", "v1", "pods", "Pod", namespaced=True, type=dict)


class Heard:
    """Counts updates and records the latency of each from its write to the handler."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.updates = 0

    def on_add(self, obj: Any, is_in_initial_list: bool) -> None:
        """Ignore an object of the initial list, which has no meaningful latency."""

    def on_typed(self, old: Any, new: Any) -> None:
        """Record the update of a struct."""
        self._on(new.metadata.annotations)

    def on_dict(self, old: Any, new: Any) -> None:
        """Record the update of a dictionary."""
        self._on(new["metadata"].get("annotations") or {})

    def take(self) -> dict[str, object]:
        """Return the latencies since the last call."""
        taken: dict[str, object] = {"updates": self.updates, "latencies": self.latencies}
        self.latencies, self.updates = [], 0
        return taken

    def _on(self, annotations: dict[str, str]) -> None:
        now = time.time_ns()
        self.updates += 1
        if written := annotations.get(WRITTEN_AT):
            self.latencies.append((now - int(written)) / 1e9)


def main(when_synced: Callable[[Reporter], object] = lambda _reporter: None) -> None:
    """Report the stages `synced`, `after_gc` and, after each order, `followed`.

    Args:
        when_synced: Called after the stage `synced`.
    """
    kind, place, *rest = sys.argv[1:]
    resource = UNSTRUCTURED if kind == "dict" else PODS
    options = KindOptions[Any](streaming=kind != "listed")
    logs.configure(level="warning")
    reporter = Reporter()
    heard = Heard()
    reporter.begin()
    with Client(config_of(place)) as client:
        factory = InformerFactory(client, FactoryOptions(kinds={resource: options}))
        pods = factory.informer(resource)
        on_update = heard.on_dict if kind == "dict" else heard.on_typed
        handlers = [
            pods.add_handler(
                options=HandlerOptions(name=f"handler-{number}"),
                on_add=heard.on_add,
                on_update=on_update,
            )
            for number in range(int(rest[0]) if rest else 1)
        ]
        factory.start()
        factory.wait_for_sync()
        for handler in handlers:
            handler.wait_for_sync(None)
        reporter.end("synced", objects=len(pods.store))
        when_synced(reporter)
        reporter.collect_garbage()
        while reporter.order() is not None:
            reporter.begin()
            order = reporter.order()
            if order is None:
                break
            while heard.updates < int(order):
                time.sleep(0.01)
            reporter.end("followed", **heard.take())
        factory.shutdown()


if __name__ == "__main__":
    main()
