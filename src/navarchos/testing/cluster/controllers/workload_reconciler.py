"""The common base of workload controllers: read the workload, sync its pods, write its status.

The subclasses decide which pods are missing or surplus, and compute the status.
"""

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from navarchos.client import Conflict, NotFound, Resource, ignore_terminating_namespace
from navarchos.informers import SharedInformer
from navarchos.meta import Object
from navarchos.runtime import DONE, Reconciler, Request, Result
from navarchos.testing.cluster import kinds, options, pods
from navarchos.testing.cluster.context import STATUS_DELAY, Debouncer, SimulatorContext, terminating

__all__ = ["PodControl", "WorkloadReconciler", "owner_of"]

W = TypeVar("W", bound=Object)


class PodControl:
    """Creates and deletes the pods of workloads (upstream's `RealPodControl`)."""

    def __init__(self, context: SimulatorContext) -> None:
        self._cache = context.pods
        self._pods = context.writer(options.Agent.CONTROLLERS, kinds.PODS)

    def create(self, pod: Mapping[str, Any]) -> None:
        """Create a pod and add it to the cache."""
        # The next reconcile may run before the watch event and must see this pod.
        self._cache.observe_write(self._pods.create(pod, pod["metadata"]["namespace"]))

    def delete(self, pod: kinds.Pod) -> None:
        """Delete a pod unless it is already deleted or replaced by one of the same name."""
        metadata = pod.metadata
        with suppress(NotFound, Conflict):
            self._pods.delete(metadata.name, metadata.namespace, uid=metadata.uid)


class WorkloadReconciler(Reconciler, Generic[W]):
    """Syncs a workload's pods, then writes its status after a short delay.

    Errors of creating pods in a terminating namespace are ignored, because the workload is
    deleted as well (upstream forgets the key).

    Args:
        context: Caches, clients and settings.
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
        self._writer = context.writer(options.Agent.CONTROLLERS, resource)
        self._debouncer = Debouncer(STATUS_DELAY, context.clock)

    @abstractmethod
    def sync(self, found: W) -> None:
        """Create missing objects and delete surplus ones."""

    @abstractmethod
    def status_of(self, found: W) -> Mapping[str, object] | None:
        """Return the patch for the current status; `None` if the status is up to date."""

    def reconcile(self, request: Request) -> Result:
        """Bring one workload a step forward."""
        found = self._cache.lister.find(request.name, request.namespace)
        if found is None or terminating(found):
            self._debouncer.clear(request)
            return DONE
        with ignore_terminating_namespace():
            self.sync(found)
        return self._show(request, self.status_of(found))

    def owner(self, found: W) -> pods.Owner:
        """Return the owner reference of the workload."""
        return owner_of(self._resource, found)

    def _show(self, request: Request, body: Mapping[str, object] | None) -> Result:
        if body is None:
            self._debouncer.clear(request)
            return DONE
        if left := self._debouncer.due_in(request):
            return Result(requeue_after=left)
        self._debouncer.clear(request)
        with suppress(NotFound):
            written = self._writer.patch(
                request.name, body, request.namespace, subresource="status"
            )
            self._cache.observe_write(written)
        return DONE


def owner_of(resource: Resource[Any], found: Object) -> pods.Owner:
    """Return the owner reference of an object."""
    metadata = found.metadata
    return pods.Owner(resource.api_version, resource.kind, metadata.name, metadata.uid)
