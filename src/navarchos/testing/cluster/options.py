"""What a simulated cluster is made of, and how long things take in it."""

import hashlib
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from navarchos.errors import ConfigError

__all__ = ["PREFIX", "Agent", "ClusterOptions", "Durations", "Span", "is_simulator"]


@dataclass(frozen=True, slots=True)
class Span:
    """A duration somewhere between two bounds, in simulated seconds."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The size and the pace of a cluster.

    Attributes:
        nodes: How many nodes; one of them is named `important-node`.
        pods_per_node: Mean number of pods on a node, those of the DaemonSet and
            the mirror pods included; at least one workload pod per node is made.
        speed: Simulated seconds per second. Every simulated duration is divided
            by it; requests take what they take.
        seed: Same seed, same cluster and same durations by object name.
        terminate_label: A node that bears this label is given back: the cloud
            deletes the machine and boots another one. Empty turns that off.
        bare_pods: Pods without a controller, in namespace `default`.
        late_binding_tolerance: For so many (real) seconds after a cordon a pod
            may still be bound to the node: a scheduler decides on its cache.
        pod_start: From binding to Ready.
        pod_termination: From the request to terminate to the end, never longer
            than the grace period.
        pod_quarantine: How long a pod may name a node that does not exist.
        job_pod_run: How long a pod of a Job runs until it succeeds.
        machine_termination: From the label to the deletion of the node.
        machine_boot: From that deletion to the replacement's registration.
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
    """Simulated durations as real seconds. Pure: the same key, the same draw."""

    def __init__(self, *, speed: float, seed: int) -> None:
        self._speed = speed
        self._seed = seed

    def scaled(self, simulated: float) -> float:
        """Return how many real seconds `simulated` ones take."""
        return simulated / self._speed

    def draw(self, span: Span, key: str, *, limit: float | None = None) -> float:
        """Return a duration within `span`, chosen by `key`, in real seconds.

        Args:
            span: The bounds.
            key: What the duration is for, such as `start/shop/web-1`.
            limit: No more than so many simulated seconds.
        """
        # Not `hash()`: that one differs from process to process.
        digest = hashlib.blake2b(f"{self._seed}/{key}".encode(), digest_size=4).digest()
        share = int.from_bytes(digest) / 0xFFFF_FFFF
        drawn = span.low + share * (span.high - span.low)
        return self.scaled(drawn if limit is None else min(drawn, limit))


PREFIX: Final = "navarchos-simulator/"
"""The user agent of every request of the simulator begins like this."""


class Agent(StrEnum):
    """A component, as its requests name it.

    `CONTROLLERS` are those of workloads, budgets and node taints, and the collector of
    pods whose node is gone.
    """

    CONTROLLERS = PREFIX + "controller-manager"
    SCHEDULER = PREFIX + "scheduler"
    KUBELET = PREFIX + "kubelet"
    CLOUD = PREFIX + "cloud"


def is_simulator(user_agent: str) -> bool:
    """Tell whether a request came from the simulator itself."""
    return user_agent.startswith(PREFIX)
