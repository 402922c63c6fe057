"""The errors of `drain_node`.

```text
DrainError
  PodsNotAllowed     the options do not allow some pods to be evicted
  DrainTimeout       the timeout passed before all pods had left
  EvictionForbidden  the caller lacks a permission (RBAC)
  NodeReplaced       a new node has taken over the node's name
```
"""

from collections.abc import Sequence

from navarchos.drain.plan import PlannedPod
from navarchos.errors import NavarchosError

__all__ = ["DrainError", "DrainTimeout", "EvictionForbidden", "NodeReplaced", "PodsNotAllowed"]


class DrainError(NavarchosError):
    """A node was not drained.

    Attributes:
        node: The node's name.
    """

    def __init__(self, node: str, what: str) -> None:
        super().__init__(what)
        self.node = node
        self.what = what

    def __str__(self) -> str:
        return f"drain of node {self.node}: {self.what}"


class PodsNotAllowed(DrainError):
    """The options do not allow some pods to be evicted. No pod was evicted.

    Attributes:
        pods: The refused pods; each finding names the option that would allow the eviction.
    """

    def __init__(self, node: str, pods: Sequence[PlannedPod]) -> None:
        listed = "; ".join(f"{pod.name}: {pod.finding.message}" for pod in pods)
        super().__init__(node, f"the options do not allow the eviction of these pods: {listed}")
        self.pods = tuple(pods)


class DrainTimeout(DrainError):
    """The timeout passed. The node stays cordoned; evicted pods stay evicted.

    Attributes:
        pending: The remaining pods as `namespace/name`, each with the last response to its
            eviction; the text is empty for a pod that is terminating.
    """

    def __init__(self, node: str, pending: dict[str, str]) -> None:
        listed = ", ".join(f"{pod} ({why or 'terminating'})" for pod, why in pending.items())
        super().__init__(node, f"the timeout passed before these pods had left: {listed}")
        self.pending = pending


class EvictionForbidden(DrainError):
    """The caller may not evict or delete pods.

    Attributes:
        message: The server's message; it names the missing permission.
    """

    def __init__(self, node: str, message: str) -> None:
        super().__init__(node, message)
        self.message = message


class NodeReplaced(DrainError):
    """A new node has taken over the node's name. Its pods were not evicted."""

    def __init__(self, node: str) -> None:
        super().__init__(node, "a new node has this name now; it was left unchanged")
