"""How many pods the controllers of some pods want (upstream's scale finders)."""

from collections.abc import Iterable
from typing import NamedTuple

from navarchos.errors import NavarchosError
from navarchos.meta import controller_of
from navarchos.testing.cluster.kinds import Pod
from navarchos.testing.cluster.world import World

__all__ = ["NoScale", "Scales"]


class NoScale(NavarchosError):
    """A pod's controller has no scale, or is not known (yet).

    Attributes:
        kind: Its kind.
        name: `namespace/name`.
    """

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name

    def __str__(self) -> str:
        return f"{self.kind} {self.name} does not say how many pods it wants"


class _Scale(NamedTuple):
    uid: str
    replicas: int


class Scales:
    """Looks scales up in the caches of workloads."""

    def __init__(self, world: World) -> None:
        self._world = world

    def of(self, pods: Iterable[Pod]) -> int:
        """Return how many pods the controllers of `pods` want together.

        Pods without a controller are left out, as upstream.

        Raises:
            NoScale: One of the controllers does not say.
        """
        owners = {
            (pod.metadata.namespace, pod.owner.kind, pod.owner.name)
            for pod in pods
            if pod.owner is not None
        }
        # By uid: two ReplicaSets of one Deployment want its pods once.
        scales = dict(self._find(*owner) for owner in owners)
        return sum(scales.values())

    def _find(self, namespace: str, kind: str, name: str) -> _Scale:
        match kind:
            case "StatefulSet":
                found = self._world.stateful_sets.lister.find(name, namespace)
                if found is not None:
                    return _Scale(found.metadata.uid, found.spec.replicas)
            case "Deployment":
                deployment = self._world.deployments.lister.find(name, namespace)
                if deployment is not None:
                    return _Scale(deployment.metadata.uid, deployment.spec.replicas)
            case "ReplicaSet":
                replica_set = self._world.replica_sets.lister.find(name, namespace)
                if replica_set is not None:
                    parent = controller_of(replica_set.metadata)
                    if parent is not None and parent.kind == "Deployment":
                        return self._find(namespace, parent.kind, parent.name)
                    return _Scale(replica_set.metadata.uid, replica_set.spec.replicas)
            case _:
                pass
        raise NoScale(kind, f"{namespace}/{name}")
