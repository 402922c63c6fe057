"""A kind as the operator uses it: reads that see own writes, and narrow writes."""

from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from navarchos.client import Client, Conflict, NotFound, Propagation, Resource
from navarchos.client.patches import merge_diff
from navarchos.informers import SharedInformer
from navarchos.meta import Object, controller_of
from navarchos.operator.api.v1alpha1 import plain_status
from navarchos.runtime import CachedClient

__all__ = ["OWNER_INDEX", "STALE", "Kind", "all_of", "index_by_owner"]

T = TypeVar("T", bound=Object)

OWNER_INDEX: Final = "owner"
"""The index by the uid of the controller."""


STALE: Final = (Conflict, NotFound)
"""What a write raises when the world has moved on since it was read: read again."""


def all_of(client: Client, resource: Resource[T]) -> Sequence[T]:
    """Return all objects of a kind, as the server has them now.

    Raises:
        DecodeError: One of them cannot be read: to leave it out would be a wrong answer.
    """
    found = client.resource(resource).list()
    if found.failures:
        raise found.failures[0]
    return found.items


def index_by_owner(obj: Object) -> tuple[str, ...]:
    """Return the uid of the object's controller, if it has one."""
    owner = controller_of(obj.metadata)
    return (owner.uid,) if owner is not None else ()


class Kind(Generic[T]):
    """The objects of one cluster-scoped kind.

    Promises: a read from the cache is no older than the last write of this process
    to that object (OP-21); a write that depends on what was read carries its
    resourceVersion or uid and raises `Conflict` when that is no longer true.

    Threads: safe from any thread.
    """

    def __init__(self, cached: CachedClient[T]) -> None:
        self._cached = cached

    @property
    def informer(self) -> SharedInformer[T]:
        """The cache behind the reads."""
        return self._cached.informer

    @property
    def resource(self) -> Resource[T]:
        """The kind's name on the wire."""
        return self._cached.resource

    def find(self, name: str) -> T | None:
        """Return the cached object, or `None`."""
        return self._cached.lister.find(name)

    def all(self) -> list[T]:
        """Return all cached objects."""
        return self._cached.lister.list()

    def by_index(self, index: str, value: str) -> list[T]:
        """Return the cached objects under a value of an index."""
        return self._cached.lister.by_index(index, value)

    def live(self, name: str) -> T | None:
        """Return the object as the server has it now, or `None`. One request."""
        try:
            return self._cached.live.get(name)
        except NotFound:
            return None

    def create(self, manifest: Mapping[str, object]) -> T:
        """Create an object.

        Raises:
            AlreadyExists: There is one of that name.
        """
        return self._cached.create(manifest)

    def patch(self, obj: T, body: Mapping[str, object]) -> T:
        """Change an object that has not changed since it was read.

        Raises:
            Conflict: It has changed.
            NotFound: It is gone.
        """
        version = obj.metadata.resource_version
        return self._cached.patch(obj.metadata.name, body, resource_version=version)

    def patch_any_version(self, obj: T, body: Mapping[str, object]) -> T:
        """Change an object, as long as it is the same one by uid.

        For changes that do not depend on what was read, of objects that others
        change often.

        Raises:
            Conflict: There is another object under that name.
            NotFound: It is gone.
        """
        return self._cached.patch(obj.metadata.name, body, uid=obj.metadata.uid)

    def save_status(self, obj: T, before: msgspec.Struct, after: msgspec.Struct) -> T:
        """Write what differs between two states of the object's status.

        No difference is no request.

        Raises:
            Conflict: The object has changed since it was read.
            NotFound: It is gone.
        """
        if before == after:
            return obj
        difference = merge_diff(plain_status(before), plain_status(after))
        if not difference:
            return obj
        return self._cached.patch(
            obj.metadata.name,
            {"status": difference},
            subresource="status",
            resource_version=obj.metadata.resource_version,
        )

    def delete(self, obj: T) -> None:
        """Ask for the deletion of this very object; one that is gone is fine."""
        try:
            self._cached.live.delete(
                obj.metadata.name, uid=obj.metadata.uid, propagation=Propagation.BACKGROUND
            )
        except NotFound:
            return
        except Conflict:
            # Another object by now: what we meant is gone.
            return
