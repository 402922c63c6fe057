"""Print which nodes are cordoned and uncordoned, until Ctrl-C."""

import msgspec

from navarchos import Client, Object, Resource, SharedInformer, StopToken


class NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()


NODES = Resource(group="", version="v1", plural="nodes", kind="Node", namespaced=False, type=Node)


def show(old: Node, new: Node) -> None:
    if old.spec.unschedulable != new.spec.unschedulable:
        word = "cordoned" if new.spec.unschedulable else "uncordoned"
        print(f"{new.metadata.name} {word}", flush=True)


def main() -> None:
    with Client.from_config() as client:
        nodes = SharedInformer(client.resource(NODES))
        nodes.add_handler(on_update=show)
        stop = StopToken()
        nodes.start(stop)
        try:
            nodes.wait_for_sync()
            print(f"{len(nodes.lister.list())} nodes", flush=True)
            stop.wait()
        except KeyboardInterrupt:
            stop.stop("Ctrl-C")
        nodes.join()


if __name__ == "__main__":
    main()
