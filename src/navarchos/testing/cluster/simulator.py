"""The simulated cluster: population, controllers and invariant checker."""

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Self

from navarchos.client import Client
from navarchos.errors import AlreadyStarted, NotStarted
from navarchos.informers import SharedInformer
from navarchos.logs import get_logger
from navarchos.runtime import Manager, ManagerOptions
from navarchos.stopping import StopToken
from navarchos.testing.clock import FakeClock
from navarchos.testing.cluster import invariants, kinds, nodes
from navarchos.testing.cluster.context import SimulatorContext, terminating
from navarchos.testing.cluster.controllers import (
    cloud,
    daemonsets,
    deployments,
    disruption,
    jobs,
    kubelets,
    node_lifecycle,
    replicasets,
    scheduler,
    statefulsets,
)
from navarchos.testing.cluster.controllers.daemonsets import plan
from navarchos.testing.cluster.controllers.replicasets import status_of
from navarchos.testing.cluster.options import Agent, ClusterOptions
from navarchos.testing.cluster.pods import mirror_name
from navarchos.testing.cluster.population import install_owned, populate
from navarchos.testing.server import Server
from navarchos.threads import ThreadGroup

__all__ = ["Cluster", "ClusterStats", "missing_for_readiness"]

_log = get_logger(__name__)

_CONTROLLERS: Final = (
    deployments,
    replicasets,
    statefulsets,
    daemonsets,
    jobs,
    disruption,
)
_CHECK_PERIOD: Final = 0.05
_STOP_TIMEOUT: Final = 10.0
_MIN_PODS_TO_FREEZE: Final = 2_000
"""Number of pods from which `gc.freeze` saves more than the full collection before it costs."""


@dataclass(frozen=True, slots=True)
class ClusterStats:
    """Counters of a cluster since its construction.

    Attributes:
        evictions_granted: Pods evicted through the eviction API.
        evictions_refused: Evictions answered with 429, among the server's latest requests.
        pods_moved: Pods bound by the scheduler.
        nodes_replaced: Machines replaced by the cloud.
    """

    evictions_granted: int
    evictions_refused: int
    pods_moved: int
    nodes_replaced: int


