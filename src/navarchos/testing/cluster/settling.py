"""Whether a cluster is at rest: every workload has what it wants."""

from typing import Any

from navarchos.informers import SharedInformer
from navarchos.testing.cluster.kinds import Budget, DaemonSet, ReplicaSet, StatefulSet
from navarchos.testing.cluster.pods import mirror_name
from navarchos.testing.cluster.replicas import status_of
from navarchos.testing.cluster.world import World, terminating
from navarchos.testing.server import Server

__all__ = ["unsettled"]


def unsettled(world: World, server: Server) -> str:
    """Return the first thing that is not at rest yet, in words; "" if everything is.

    A cache that is behind may look settled, so what the caches say counts only when
    they hold exactly what the server has. (An informer's own `catch_up` would list
    kinds anew in which nothing happens.)
    """
    unsynced = next((c for c in _caches(world) if not c.has_synced()), None)
    if unsynced is not None:
        return f"the first list of {unsynced.resource}"
    return _pods(world) or _static_pods(world) or _workloads(world) or _behind(world, server)


def _behind(world: World, server: Server) -> str:
    for cache in _caches(world):
        cached = {o.metadata.uid: o.metadata.resource_version for o in cache.store.values()}
        resource = cache.resource
        stored = {
            found["metadata"]["uid"]: found["metadata"]["resourceVersion"]
            for found in server.list(resource.plural, group=resource.group)
        }
        if cached != stored:
            return f"the cache of {resource}"
    return ""


def _caches(world: World) -> tuple[SharedInformer[Any], ...]:
    return (
        world.nodes,
        world.pods,
        world.deployments,
        world.replica_sets,
        world.stateful_sets,
        world.daemon_sets,
        world.jobs,
        world.budgets,
    )


def _pods(world: World) -> str:
    for pod in world.pods.store.values():
        if pod.is_finished:
            continue
        if pod.is_terminating or not pod.is_ready:
            return f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    return ""


def _static_pods(world: World) -> str:
    for node in world.nodes.store.values():
        name = mirror_name(node.metadata.name)
        if f"kube-system/{name}" not in world.pods.store:
            return f"pod kube-system/{name}"
    return ""


def _workloads(world: World) -> str:
    replicated: list[ReplicaSet | StatefulSet] = [
        *world.replica_sets.store.values(),
        *world.stateful_sets.store.values(),
    ]
    for owner in replicated:
        if not terminating(owner) and not _has_its_pods(world, owner):
            return f"{type(owner).__name__} {owner.metadata.key}"
    for daemon_set in world.daemon_sets.store.values():
        if not _is_everywhere(world, daemon_set):
            return f"DaemonSet {daemon_set.metadata.key}"
    for budget in world.budgets.store.values():
        if not _is_up_to_date(budget):
            return f"PodDisruptionBudget {budget.metadata.key}"
    return ""


def _has_its_pods(world: World, owner: ReplicaSet | StatefulSet) -> bool:
    pods = world.pods_of(owner.metadata.uid)
    counts = status_of(pods, owner.metadata.generation)
    return counts.ready_replicas == owner.spec.replicas and counts == owner.status


def _is_everywhere(world: World, daemon_set: DaemonSet) -> bool:
    return daemon_set.status.number_ready == len(world.nodes.store)


def _is_up_to_date(budget: Budget) -> bool:
    status = budget.status
    healthy_enough = status.current_healthy >= min(status.expected_pods, status.desired_healthy)
    return status.observed_generation >= budget.metadata.generation and healthy_enough
