"""The scheduler: binds pods that have no node."""

from collections.abc import Iterable
from typing import Final

from navarchos.client import ApiError, Conflict, NotFound
from navarchos.informers import HandlerOptions, Tombstone
from navarchos.runtime import DONE, Builder, ControllerOptions, Reconciler, Request, Result
from navarchos.testing.cluster.context import SimulatorContext
from navarchos.testing.cluster.kinds import PODS, Node, Pod
from navarchos.testing.cluster.options import Agent
from navarchos.testing.cluster.placement import Placement
from navarchos.testing.cluster.pods import unschedulable_status

__all__ = ["PodScheduler", "install", "is_waiting"]

_RETRY_AFTER: Final = 0.5
"""Seconds until an unschedulable pod is tried again."""


class PodScheduler(Reconciler):
    """Binds pods to nodes that `Placement` selects.

    Separate event handlers update the placement, independent of the controller's queue, so
    that each change of a pod or node is applied exactly once and in order.
    """

    def __init__(self, context: SimulatorContext) -> None:
        self._context = context
        self._pods = context.writer(Agent.SCHEDULER, PODS)
        self._placement = Placement()
        placement = self._placement
        self._feeds = (
            context.nodes.add_handler(
                options=HandlerOptions(name="scheduler-books"),
                on_add=lambda node, _initial: placement.set_node(node),
                on_update=lambda _old, node: placement.set_node(node),
                on_delete=lambda gone: placement.remove_node(_name_of(gone)),
            ),
            context.pods.add_handler(
                options=HandlerOptions(name="scheduler-books"),
                on_add=lambda pod, _initial: placement.set_pod(pod),
                on_update=self._pod_changed,
                on_delete=self._pod_gone,
            ),
        )

    def reconcile(self, request: Request) -> Result:
        """Find a node for one pod."""
        if not all(feed.has_synced() for feed in self._feeds):
            return Result(requeue_after=0.05)
        pod = self._context.pods.lister.find(request.name, request.namespace)
        if pod is None or not is_waiting(pod):
            return DONE
        node = self._placement.place(pod)
        if node is None:
            self._report_unschedulable(pod)
            return Result(requeue_after=_RETRY_AFTER)
        self._bind(pod, node)
        return DONE

    def requests_for(self, pod: Pod) -> Iterable[Request]:
        """Map a pod to itself while it has no node."""
        if is_waiting(pod):
            yield Request(pod.metadata.namespace, pod.metadata.name)

    def _bind(self, pod: Pod, node: str) -> None:
        metadata = pod.metadata
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            self._pods.create_subresource(metadata.name, "binding", binding, metadata.namespace)
        except (NotFound, Conflict):
            # The pod is deleted, terminating or already bound; its next event updates this.
            self._placement.remove_pod(metadata.uid)
        except ApiError:
            self._placement.remove_pod(metadata.uid)
            raise

    def _report_unschedulable(self, pod: Pod) -> None:
        if any(c.type == "PodScheduled" for c in pod.status.conditions):
            return
        count = len(self._context.nodes.store)
        message = f"0/{count} nodes are available: none is ready, untainted and has room."
        status = unschedulable_status(message, at=self._context.clock.now())
        metadata = pod.metadata
        try:
            written = self._pods.patch(
                metadata.name,
                {"status": status},
                metadata.namespace,
                subresource="status",
                uid=metadata.uid,
            )
        except (NotFound, Conflict):
            return  # deleted, or replaced by another pod of the same name
        self._context.pods.observe_write(written)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if old.metadata.uid != new.metadata.uid:
            self._placement.remove_pod(old.metadata.uid)
        self._placement.set_pod(new)

    def _pod_gone(self, gone: Pod | Tombstone[Pod]) -> None:
        pod = gone.obj if isinstance(gone, Tombstone) else gone
        if pod is not None:
            self._placement.remove_pod(pod.metadata.uid)


def is_waiting(pod: Pod) -> bool:
    """Return whether a pod waits for a node."""
    return not pod.spec.node_name and pod.is_active


def _name_of(gone: Node | Tombstone[Node]) -> str:
    return gone.key if isinstance(gone, Tombstone) else gone.metadata.name


def install(context: SimulatorContext) -> None:
    """Add the controller to the manager."""
    reconciler = PodScheduler(context)
    (
        Builder(context.manager, "scheduler", options=ControllerOptions(workers=2))
        .watches(PODS, map=reconciler.requests_for)
        .build(reconciler)
    )
