"""Reads from the cache, writes to the server, and never an older state than one's own."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from navarchos.client import PatchType, Propagation, Resource, ResourceClient
from navarchos.informers import Lister, SharedInformer

__all__ = ["CachedClient"]

T = TypeVar("T")


class CachedClient(Generic[T]):
    """One kind, as a reconciler uses it.

    Promises: `lister` shows what this object wrote from the moment the write
    returned, until the watch has caught up with it (RT-32).

    Does not promise: the server's present state; `live` asks for that.

    Threads: safe from any thread.
    """

    def __init__(self, client: ResourceClient[T], informer: SharedInformer[T]) -> None:
        self.live = client
        self.informer = informer

    @property
    def resource(self) -> Resource[T]:
        """The kind."""
        return self.informer.resource

    @property
    def lister(self) -> Lister[T]:
        """The cache, own writes included."""
        return self.informer.lister

    def create(self, obj: T | Mapping[str, object], namespace: str = "") -> T:
        """Create an object. Raises what `ResourceClient.create` does."""
        return self._observed(self.live.create(obj, namespace))

    def patch(
        self,
        name: str,
        body: Mapping[str, object],
        namespace: str = "",
        *,
        type: PatchType = PatchType.MERGE,  # noqa: A002 - the API's word
        subresource: str = "",
        resource_version: str = "",
        uid: str = "",
    ) -> T:
        """Change an object in place. Raises what `ResourceClient.patch` does."""
        patched = self.live.patch(
            name,
            body,
            namespace,
            type=type,
            subresource=subresource,
            resource_version=resource_version,
            uid=uid,
        )
        return self._observed(patched)

    def replace(
        self,
        name: str,
        body: Mapping[str, object],
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> T:
        """Put a whole object in the place of another.

        Raises what `ResourceClient.replace` does.
        """
        return self._observed(self.live.replace(name, body, namespace, subresource=subresource))

    def delete(
        self,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation | None = None,
    ) -> None:
        """Delete an object, or begin to.

        `lister` no longer shows it, until the watch shows it terminating or made
        anew. Raises what `ResourceClient.delete` does.
        """
        known = self.lister.find(name, namespace)
        self.live.delete(
            name, namespace, uid=uid, resource_version=resource_version, propagation=propagation
        )
        if known is not None:
            self.informer.observe_delete(known)

    def _observed(self, obj: T) -> T:
        self.informer.observe_write(obj)
        return obj
