"""Fill a cache with the official package's SharedInformer, as its documentation does.

python -m benchmarks.subjects.official_informer PODS KUBECONFIG
"""

import os
import sys
import time
from importlib import import_module
from typing import Any

from benchmarks.subjects.reporting import Reporter


def main() -> None:
    """Report the stages `synced` and `after_gc`."""
    count, kubeconfig = int(sys.argv[1]), sys.argv[2]
    reporter = Reporter()
    # The package declares that it has types, and has none.
    client: Any = import_module("kubernetes.client")
    informers: Any = import_module("kubernetes.informer")

    import_module("kubernetes.config").load_kube_config(kubeconfig)
    informer = informers.SharedInformer(client.CoreV1Api().list_pod_for_all_namespaces)
    added = 0

    def on_add(_pod: object) -> None:
        nonlocal added
        added += 1

    informer.add_event_handler(informers.ADDED, on_add)
    reporter.begin()
    informer.start()
    # The package offers no way to wait for the first list.
    while added < count:
        time.sleep(0.01)
    reporter.end("synced", objects=len(informer.cache.list_keys()))
    reporter.collect_garbage()
    sys.stdout.flush()
    os._exit(0)  # its stop waits for a watch, which may be silent for long


if __name__ == "__main__":
    main()