class Cluster:
    """A simulated cluster on an in-process or a real API server.

    ```python
    with ApiServer() as server, Cluster(server) as cluster:
        cluster.populate()
        cluster.start()
        cluster.wait_until_ready(30)
    ```

    The cluster consists of a scheduler, kubelets, the controllers of workloads, budgets and
    node taints, and a cloud that replaces machines. They use this project's framework and
    send HTTP requests to the server, as the real components do. A checker observes every
    write (`navarchos.testing.cluster.invariants`).

    The cluster uses the server's clock. In virtual time,

    ```python
    clock = FakeClock()
    server = ApiServer(clock=clock)  # not started: connections know real time only
    with Cluster(server) as cluster:
        cluster.populate()
        cluster.start()
        cluster.wait_until_ready()
        clock.advance(3600)
    ```

    every event happens exactly at its due time: time does not advance before all threads
    are parked. The order of events with the same due time is not defined, and pods with
    generated names have different durations in each run. Use a `Span` with equal bounds or
    a kwok annotation where this matters.

    Promises: the objects that `populate` installs are in their final state, so nothing
    changes until a client changes something. After `stop` no thread and no connection is
    left.

    Does not promise: rolling updates, volumes, networking, spontaneous failures.

    Lifecycle: construct, `populate`, `start`, `stop`; or use it as a context manager, which
    stops it. Construct the cluster before other clients write to the server: the checker
    begins with the state at that time.

    Threads: every method is safe from any thread, and is called at most once, except for
    the properties and `wait_until_ready`.

    Args:
        server: The server, which must have no other component with the role of one of
            `agents`.
        options: Size and speed.
        agents: The components to run. On a `ControlPlane` with controllers and scheduler
            use `Agent.KUBELET` and `Agent.CLOUD`.
    """

    def __init__(
        self,
        server: Server,
        *,
        options: ClusterOptions | None = None,
        agents: Collection[Agent] = frozenset(Agent),
    ) -> None:
        self._agents = frozenset(agents)
        self.options = options if options is not None else ClusterOptions()
        self._server = server
        self._clock = clock = server.clock
        self._stop = StopToken(clock=clock)
        self._threads = ThreadGroup("cluster", stop=self._stop, clock=clock)
        self._checker = invariants.InvariantChecker(
            late_binding_tolerance=self.options.late_binding_tolerance, clock=clock
        )
        self._cleanup = ExitStack()
        self._cleanup.callback(server.subscribe(self._checker.observe))
        self._machines: tuple[nodes.Machine, ...] = ()
        self._context: SimulatorContext | None = None
        self._cloud: cloud.Cloud | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def violations(self) -> list[invariants.Violation]:
        """The violated invariants so far, oldest first."""
        return self._checker.violations

    @property
    def stats(self) -> ClusterStats:
        """The counters of this cluster."""
        return ClusterStats(
            evictions_granted=self._checker.count("evicted"),
            evictions_refused=sum(
                record.verb == "evict" and record.code == HTTPStatus.TOO_MANY_REQUESTS
                for record in self._server.audit
            ),
            pods_moved=self._checker.count("scheduled"),
            nodes_replaced=self._cloud.replaced if self._cloud is not None else 0,
        )

    def populate(self) -> None:
        """Install namespaces, nodes, workloads and running pods.

        If the server has its own workload controllers, only objects without an owner are
        installed, because those controllers create the pods: wait until they are ready.
        """
        population = populate(self.options, self._clock.now())
        self._machines = population.machines
        present = {found["metadata"]["name"] for found in self._server.list("namespaces")}
        missing = [name for name in population.namespaces if name not in present]
        self._server.install(*map(_namespace, missing))
        manifests = population.manifests
        if Agent.CONTROLLERS not in self._agents:
            manifests = [each for each in manifests if "ownerReferences" not in each["metadata"]]
        install_owned(self._server, manifests)

    def start(self) -> None:
        """Start the controllers. The server must be listening.

        Raises:
            AlreadyStarted: The cluster was started before.
        """
        if self._context is not None:
            raise AlreadyStarted("the cluster")
        clients = self._clients()
        manager = Manager(
            clients[Agent.CONTROLLERS],
            options=ManagerOptions(
                component="simulator",
                freeze_caches=self.options.nodes * self.options.pods_per_node
                >= _MIN_PODS_TO_FREEZE,
            ),
            clock=self._clock,
        )
        self._context = SimulatorContext(manager, clients, self.options, self._clock, self._stop)
        self._install(self._context)
        self._threads.start("manager", lambda: manager.run(self._stop))

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """Wait until all caches are filled and every workload has its desired pods.

        In virtual time the call moves the clock as far as needed.

        Args:
            timeout: Maximum wait in seconds; `None` waits without limit.

        Returns:
            `False` if the timeout passed or the cluster was stopped; in virtual time also
            if no pending event could make the cluster ready.

        Raises:
            NotStarted: The cluster was not started.
            ThreadCrashed: The manager of the controllers has failed.
        """
        if self._context is None:
            raise NotStarted("the cluster")
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while not self._stop.is_set():
            self._threads.raise_failure()
            if isinstance(self._clock, FakeClock):
                self._clock.settle()
            began = self._clock.monotonic()
            waiting_for = missing_for_readiness(self._context, self._server)
            if not waiting_for:
                return True
            if not self._pause(began, deadline):
                _log.warning("cluster_not_ready", waiting_for=waiting_for)
                return False
        return False

    def stop(self) -> None:
        """Stop the controllers and wait for their threads. May be called repeatedly."""
        self._stop.stop("the cluster is stopped")
        if not self._threads.join(_STOP_TIMEOUT):
            _log.error("cluster_threads_left", threads=self._threads.running())
        self._cleanup.close()

    def _pause(self, began: float, deadline: float | None) -> bool:
        """Wait before the next check; return `False` if no further check makes sense."""
        now = self._clock.monotonic()
        left = math.inf if deadline is None else deadline - now
        if left <= 0:
            return False
        if not isinstance(self._clock, FakeClock):
            # Checking a large cluster takes a while: spend at most half of the time on it.
            self._stop.wait(max(_CHECK_PERIOD, now - began))
            return True
        until_next = self._clock.next_deadline()
        step = left if until_next is None else min(left, until_next)
        if step == math.inf:
            return False
        self._clock.advance(step)
        return True

    def _clients(self) -> Mapping[Agent, Client]:
        clients: dict[Agent, Client] = {}
        for agent in Agent:
            clients[agent] = self._server.client(user_agent=agent.value)
            self._cleanup.callback(clients[agent].close)
        return clients

    def _install(self, context: SimulatorContext) -> None:
        is_controlled = Agent.CONTROLLERS in self._agents
        if is_controlled:
            for controller in _CONTROLLERS:
                controller.install(context)
            node_lifecycle.install_taints(context)
        if Agent.SCHEDULER in self._agents:
            scheduler.install(context)
        if Agent.KUBELET in self._agents:
            kubelets.install(context, collects=is_controlled)
            if not is_controlled:
                node_lifecycle.install_heartbeats(context)
        if Agent.CLOUD in self._agents:
            self._cloud = cloud.install(context, self._machines)


def _namespace(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


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
