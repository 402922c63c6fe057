"""The amount of work of each row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["FULL", "QUICK", "Sizes"]


@dataclass(frozen=True)
class Sizes:
    """The sizes of one run of the report.

    Attributes:
        nodes: Nodes of the filled cluster.
        pods: Pods of the filled cluster.
        rounds: How often each contender runs.
        slow_rounds: The same for rows in which a peer takes half a minute.
        kopf_pods: Pods in the cluster that kopf indexes.
        rate: Changes per second for rows that follow a watch.
        follow_seconds: How long these rows run.
        keys: Keys that go through a queue.
        delayed: Keys that wait in a queue.
        idle: Nodes and pods of the clusters for the operator at rest, growing.
        idle_seconds: How long it is measured.
        rollout_nodes: Nodes that are replaced.
        rollout_pods_per_node: Pods on each.
        rollout_concurrent: Nodes that are replaced at a time.
        grace_seconds: How long each pod takes to terminate; the default of Kubernetes is 30.
        scale_rounds: How often each point of a plot is measured.
        scale_pods: Pods in a cache, growing.
        scale_nodes: Nodes in a cache.
        scale_watchers: Watches of a process, one for each node.
        scale_handlers: Handlers of an informer.
    """

    nodes: int
    pods: int
    rounds: int
    slow_rounds: int
    kopf_pods: int
    rate: float
    follow_seconds: float
    keys: int
    delayed: int
    idle: Sequence[tuple[int, int]]
    idle_seconds: float
    rollout_nodes: int
    rollout_pods_per_node: int
    rollout_concurrent: int
    grace_seconds: float
    scale_rounds: int
    scale_pods: Sequence[int]
    scale_nodes: Sequence[int]
    scale_watchers: Sequence[int]
    scale_handlers: Sequence[int]


FULL: Final = Sizes(
    nodes=1_000,
    pods=20_000,
    rounds=5,
    slow_rounds=3,
    kopf_pods=2_000,
    rate=300.0,
    follow_seconds=40.0,
    keys=500_000,
    delayed=1_000_000,
    idle=((100, 1_000), (1_000, 20_000), (5_000, 150_000)),
    idle_seconds=30.0,
    rollout_nodes=1_000,
    rollout_pods_per_node=20,
    rollout_concurrent=50,
    grace_seconds=30.0,
    scale_rounds=3,
    scale_pods=(1_000, 5_000, 20_000, 50_000, 100_000),
    scale_nodes=(100, 500, 1_000, 2_000),
    scale_watchers=(1, 10, 25, 50, 100),
    scale_handlers=(1, 2, 4, 8, 16),
)
QUICK: Final = Sizes(
    nodes=100,
    pods=2_000,
    rounds=3,
    slow_rounds=1,
    kopf_pods=500,
    rate=100.0,
    follow_seconds=4.0,
    keys=50_000,
    delayed=100_000,
    idle=((50, 500), (200, 5_000)),
    idle_seconds=10.0,
    rollout_nodes=40,
    rollout_pods_per_node=10,
    rollout_concurrent=10,
    grace_seconds=5.0,
    scale_rounds=1,
    scale_pods=(500, 1_000, 2_000),
    scale_nodes=(50, 100, 200),
    scale_watchers=(1, 5, 10),
    scale_handlers=(1, 2, 4),
)
