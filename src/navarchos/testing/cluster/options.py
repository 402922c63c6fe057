"""The options of a simulated cluster, its durations, and its components' user agents."""

import hashlib
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from navarchos.errors import ConfigError

__all__ = ["PREFIX", "Agent", "ClusterOptions", "Durations", "Span", "is_simulator"]


@dataclass(frozen=True, slots=True)
class Span:
    """A range of durations, in simulated seconds."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The size and the speed of a cluster.

    Attributes:
        nodes: Number of nodes; one of them is named `important-node`.
        pods_per_node: Mean number of pods per node, including the DaemonSet's pod and the
            mirror pod; every node has at least one workload pod.
        speed: Simulated seconds per real second. All simulated durations are divided by
            it; requests are not accelerated.
        seed: The same seed gives the same cluster and the same durations by object name.
        terminate_label: The cloud deletes the machine of a node with this label and boots
            another one. Empty switches this off.
        bare_pods: Number of pods without a controller, in namespace `default`.
        late_binding_tolerance: Real seconds after a cordon during which a pod may still be
            bound to the node, because a scheduler decides on its cache.
        pod_start: From binding to Ready.
        pod_termination: From the deletion request to the end, at most the grace period.
        pod_quarantine: How long a pod of a missing node stays before it is collected.
        job_pod_run: How long a pod of a Job runs until it succeeds.
        machine_termination: From the label to the deletion of the node.
        machine_boot: From the deletion of the node to the registration of its replacement.
    """

    nodes: int = 12
    pods_per_node: int = 8
    speed: float = 20.0
    seed: int = 0
    terminate_label: str = ""
    bare_pods: int = 0
    late_binding_tolerance: float = 5.0
    pod_start: Span = Span(2.0, 4.0)
    pod_termination: Span = Span(1.0, 6.0)
    pod_quarantine: Span = Span(4.0, 4.0)
    job_pod_run: Span = Span(600.0, 900.0)
    machine_termination: Span = Span(8.0, 12.0)
    machine_boot: Span = Span(35.0, 45.0)

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ConfigError("nodes", self.nodes, "a cluster must have at least 1 node")
        if self.pods_per_node < 1:
            raise ConfigError("pods_per_node", self.pods_per_node, "it must be 1 or more")
        if not (self.speed > 0 and math.isfinite(self.speed)):
            raise ConfigError("speed", self.speed, "it must be a number above 0")
        if self.bare_pods < 0:
            raise ConfigError("bare_pods", self.bare_pods, "it must not be negative")


class Durations:
    """Simulated durations in real seconds. The same key always gives the same duration."""

    def __init__(self, *, speed: float, seed: int) -> None:
        self._speed = speed
        self._seed = seed

    def scaled(self, simulated: float) -> float:
        """Return the real seconds of a number of simulated seconds."""
        return simulated / self._speed

    def draw(self, span: Span, key: str, *, limit: float | None = None) -> float:
        """Return a duration within `span`, determined by `key`, in real seconds.

        Args:
            span: The range.
            key: The purpose of the duration, such as `start/shop/web-1`.
            limit: The maximum, in simulated seconds.
        """
        # `hash()` would differ from process to process.
        digest = hashlib.blake2b(f"{self._seed}/{key}".encode(), digest_size=4).digest()
        share = int.from_bytes(digest) / 0xFFFF_FFFF
        drawn = span.low + share * (span.high - span.low)
        return self.scaled(drawn if limit is None else min(drawn, limit))


PREFIX: Final = "navarchos-simulator/"
"""The prefix of the simulator's user agents."""


class Agent(StrEnum):
    """A component of the simulator, with the user agent of its requests.

    `CONTROLLERS` are the controllers of workloads, budgets and node taints, and the
    collector of pods whose node does not exist.
    """

    CONTROLLERS = PREFIX + "controller-manager"
    SCHEDULER = PREFIX + "scheduler"
    KUBELET = PREFIX + "kubelet"
    CLOUD = PREFIX + "cloud"


def is_simulator(user_agent: str) -> bool:
    """Return whether a request was sent by the simulator."""
    return user_agent.startswith(PREFIX)
