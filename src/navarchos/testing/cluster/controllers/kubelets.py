"""The kubelets of all nodes, and the collector of pods whose node does not exist.

One controller serves all nodes: the delays of starting, finishing and terminating pods
are delays of its work queue, so that no node needs a thread.
"""

import itertools
import threading
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address
from typing import Final, assert_never

from navarchos.client import Conflict, NotFound, PatchType, ignore_already_exists
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster import kinds, pod_lifecycle, pods
from navarchos.testing.cluster.context import BY_NODE, SimulatorContext
from navarchos.testing.cluster.options import Agent, Span

__all__ = ["Kubelets", "Serves", "StaticPods", "install"]

Serves = Callable[[kinds.Node], bool]
"""Returns whether the simulator plays the kubelet of a node; other nodes have another one."""

_FIRST_POD_ADDRESS: Final = int(IPv4Address("100.96.0.1"))


class Kubelets(Reconciler):
    """Starts and ends pods in simulated time."""

    def __init__(self, context: SimulatorContext, serves: Serves | None, *, collects: bool) -> None:
        self._context = context
        self._serves = serves
        self._collects = collects
        self._pods = context.writer(Agent.KUBELET, kinds.PODS)
        self._timers: pod_lifecycle.PodStageTimers[Request] = pod_lifecycle.PodStageTimers()
        self._addresses_lock = threading.Lock()
        self._addresses = itertools.count(_FIRST_POD_ADDRESS)  # guarded by _addresses_lock

    def reconcile(self, request: Request) -> Result:
        """Carry out the due stage of one pod, or requeue the pod until its due time."""
        pod = self._context.pods.lister.find(request.name, request.namespace)
        stage = None if pod is None else self._stage(pod)
        if pod is None or stage is None:
            self._timers.forget(request)
            return DONE
        now = self._context.clock.monotonic()
        at = now + self._duration(pod, stage)
        left = self._timers.due(request, pod.metadata.uid, stage, at) - now
        if left > 0:
            return Result(requeue_after=left)
        self._timers.forget(request)
        self._act(pod, stage)
        return DONE

    def requests_for(self, pod: kinds.Pod) -> Iterable[Request]:
        """Map a pod to itself if it has a next stage."""
        if self._stage(pod) is not None:
            yield Request(pod.metadata.namespace, pod.metadata.name)

    def requests_on(self, node: kinds.Node) -> Iterable[Request]:
        """Map an added or deleted node to its pods."""
        for pod in self._context.pods.lister.by_index(BY_NODE, node.metadata.name):
            yield from self.requests_for(pod)

    def _stage(self, pod: kinds.Pod) -> pod_lifecycle.PodStage | None:
        node = self._context.nodes.lister.find(pod.spec.node_name)
        if node is None and not self._collects:
            return None
        if node is not None and self._serves is not None and not self._serves(node):
            return None
        return pod_lifecycle.next_stage(pod, node_exists=node is not None)

    def _duration(self, pod: kinds.Pod, stage: pod_lifecycle.PodStage) -> float:
        options, grace = self._context.options, pod.metadata.deletion_grace_period_seconds
        spans: dict[pod_lifecycle.PodStage, Span] = {
            pod_lifecycle.PodStage.START: options.pod_start,
            pod_lifecycle.PodStage.FINISH: options.job_pod_run,
            pod_lifecycle.PodStage.TERMINATE: options.pod_termination,
            pod_lifecycle.PodStage.SYNC: Span(0.0, 0.0),
            pod_lifecycle.PodStage.COLLECT: options.pod_quarantine,
        }
        limit = grace if stage is pod_lifecycle.PodStage.TERMINATE else None
        key = f"{stage}/{pod.metadata.namespace}/{pod.metadata.name}"
        span = pod_lifecycle.annotated_span(pod, stage) or spans[stage]
        return self._context.durations.draw(span, key, limit=limit)

    def _act(self, pod: kinds.Pod, stage: pod_lifecycle.PodStage) -> None:
        try:
            match stage:
                case pod_lifecycle.PodStage.START:
                    self._start(pod)
                case pod_lifecycle.PodStage.FINISH:
                    self._finish(pod)
                case pod_lifecycle.PodStage.SYNC:
                    self._sync_readiness(pod)
                case pod_lifecycle.PodStage.TERMINATE | pod_lifecycle.PodStage.COLLECT:
                    self._remove(pod)
                case _:
                    assert_never(stage)
        except (NotFound, Conflict):
            # The pod was deleted, or replaced by another one of the same name.
            return

    def _start(self, pod: kinds.Pod) -> None:
        with self._addresses_lock:
            address = str(IPv4Address(next(self._addresses)))
        node = self._context.nodes.lister.find(pod.spec.node_name)
        host = node.internal_address if node is not None else ""
        now = self._context.clock.now()
        status = pods.running_status(pod, host_ip=host, pod_ip=address, at=now)
        if not pod.spec.readiness_gates:
            self._write_status(pod, status)
            return
        others = [each for each in status["conditions"] if each["type"] != "Ready"]
        status["conditions"] = [*others, pods.readiness_condition(pod, at=now)]
        self._write_status(pod, status, PatchType.STRATEGIC)

    def _finish(self, pod: kinds.Pod) -> None:
        status = pods.finished_status(pod.spec.containers, at=self._context.clock.now())
        self._write_status(pod, status)

    def _sync_readiness(self, pod: kinds.Pod) -> None:
        ready = pods.readiness_condition(pod, at=self._context.clock.now())
        # The conditions of the gates belong to other programs.
        self._write_status(pod, {"conditions": [ready]}, PatchType.STRATEGIC)

    def _write_status(
        self, pod: kinds.Pod, status: dict[str, object], patch: PatchType = PatchType.MERGE
    ) -> None:
        metadata = pod.metadata
        written = self._pods.patch(
            metadata.name,
            {"status": status},
            metadata.namespace,
            type=patch,
            subresource="status",
            uid=metadata.uid,
        )
        self._context.pods.observe_write(written)

    def _remove(self, pod: kinds.Pod) -> None:
        """Remove the pod: its containers have ended, or its node does not exist."""
        metadata = pod.metadata
        self._pods.delete(
            metadata.name, metadata.namespace, uid=metadata.uid, grace_period_seconds=0
        )


