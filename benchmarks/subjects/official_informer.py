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
    # The package has no types, and says that it has.
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
    # It has no way to wait for its first list.
    while added < count:
        time.sleep(0.01)
    reporter.end("synced", objects=len(informer.cache.list_keys()))
    reporter.settle()
    sys.stdout.flush()
    os._exit(0)  # its stop waits for a watch that may be silent for long


if __name__ == "__main__":
    main()
