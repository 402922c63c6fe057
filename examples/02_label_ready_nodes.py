"""A complete controller: it keeps a label on every schedulable node."""

import msgspec

from navarchos import (
    DONE,
    Builder,
    Client,
    Manager,
    Object,
    Reconciler,
    Request,
    Resource,
    Result,
)
from navarchos.runtime import CachedClient

LABEL = "example.com/schedulable"


class NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()


NODES = Resource(group="", version="v1", plural="nodes", kind="Node", namespaced=False, type=Node)


class KeepLabel(Reconciler):
    def __init__(self, nodes: CachedClient[Node]) -> None:
        self._nodes = nodes

    def reconcile(self, request: Request) -> Result:
        node = self._nodes.find(request.name)
        if node is None:
            return DONE
        wanted = None if node.spec.unschedulable else "true"
        if node.metadata.labels.get(LABEL) != wanted:
            self._nodes.patch_any_version(node, {"metadata": {"labels": {LABEL: wanted}}})
        return DONE


def main() -> None:
    with Client.from_config() as client:
        manager = Manager(client)
        Builder(manager).for_(NODES).build(KeepLabel(manager.cached_client(NODES)))
        manager.run(install_signals=True)


if __name__ == "__main__":
    main()
