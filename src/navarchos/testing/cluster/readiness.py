"""Check whether a cluster is ready: every workload has its desired pods."""

from collections.abc import Callable
from functools import partial
from typing import Any

from navarchos.informers import SharedInformer
from navarchos.testing.cluster import kinds
from navarchos.testing.cluster.context import SimulatorContext, terminating
from navarchos.testing.cluster.controllers.daemonsets import plan
from navarchos.testing.cluster.controllers.replicasets import status_of
from navarchos.testing.cluster.pods import mirror_name
from navarchos.testing.server import Server

__all__ = ["missing_for_readiness"]


def missing_for_readiness(context: SimulatorContext, server: Server) -> str:
    """Return the first part that is not ready, in words, or "" if everything is ready.

    An outdated cache may look ready, so the caches count only if they equal the server's
    objects. (`catch_up` of an informer would list kinds again that did not change.)
    """
    unsynced = next((c for c in _caches(context) if not c.has_synced()), None)
    if unsynced is not None:
        return f"the first list of {unsynced.resource}"
    # Check again after the comparison, because the first check may have used older objects.
    # The first check only avoids the comparison, which takes longer.
    return _unrested(context) or _behind(context, server) or _unrested(context)


def _unrested(context: SimulatorContext) -> str:
    return _pods(context) or _static_pods(context) or _workloads(context)


def _behind(context: SimulatorContext, server: Server) -> str:
    for cache in _caches(context):
        cached = {o.metadata.uid: o.metadata.resource_version for o in cache.store.values()}
        resource = cache.resource
        stored = {
            found["metadata"]["uid"]: found["metadata"]["resourceVersion"]
            for found in server.list(resource.plural, group=resource.group)
        }
        if cached != stored:
            return f"the cache of {resource}"
    return ""


def _caches(context: SimulatorContext) -> tuple[SharedInformer[Any], ...]:
    return (
        context.nodes,
        context.pods,
        context.deployments,
        context.replica_sets,
        context.stateful_sets,
        context.daemon_sets,
        context.jobs,
        context.budgets,
    )


def _pods(context: SimulatorContext) -> str:
    for pod in context.pods.store.values():
        if pod.is_finished:
            continue
        if pod.is_terminating or not pod.is_ready:
            return f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    return ""


def _static_pods(context: SimulatorContext) -> str:
    for node in context.nodes.store.values():
        name = mirror_name(node.metadata.name)
        if f"kube-system/{name}" not in context.pods.store:
            return f"pod kube-system/{name}"
    return ""


def _workloads(context: SimulatorContext) -> str:
    checks: tuple[tuple[SharedInformer[Any], Callable[[Any], bool]], ...] = (
        (context.deployments, _has_come_up),
        (context.replica_sets, partial(_has_its_pods, context)),
        (context.stateful_sets, partial(_has_its_pods, context)),
        (context.daemon_sets, partial(_is_everywhere, context)),
        (context.jobs, _has_begun),
        (context.budgets, _is_up_to_date),
    )
    for cache, rests in checks:
        for found in cache.store.values():
            if not terminating(found) and not rests(found):
                return f"{cache.resource.kind} {found.metadata.key}"
    return ""


def _has_its_pods(context: SimulatorContext, owner: kinds.ReplicaSet | kinds.StatefulSet) -> bool:
    pods = context.pods_of(owner.metadata.uid)
    counts = status_of(pods, owner.metadata.generation)
    return counts.ready_replicas == owner.spec.replicas and counts == owner.status


def _has_come_up(deployment: kinds.Deployment) -> bool:
    status, wanted = deployment.status, deployment.spec.replicas
    counts = (status.replicas, status.ready_replicas)
    return status.observed_generation >= deployment.metadata.generation and counts == (
        wanted,
        wanted,
    )


def _is_everywhere(context: SimulatorContext, daemon_set: kinds.DaemonSet) -> bool:
    metadata = daemon_set.metadata
    wanted = plan(
        daemon_set.spec.template,
        context.nodes.store.values(),
        context.pods_of(metadata.uid),
        generation=metadata.generation,
    )
    status = wanted.status
    is_complete = status.number_ready == status.desired_number_scheduled and not wanted.delete
    return is_complete and status == daemon_set.status


def _has_begun(job: kinds.Job) -> bool:
    return job.status.start_time is not None


def _is_up_to_date(budget: kinds.Budget) -> bool:
    status = budget.status
    healthy_enough = status.current_healthy >= min(status.expected_pods, status.desired_healthy)
    return status.observed_generation >= budget.metadata.generation and healthy_enough
