"""What a drain can end in.

```text
DrainError
  PodsNotAllowed     some pods may not be removed with these options
  DrainTimeout       time is up, and pods are left
  EvictionForbidden  the caller lacks a right
  NodeReplaced       the node is not the one that was meant
```
"""

from collections.abc import Sequence

from navarchos.drain.plan import PlannedPod
from navarchos.errors import NavarchosError

__all__ = ["DrainError", "DrainTimeout", "EvictionForbidden", "NodeReplaced", "PodsNotAllowed"]


class DrainError(NavarchosError):
    """A node that was not emptied.

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
    """The options do not allow some pods to be removed. Nothing was evicted.

    Attributes:
        pods: Those pods, with the reason and the option that would help.
    """

    def __init__(self, node: str, pods: Sequence[PlannedPod]) -> None:
        listed = "; ".join(f"{pod.name}: {pod.finding.message}" for pod in pods)
        super().__init__(node, f"not allowed: {listed}")
        self.pods = tuple(pods)


class DrainTimeout(DrainError):
    """Time is up. The node stays cordoned; pods that were evicted stay evicted.

    Attributes:
        pending: The pods that are left, `namespace/name` by the last that was
            heard about each; empty text if it is terminating.
    """

    def __init__(self, node: str, pending: dict[str, str]) -> None:
        listed = ", ".join(f"{pod} ({why or 'terminating'})" for pod, why in pending.items())
        super().__init__(node, f"time is up with pods left: {listed}")
        self.pending = pending


class EvictionForbidden(DrainError):
    """The server does not let the caller evict or delete pods.

    Attributes:
        message: The server's words; they name the right that is missing.
    """

    def __init__(self, node: str, message: str) -> None:
        super().__init__(node, message)
        self.message = message


class NodeReplaced(DrainError):
    """Another node bears the name now. Its pods were not touched."""

    def __init__(self, node: str) -> None:
        super().__init__(node, "another node bears this name now; nothing was done to it")
