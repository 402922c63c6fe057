"""Fill caches of nodes, or of the pods of some nodes with a watch for each.

python -m benchmarks.subjects.navarchos_parts nodes|watchers KUBECONFIG COUNT

The operator has such a watch for each node that it drains.
"""

import sys
from typing import Any

from benchmarks.population import node_name
from benchmarks.subjects.reporting import Reporter
from navarchos import Client, InformerFactory, logs
from navarchos.drain import PODS, pods_on
from navarchos.informers import SharedInformer
from navarchos.operator.nodes import NODES


def main() -> None:
    """Report the stages `synced` and `after_gc`."""
    what, kubeconfig, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    logs.configure(level="warning")
    reporter = Reporter()
    reporter.begin()
    with Client.from_config(kubeconfig=kubeconfig) as client:
        factory = InformerFactory(client)
        informers: list[SharedInformer[Any]]
        if what == "nodes":
            informers = [factory.informer(NODES)]
        else:
            on = (pods_on(node_name(number)) for number in range(count))
            informers = [factory.informer(PODS, field_selector=selector) for selector in on]
        factory.start()
        factory.wait_for_sync()
        reporter.end("synced", objects=sum(len(informer.store) for informer in informers))
        reporter.collect_garbage()
        factory.shutdown()


if __name__ == "__main__":
    main()
