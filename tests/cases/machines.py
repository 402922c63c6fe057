"""Run the simulator's kubelets and cloud on a real server.

They are written with this framework, so a case with them runs two of its programs against
a real server.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, Self

from tests.cases.manifests import CASE_LABEL
from tests.cases.target import Target

from navarchos.clock import SYSTEM_CLOCK
from navarchos.operator.names import DRAIN_COMPLETED_LABEL
from navarchos.runtime import Manager, ManagerOptions
from navarchos.stopping import StopToken
from navarchos.testing.cluster import ClusterOptions, Span
from navarchos.testing.cluster.context import SimulatorContext
from navarchos.testing.cluster.controllers import cloud, kubelets, node_lifecycle
from navarchos.testing.cluster.kinds import Node
from navarchos.testing.cluster.nodes import Machine
from navarchos.testing.cluster.options import Agent
from navarchos.threads import ThreadGroup

__all__ = ["PACE", "Machines"]

PACE: Final = ClusterOptions(
    speed=1.0,  # pods may state their durations in seconds
    terminate_label=DRAIN_COMPLETED_LABEL,
    pod_start=Span(0.1, 0.2),
    pod_termination=Span(0.1, 0.3),
    pod_quarantine=Span(0.2, 0.2),
    machine_termination=Span(0.4, 0.6),
    machine_boot=Span(1.7, 2.2),
)
"""The speed of the simulator in cases."""

_STOP_TIMEOUT: Final = 20.0


class Machines:
    """Replaces drained nodes and, on request, runs the pods of cases.

    Args:
        target: The cluster.
        machines: The present machines. The cloud replaces each drained one.
        kubelets: Whether the simulator's kubelets run the pods of the nodes of cases.
            No other kubelets may do so then.

    Lifecycle: a context manager; on exit every thread has ended.
    """

    def __init__(self, target: Target, machines: Sequence[Machine], *, kubelets: bool) -> None:
        self._target = target
        self._machines = machines
        self._kubelets = kubelets
        self._stop = StopToken()
        self._threads = ThreadGroup("machines", stop=self._stop)
        self._cleanup = ExitStack()
        self._cloud: cloud.Cloud | None = None

    @property
    def replaced(self) -> int:
        """The number of machines that have been replaced."""
        return self._cloud.replaced if self._cloud is not None else 0

    def __enter__(self) -> Self:
        clients = {agent: self._target.connect(agent.value) for agent in Agent}
        for client in clients.values():
            self._cleanup.callback(client.close)
        options = ManagerOptions(metrics_address="0", health_address="0", component="simulator")
        manager = Manager(clients[Agent.CONTROLLERS], options=options)
        world = SimulatorContext(manager, clients, PACE, SYSTEM_CLOCK, self._stop)
        if self._kubelets:
            kubelets.install(world, serves=_is_of_a_case, collects=False)
            node_lifecycle.install_heartbeats(world, serves=_is_of_a_case)
        self._cloud = cloud.install(world, self._machines)
        self._threads.start("manager", lambda: manager.run(self._stop))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.stop("the case is over")
        joined = self._threads.join(_STOP_TIMEOUT)
        self._cleanup.close()
        assert joined, f"threads left: {self._threads.running()}"
        self._threads.raise_failure()


def _is_of_a_case(node: Node) -> bool:
    """Return whether a node was created by a case and has no kubelet."""
    return CASE_LABEL in node.metadata.labels
