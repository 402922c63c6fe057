"""The simulator as a whole: population, controllers, checker."""

import math
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Self

from navarchos.client import Client
from navarchos.errors import AlreadyStarted, NotStarted
from navarchos.logs import get_logger
from navarchos.runtime import Manager, ManagerOptions
from navarchos.stopping import StopToken
from navarchos.testing.clock import FakeClock
from navarchos.testing.cluster.context import SimulatorContext
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
from navarchos.testing.cluster.invariants import InvariantChecker, Violation
from navarchos.testing.cluster.nodes import Machine
from navarchos.testing.cluster.options import Agent, ClusterOptions
from navarchos.testing.cluster.population import install_owned, populate
from navarchos.testing.cluster.readiness import missing_for_readiness
from navarchos.testing.server import Server
from navarchos.threads import ThreadGroup

__all__ = ["Cluster", "ClusterStats"]

_log = get_logger(__name__)

_CONTROLLERS: Final = (
    deployments,
    replicasets,
    statefulsets,
    daemonsets,
    jobs,
    disruption,
)
_LOOK_PERIOD: Final = 0.05
_STOP_TIMEOUT: Final = 10.0
_WORTH_FREEZING: Final = 2_000
"""Pods from which on it is worth a full collection that later ones leave them out."""


@dataclass(frozen=True, slots=True)
class ClusterStats:
    """What has happened in a cluster since it was made.

    Attributes:
        evictions_granted: Pods that the eviction API has let go.
        evictions_refused: Evictions answered with 429, among the server's latest requests.
        pods_moved: Pods that the scheduler has bound.
        nodes_replaced: Machines that the cloud has replaced.
    """

    evictions_granted: int
    evictions_refused: int
    pods_moved: int
    nodes_replaced: int


class Cluster:
    """A simulated cluster on an API server, in this process or real.

    ```python
    with ApiServer() as server, Cluster(server) as cluster:
        cluster.populate()
        cluster.start()
        cluster.wait_until_ready(30)
    ```

    Everything but the API server: a scheduler, kubelets, the controllers of
    workloads, budgets and node taints, and a cloud that replaces machines. They
    talk to the server over HTTP as real ones do, on this project's framework. A
    checker looks at every write (`navarchos.testing.cluster.invariants`).

    It lives by the server's clock. In virtual time,

    ```python
    clock = FakeClock()
    server = ApiServer(clock=clock)  # not started: connections know real time only
    with Cluster(server) as cluster:
        cluster.populate()
        cluster.start()
        cluster.wait_until_ready()
        clock.advance(3600)
    ```

    all that falls due happens at its time, and at no other: time stands still until
    everybody has come to rest. Several things that are due at the same moment happen
    in any order, and pods whose names the server makes up draw other durations in
    each run: give a `Span` without width, or a kwok annotation, where that matters.

    Promises: what `populate` installs is settled, so nothing moves until somebody
    moves it; after `stop` no thread and no connection is left.

    Does not promise: rolling updates, volumes, network, failures of its own.

    Lifecycle: construct, `populate`, `start`, `stop`; or as a context manager, which
    stops. Construct it before anybody else writes to the server: the checker's
    books begin with what is there then.

    Threads: every method is safe from any thread, each at most once but the
    properties and `wait_until_ready`.

    Args:
        server: Where. It is to have nobody else who does what `agents` do.
        options: Size and pace.
        agents: Which parts run. On a `ControlPlane` with controllers and scheduler of
            its own ask for `Agent.KUBELET` and `Agent.CLOUD`.
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
        self._checker = InvariantChecker(
            late_binding_tolerance=self.options.late_binding_tolerance, clock=clock
        )
        self._cleanup = ExitStack()
        self._cleanup.callback(server.subscribe(self._checker.observe))
        self._machines: tuple[Machine, ...] = ()
        self._world: SimulatorContext | None = None
        self._cloud: cloud.Cloud | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def violations(self) -> list[Violation]:
        """The invariants that were broken so far, oldest first."""
        return self._checker.violations

    @property
    def stats(self) -> ClusterStats:
        """Counters."""
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
        """Install namespaces, nodes, workloads and pods, settled and running.

        Where the controllers are somebody else's, who would make the same pods meanwhile,
        only what nobody owns is installed: wait until it is ready.
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
            AlreadyStarted: For the second time.
        """
        if self._world is not None:
            raise AlreadyStarted("the cluster")
        clients = self._clients()
        manager = Manager(
            clients[Agent.CONTROLLERS],
            options=ManagerOptions(
                component="simulator",
                freeze_caches=self.options.nodes * self.options.pods_per_node >= _WORTH_FREEZING,
            ),
            clock=self._clock,
        )
        self._world = SimulatorContext(manager, clients, self.options, self._clock, self._stop)
        self._install(self._world)
        self._threads.start("manager", lambda: manager.run(self._stop))

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """Wait until every cache is filled and every workload has what it wants.

        In virtual time it moves the clock, no further than needed.

        Args:
            timeout: Longest wait in seconds; `None` waits without limit.

        Returns:
            False when the time passed, or the cluster was stopped, first; in virtual
            time also when nothing is under way that could change it.

        Raises:
            NotStarted: There is nothing to wait for.
            ThreadCrashed: The manager of the controllers has failed.
        """
        if self._world is None:
            raise NotStarted("the cluster")
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while not self._stop.is_set():
            self._threads.raise_failure()
            if isinstance(self._clock, FakeClock):
                self._clock.settle()
            began = self._clock.monotonic()
            waiting_for = missing_for_readiness(self._world, self._server)
            if not waiting_for:
                return True
            if not self._pause(began, deadline):
                _log.warning("cluster_not_ready", waiting_for=waiting_for)
                return False
        return False

    def stop(self) -> None:
        """Stop the controllers and wait for their threads. Harmless when repeated."""
        self._stop.stop("the cluster is stopped")
        if not self._threads.join(_STOP_TIMEOUT):
            _log.error("cluster_threads_left", threads=self._threads.running())
        self._cleanup.close()

    def _pause(self, began: float, deadline: float | None) -> bool:
        """Wait before the next look; False if there is to be none."""
        now = self._clock.monotonic()
        left = math.inf if deadline is None else deadline - now
        if left <= 0:
            return False
        if not isinstance(self._clock, FakeClock):
            # A look at a large cluster takes a while: no more than half the time is spent so.
            self._stop.wait(max(_LOOK_PERIOD, now - began))
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
