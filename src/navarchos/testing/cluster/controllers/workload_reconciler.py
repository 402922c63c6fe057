"""The frame of a workload's controller: find it, keep it up, show its counts.

What differs from kind to kind is which objects are missing or too many, and which
counts there are.
"""

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from navarchos.client import Conflict, NotFound, Resource, ignore_terminating_namespace
from navarchos.informers import SharedInformer
from navarchos.meta import Object
from navarchos.runtime import DONE, Reconciler, Request, Result
from navarchos.testing.cluster.context import STATUS_DELAY, Debouncer, SimulatorContext, terminating
from navarchos.testing.cluster.kinds import PODS, Pod
from navarchos.testing.cluster.options import Agent
from navarchos.testing.cluster.pods import Owner

__all__ = ["PodControl", "WorkloadReconciler", "owner_of"]

W = TypeVar("W", bound=Object)


class PodControl:
    """Creates and deletes the pods of workloads (upstream's `RealPodControl`)."""

    def __init__(self, context: SimulatorContext) -> None:
        self._cache = context.pods
        self._pods = context.writer(Agent.CONTROLLERS, PODS)

    def create(self, pod: Mapping[str, Any]) -> None:
        """Create a pod; it is in the cache afterwards."""
        # The next pass may come before the watch: it has to see this pod (RT-32).
        self._cache.observe_write(self._pods.create(pod, pod["metadata"]["namespace"]))

    def delete(self, pod: Pod) -> None:
        """Ask for the deletion of a pod, unless it is gone, or another one by now."""
        metadata = pod.metadata
        with suppress(NotFound, Conflict):
            self._pods.delete(metadata.name, metadata.namespace, uid=metadata.uid)


class WorkloadReconciler(Reconciler, Generic[W]):
    """Brings a workload a step forward, then writes its status once it has settled.

    In a namespace that is being terminated nothing can be created, and nobody needs
    to hear of it: its end takes the workload as well (upstream forgets the key).

    Args:
        world: Caches and writers.
        resource: The kind.
        cache: Its cache.
    """

    def __init__(
        self, context: SimulatorContext, resource: Resource[W], cache: SharedInformer[W]
    ) -> None:
        self.context = context
        self.pods = PodControl(context)
        self._resource = resource
        self._cache = cache
        self._writer = context.writer(Agent.CONTROLLERS, resource)
        self._patience = Debouncer(STATUS_DELAY, context.clock)

    @abstractmethod
    def sync(self, found: W) -> None:
        """Create what is missing and delete what is too much."""

    @abstractmethod
    def status_of(self, found: W) -> Mapping[str, object] | None:
        """Return the patch that shows how it is now; `None` if that is shown already."""

    def reconcile(self, request: Request) -> Result:
        """Bring one workload a step forward."""
        found = self._cache.lister.find(request.name, request.namespace)
        if found is None or terminating(found):
            self._patience.over(request)
            return DONE
        with ignore_terminating_namespace():
            self.sync(found)
        return self._show(request, self.status_of(found))

    def owner(self, found: W) -> Owner:
        """Return the workload as the owner of what it creates."""
        return owner_of(self._resource, found)

    def _show(self, request: Request, body: Mapping[str, object] | None) -> Result:
        if body is None:
            self._patience.over(request)
            return DONE
        if left := self._patience.left(request):
            return Result(requeue_after=left)
        self._patience.over(request)
        with suppress(NotFound):
            written = self._writer.patch(
                request.name, body, request.namespace, subresource="status"
            )
            self._cache.observe_write(written)
        return DONE


def owner_of(resource: Resource[Any], found: Object) -> Owner:
    """Return an object as the owner of what it creates."""
    metadata = found.metadata
    return Owner(resource.api_version, resource.kind, metadata.name, metadata.uid)
