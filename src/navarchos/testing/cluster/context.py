"""What the simulator's controllers share: caches, indexes, writers, pace."""

import threading
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from navarchos.client import Client, Resource, ResourceClient
from navarchos.clock import Clock
from navarchos.informers import SharedInformer
from navarchos.meta import Object
from navarchos.runtime import Manager
from navarchos.stopping import StopToken
from navarchos.testing.cluster import kinds
from navarchos.testing.cluster.kinds import Budget, Pod
from navarchos.testing.cluster.options import Agent, ClusterOptions, Durations

__all__ = [
    "BY_LABEL",
    "BY_NODE",
    "BY_OWNER",
    "STATUS_DELAY",
    "Debouncer",
    "SimulatorContext",
    "label_key",
    "labels_of_pod",
    "status_patch",
    "terminating",
]

T = TypeVar("T")

BY_OWNER: Final = "owner"
"""Index: the uid of the controller."""
BY_NODE: Final = "node"
"""Index: the node that a pod is bound to."""
BY_LABEL: Final = "label"
"""Index: labels with their namespace; see `labels_of_pod`, `labels_of_budget`."""

STATUS_DELAY: Final = 0.5
"""Seconds for which a status that tells nobody what to do may lag behind."""


class SimulatorContext:
    """One cache per kind, and a client per component.

    Args:
        manager: Runs the controllers; its informers are the caches.
        clients: Who writes, by component.
        options: The cluster's.
        clock: Everybody's time.
        stop: Set when the simulator is to stop.
    """

    def __init__(
        self,
        manager: Manager,
        clients: Mapping[Agent, Client],
        options: ClusterOptions,
        clock: Clock,
        stop: StopToken,
    ) -> None:
        self.manager = manager
        self.options = options
        self.clock = clock
        self.stop = stop
        self.durations = Durations(speed=options.speed, seed=options.seed)
        self._clients = clients
        self.pods: SharedInformer[Pod] = manager.informer(kinds.PODS)
        self.pods.add_indexers(
            {BY_OWNER: owner_of_pod, BY_NODE: node_of_pod, BY_LABEL: labels_of_pod}
        )
        self.nodes = manager.informer(kinds.NODES)
        self.deployments = manager.informer(kinds.DEPLOYMENTS)
        self.replica_sets = manager.informer(kinds.REPLICA_SETS)
        self.replica_sets.add_indexers({BY_OWNER: owner_of_object})
        self.stateful_sets = manager.informer(kinds.STATEFUL_SETS)
        self.daemon_sets = manager.informer(kinds.DAEMON_SETS)
        self.jobs = manager.informer(kinds.JOBS)
        self.budgets = manager.informer(kinds.DISRUPTION_BUDGETS)
        self.budgets.add_indexers({BY_LABEL: labels_of_budget})

    def writer(self, agent: Agent, resource: Resource[T]) -> ResourceClient[T]:
        """Return the verbs of a resource, as used by that component."""
        return self._clients[agent].resource(resource)

    def pods_of(self, uid: str) -> list[Pod]:
        """Return the pods of the controller with that uid, own writes included."""
        return self.pods.lister.by_index(BY_OWNER, uid)


class Debouncer:
    """Lets a write wait a little, since what it says may soon be wrong again.

    A pod that moves makes its owner's counts go down and up; a status that waits
    half a second is often the one that is there already.

    Threads: safe from any thread.
    """

    def __init__(self, delay: float, clock: Clock) -> None:
        self._delay = delay
        self._clock = clock
        self._due_lock = threading.Lock()
        self._due: dict[Hashable, float] = {}  # guarded by _due_lock

    def left(self, key: Hashable) -> float:
        """Return the seconds until `key` may be written; 0 once it may.

        The first call starts the wait, `over` ends it.
        """
        now = self._clock.monotonic()
        with self._due_lock:
            return max(0.0, self._due.setdefault(key, now + self._delay) - now)

    def over(self, key: Hashable) -> None:
        """Note that nothing waits to be written under `key`."""
        with self._due_lock:
            self._due.pop(key, None)


def label_key(namespace: str, key: str, value: str) -> str:
    """Return the entry of the label index for one label in one namespace."""
    return f"{namespace}/{key}={value}"


def terminating(obj: Object) -> bool:
    """Tell whether the deletion of an object has been asked for."""
    return obj.metadata.deletion_timestamp is not None


def owner_of_pod(pod: Pod) -> Iterable[str]:
    """Index pods by their controller."""
    owner = pod.owner
    return (owner.uid,) if owner is not None else ()


def node_of_pod(pod: Pod) -> Iterable[str]:
    """Index pods by their node."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def labels_of_pod(pod: Pod) -> Iterable[str]:
    """Index pods by their labels."""
    namespace = pod.metadata.namespace
    return [label_key(namespace, key, value) for key, value in pod.metadata.labels.items()]


def labels_of_budget(budget: Budget) -> Iterable[str]:
    """Index budgets by one label that their pods must have; by namespace without one.

    So the budgets of a pod are found by its labels and its namespace.
    """
    namespace, spec = budget.metadata.namespace, budget.spec.selector
    if spec is None:
        return ()
    for key, value in spec.match_labels.items():
        return (label_key(namespace, key, value),)
    return (namespace,)


def owner_of_object(obj: Object) -> Iterable[str]:
    """Index objects by their controller."""
    return [owner.uid for owner in obj.metadata.owner_references if owner.controller]


def status_patch(status: msgspec.Struct, **more: object) -> Mapping[str, object]:
    """Return a status, and fields that are only written, as the body of a merge patch."""
    return {"status": {**msgspec.to_builtins(status), **more}}
