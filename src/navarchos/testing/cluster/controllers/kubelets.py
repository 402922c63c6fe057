"""The kubelets of all nodes, and the collector of pods whose node is gone.

One controller for all: a pod is started, finished and terminated by waiting in a
delaying queue, not in a thread of its node.
"""

import itertools
import threading
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address
from typing import Final

from navarchos.client import Conflict, NotFound, ignore_already_exists
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster.context import BY_NODE, SimulatorContext
from navarchos.testing.cluster.kinds import NODES, PODS, Node, Pod
from navarchos.testing.cluster.options import Agent, Span
from navarchos.testing.cluster.pod_lifecycle import Stage, StageTimers, next_stage, told_span
from navarchos.testing.cluster.pods import finished_status, mirror_pod, running_status

__all__ = ["Kubelets", "Serves", "StaticPods", "install"]

Serves = Callable[[Node], bool]
"""Tells whether a node is the simulator's; others have a kubelet of their own."""

_FIRST_POD_ADDRESS: Final = int(IPv4Address("100.96.0.1"))


class Kubelets(Reconciler):
    """Starts and ends pods in simulated time."""

    def __init__(self, context: SimulatorContext, serves: Serves | None, *, collects: bool) -> None:
        self._world = context
        self._serves = serves
        self._collects = collects
        self._pods = context.writer(Agent.KUBELET, PODS)
        self._timers: StageTimers[Request] = StageTimers()
        self._addresses_lock = threading.Lock()
        self._addresses = itertools.count(_FIRST_POD_ADDRESS)  # guarded by _addresses_lock

    def reconcile(self, request: Request) -> Result:
        """Do what is due for one pod, or wait for it."""
        pod = self._world.pods.lister.find(request.name, request.namespace)
        stage = None if pod is None else self._stage(pod)
        if pod is None or stage is None:
            self._timers.forget(request)
            return DONE
        now = self._world.clock.monotonic()
        at = now + self._duration(pod, stage)
        left = self._timers.due(request, pod.metadata.uid, stage, at) - now
        if left > 0:
            return Result(requeue_after=left)
        self._timers.forget(request)
        self._act(pod, stage)
        return DONE

    def requests_for(self, pod: Pod) -> Iterable[Request]:
        """Map a pod to itself while something is to happen to it."""
        if self._stage(pod) is not None:
            yield Request(pod.metadata.namespace, pod.metadata.name)

    def requests_on(self, node: Node) -> Iterable[Request]:
        """Map a node that came or went to its pods."""
        for pod in self._world.pods.lister.by_index(BY_NODE, node.metadata.name):
            yield from self.requests_for(pod)

    def _stage(self, pod: Pod) -> Stage | None:
        node = self._world.nodes.lister.find(pod.spec.node_name)
        if node is None and not self._collects:
            return None
        if node is not None and self._serves is not None and not self._serves(node):
            return None
        return next_stage(pod, node_exists=node is not None)

    def _duration(self, pod: Pod, stage: Stage) -> float:
        options, grace = self._world.options, pod.metadata.deletion_grace_period_seconds
        spans: dict[Stage, Span] = {
            Stage.START: options.pod_start,
            Stage.FINISH: options.job_pod_run,
            Stage.TERMINATE: options.pod_termination,
            Stage.COLLECT: options.pod_quarantine,
        }
        limit = grace if stage is Stage.TERMINATE else None
        key = f"{stage}/{pod.metadata.namespace}/{pod.metadata.name}"
        span = told_span(pod, stage) or spans[stage]
        return self._world.durations.draw(span, key, limit=limit)

    def _act(self, pod: Pod, stage: Stage) -> None:
        try:
            match stage:
                case Stage.START:
                    self._start(pod)
                case Stage.FINISH:
                    self._finish(pod)
                case _:
                    self._remove(pod)
        except (NotFound, Conflict):
            # Gone, or another pod of that name by now: its events tell the rest.
            return

    def _start(self, pod: Pod) -> None:
        with self._addresses_lock:
            address = str(IPv4Address(next(self._addresses)))
        node = self._world.nodes.lister.find(pod.spec.node_name)
        host = node.internal_address if node is not None else ""
        now = self._world.clock.now()
        self._write_status(pod, running_status(pod, host_ip=host, pod_ip=address, at=now))

    def _finish(self, pod: Pod) -> None:
        status = finished_status(pod.spec.containers, at=self._world.clock.now())
        self._write_status(pod, status)

    def _write_status(self, pod: Pod, status: dict[str, object]) -> None:
        metadata = pod.metadata
        written = self._pods.patch(
            metadata.name,
            {"status": status},
            metadata.namespace,
            subresource="status",
            uid=metadata.uid,
        )
        self._world.pods.observe_write(written)

    def _remove(self, pod: Pod) -> None:
        """Take the object away: the containers have ended, or their machine has."""
        metadata = pod.metadata
        self._pods.delete(
            metadata.name, metadata.namespace, uid=metadata.uid, grace_period_seconds=0
        )


class StaticPods(Reconciler):
    """Shows the static pod of each node, as its kubelet does (a mirror pod)."""

    def __init__(self, context: SimulatorContext, serves: Serves | None) -> None:
        self._world = context
        self._serves = serves
        self._pods = context.writer(Agent.KUBELET, PODS)

    def reconcile(self, request: Request) -> Result:
        """Create the mirror pod of one node if it is missing."""
        node = self._world.nodes.lister.find(request.name)
        if node is None or node.metadata.deletion_timestamp is not None:
            return DONE
        if self._serves is not None and not self._serves(node):
            return DONE
        pod = mirror_pod(node.metadata.name, node.metadata.uid)
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if self._world.pods.lister.find(name, namespace) is None:
            with ignore_already_exists():
                self._world.pods.observe_write(self._pods.create(pod, namespace))
        return DONE

    def requests_for(self, pod: Pod) -> Iterable[Request]:
        """Map a mirror pod to its node, so that it is shown again once it is deleted."""
        owner = pod.owner
        if owner is not None and owner.kind == "Node":
            yield Request("", owner.name)


def install(
    context: SimulatorContext, *, serves: Serves | None = None, collects: bool = True
) -> None:
    """Add both controllers to the manager.

    Args:
        world: Theirs.
        serves: Which nodes are the simulator's; all of them without it.
        collects: Whether pods whose node is gone are collected, too. Leave that out
            where the cluster has a collector of its own.
    """
    kubelets = Kubelets(context, serves, collects=collects)
    static_pods = StaticPods(context, serves)
    (
        Builder(context.manager, "kubelet")
        .watches(PODS, map=kubelets.requests_for)
        .watches(NODES, map=kubelets.requests_on)
        .with_workers(4)
        .build(kubelets)
    )
    (
        Builder(context.manager, "static-pods")
        .for_(NODES)
        .watches(PODS, map=static_pods.requests_for)
        .build(static_pods)
    )
