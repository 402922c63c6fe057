"""Shared parts of the simulator's controllers: caches, indexes, clients and durations."""

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
from navarchos.testing.cluster.options import Agent, ClusterOptions, Durations

__all__ = [
    "BY_LABEL",
    "BY_NODE",
    "BY_OWNER",
    "STATUS_DELAY",
    "Debouncer",
    "SimulatorContext",
    "label_key",
    "labels_of_budget",
    "labels_of_pod",
    "node_of_pod",
    "owner_of_object",
    "owner_of_pod",
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
"""Seconds by which the write of a status that no other controller acts on is delayed."""


class SimulatorContext:
    """One cache per kind and one client per component.

    Args:
        manager: Runs the controllers; its informers are the caches.
        clients: The client of each component.
        options: The options of the cluster.
        clock: The clock of all controllers.
        stop: Set when the simulator stops.
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
        self.pods: SharedInformer[kinds.Pod] = manager.informer(kinds.PODS)
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
        """Return the client of a resource that this component writes with."""
        return self._clients[agent].resource(resource)

    def pods_of(self, uid: str) -> list[kinds.Pod]:
        """Return the pods of the controller with this uid, including our own writes."""
        return self.pods.lister.by_index(BY_OWNER, uid)


class Debouncer:
    """Delays a write because its content may change back soon.

    When a pod moves, its owner's counts go down and up again. After half a second the
    status is often equal to the stored one, and the write is not needed.

    Threads: safe from any thread.
    """

    def __init__(self, delay: float, clock: Clock) -> None:
        self._delay = delay
        self._clock = clock
        self._due_lock = threading.Lock()
        self._due: dict[Hashable, float] = {}  # guarded by _due_lock

    def due_in(self, key: Hashable) -> float:
        """Return the seconds until `key` should be written; 0 when the write is due.

        The first call starts the delay; `clear` removes it.
        """
        now = self._clock.monotonic()
        with self._due_lock:
            return max(0.0, self._due.setdefault(key, now + self._delay) - now)

    def clear(self, key: Hashable) -> None:
        """Remove the delay of `key`: nothing is waiting to be written."""
        with self._due_lock:
            self._due.pop(key, None)


def label_key(namespace: str, key: str, value: str) -> str:
    """Return the entry of the label index for one label in one namespace."""
    return f"{namespace}/{key}={value}"


def terminating(obj: Object) -> bool:
    """Return whether an object is being deleted."""
    return obj.metadata.deletion_timestamp is not None


def owner_of_pod(pod: kinds.Pod) -> Iterable[str]:
    """Index pods by their controller."""
    owner = pod.owner
    return (owner.uid,) if owner is not None else ()


def node_of_pod(pod: kinds.Pod) -> Iterable[str]:
    """Index pods by their node."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def labels_of_pod(pod: kinds.Pod) -> Iterable[str]:
    """Index pods by their labels."""
    namespace = pod.metadata.namespace
    return [label_key(namespace, key, value) for key, value in pod.metadata.labels.items()]


def labels_of_budget(budget: kinds.Budget) -> Iterable[str]:
    """Index budgets by one label that their pods must have, otherwise by namespace.

    The budgets of a pod are therefore found by its labels and its namespace.
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
    """Return the body of a merge patch: a status and additional fields."""
    return {"status": {**msgspec.to_builtins(status), **more}}