class StaticPods(Reconciler):
    """Creates the mirror pod of each node's static pod, as its kubelet does."""

    def __init__(self, context: SimulatorContext, serves: Serves | None) -> None:
        self._context = context
        self._serves = serves
        self._pods = context.writer(Agent.KUBELET, kinds.PODS)

    def reconcile(self, request: Request) -> Result:
        """Create the mirror pod of one node if it is missing."""
        node = self._context.nodes.lister.find(request.name)
        if node is None or node.metadata.deletion_timestamp is not None:
            return DONE
        if self._serves is not None and not self._serves(node):
            return DONE
        pod = pods.mirror_pod(node.metadata.name, node.metadata.uid)
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if self._context.pods.lister.find(name, namespace) is None:
            with ignore_already_exists():
                self._context.pods.observe_write(self._pods.create(pod, namespace))
        return DONE

    def requests_for(self, pod: kinds.Pod) -> Iterable[Request]:
        """Map a mirror pod to its node, so that a deleted one is created again."""
        owner = pod.owner
        if owner is not None and owner.kind == "Node":
            yield Request("", owner.name)


def install(
    context: SimulatorContext, *, serves: Serves | None = None, collects: bool = True
) -> None:
    """Add both controllers to the manager.

    Args:
        context: Caches, clients and settings.
        serves: Selects the nodes of the simulator; all nodes by default.
        collects: Whether to collect pods whose node does not exist. Use `False` if the
            cluster has another collector.
    """
    kubelets = Kubelets(context, serves, collects=collects)
    static_pods = StaticPods(context, serves)
    (
        Builder(
            context.manager, "kubelet", options=context.manager.options.controllers_with(workers=4)
        )
        .watches(kinds.PODS, map=kubelets.requests_for)
        .watches(kinds.NODES, map=kubelets.requests_on)
        .build(kubelets)
    )
    (
        Builder(context.manager, "static-pods")
        .for_(kinds.NODES)
        .watches(kinds.PODS, map=static_pods.requests_for)
        .build(static_pods)
    )
