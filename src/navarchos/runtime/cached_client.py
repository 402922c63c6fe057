"""One way to read and write: reads from the cache, writes to the server."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from navarchos.client import (
    Client,
    Conflict,
    NotFound,
    PatchType,
    Propagation,
    Resource,
    ResourceClient,
    ResourceReader,
    Selector,
)
from navarchos.client.options import ListOptions
from navarchos.errors import NavarchosError
from navarchos.informers import InformerFactory, Lister, SharedInformer
from navarchos.meta import identity_of

__all__ = [
    "OUTDATED_READ",
    "CacheNotCaughtUp",
    "CachedClient",
    "ClientProvider",
    "ObjectReader",
    "ReaderFactory",
    "ServerClient",
    "list_all",
]

T = TypeVar("T")

OUTDATED_READ: Final = (Conflict, NotFound)
"""The errors of a write that was decided on an object that has changed or gone since it was
read. Nothing was written: read again, decide again."""


class CacheNotCaughtUp(NavarchosError):
    """A cache could not be brought up to the server's present state in time.

    Attributes:
        resource: The kind whose cache is behind.
    """

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def __str__(self) -> str:
        return f"the cache of {self.resource} is behind the server; trying again"


class CachedClient(Generic[T]):
    """The client of one kind for a reconciler: cached reads, and writes that reads include.

    Promises: a read from the cache is never older than the last write of this object
    (RT-32). A write that changes an object carries the uid of the object that the caller has
    read, so it never reaches another object of the same name. Writes other than
    `patch_any_version` and `delete` also carry its resourceVersion, and raise `Conflict` if
    the object has changed since.

    Does not promise: the server's present state; `fetch` asks for that.

    Threads: safe from any thread.

    Attributes:
        client: All verbs of the kind, without the cache. Its writes are not shown by reads
            before the watch delivers them.
        informer: The cache.
    """

    def __init__(
        self,
        client: ResourceClient[T],
        informer: SharedInformer[T],
        *,
        timeout: float | None = None,
    ) -> None:
        """Combine a client and a cache.

        Args:
            client: Sends writes, with its defaults (such as the field manager).
            informer: The cache of the same kind.
            timeout: Seconds for each request; `None` is the client's default.
        """
        self.client = client
        self.informer = informer
        self._timeout = timeout

    @property
    def resource(self) -> Resource[T]:
        """The kind."""
        return self.informer.resource

    @property
    def lister(self) -> Lister[T]:
        """The cached objects, including the writes of this process."""
        return self.informer.lister

    # Reads

    def find(self, name: str, namespace: str = "") -> T | None:
        """Return the cached object, or `None`."""
        return self.informer.lister.find(name, namespace)

    def list(self, selector: Selector | None = None, namespace: str = "") -> list[T]:
        """Return the cached objects whose labels match, of one namespace or of all."""
        return self.informer.lister.list(selector, namespace)

    def by_index(self, index: str, value: str) -> Sequence[T]:
        """Return the cached objects under a value of an index."""
        return self.informer.lister.by_index(index, value)

    def fetch(self, name: str, namespace: str = "") -> T | None:
        """Return the object as the server has it now, or `None`. Sends one request."""
        try:
            return self.client.get(name, namespace, timeout=self._timeout)
        except NotFound:
            return None

    # Writes

    def create(self, obj: T | Mapping[str, object], namespace: str = "") -> T:
        """Create an object and return it.

        Raises:
            AlreadyExists: The name is taken.
        """
        return self._observed(self.client.create(obj, namespace, timeout=self._timeout))

    def patch(
        self,
        obj: T,
        body: Mapping[str, object],
        *,
        type: PatchType = PatchType.MERGE,  # noqa: A002 - the API's word
        subresource: str = "",
    ) -> T:
        """Change an object that has not changed since it was read, and return it.

        Raises:
            Conflict: The object has changed; nothing was written.
            NotFound: The object is gone.
        """
        meta = identity_of(obj)
        patched = self.client.patch(
            meta.name,
            body,
            meta.namespace,
            type=type,
            subresource=subresource,
            resource_version=meta.resource_version,
            uid=meta.uid,
            timeout=self._timeout,
        )
        return self._observed(patched)

    def patch_any_version(
        self,
        obj: T,
        body: Mapping[str, object],
        *,
        type: PatchType = PatchType.MERGE,  # noqa: A002 - the API's word
        subresource: str = "",
    ) -> T:
        """Change an object in its current version, and return it.

        For changes that do not depend on the object's other fields, of objects that other
        clients change often.

        Raises:
            Conflict: There is another object under that name; nothing was written.
            NotFound: The object is gone.
        """
        meta = identity_of(obj)
        patched = self.client.patch(
            meta.name,
            body,
            meta.namespace,
            type=type,
            subresource=subresource,
            uid=meta.uid,
            timeout=self._timeout,
        )
        return self._observed(patched)

    def patch_status(self, obj: T, change: Mapping[str, object]) -> T:
        """Merge a change into an object's status and return the object.

        Args:
            obj: The object, as it was read.
            change: The fields of the status that change, such as `merge_diff` returns. If
                empty, nothing is sent and `obj` is returned.

        Raises:
            Conflict: The object has changed since it was read; nothing was written.
            NotFound: The object is gone.
        """
        return self.patch(obj, {"status": change}, subresource="status") if change else obj

    def replace(self, obj: T, body: Mapping[str, object], *, subresource: str = "") -> T:
        """Put a whole object in the place of one that has not changed since it was read.

        Never for a projection: fields that the projection does not list would be lost.

        Raises:
            Conflict: The object has changed; nothing was written.
            NotFound: The object is gone.
        """
        meta = identity_of(obj)
        given = body.get("metadata")
        identity = {"name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version}
        metadata = (given if isinstance(given, dict) else {}) | identity
        replaced = self.client.replace(
            meta.name,
            {**body, "metadata": metadata},
            meta.namespace,
            subresource=subresource,
            timeout=self._timeout,
        )
        return self._observed(replaced)

    def delete(self, obj: T, *, propagation: Propagation | None = None) -> None:
        """Delete this very object; return also if it is gone already.

        Reads show what the server responded, before the watch does: an object with finalizers
        or a grace period as terminating, and any other one no longer.

        Args:
            obj: The object, as it was read. Another object of its name stays.
            propagation: What happens to the objects that it owns; `None` for the server's
                default.
        """
        meta = identity_of(obj)
        try:
            remaining = self.client.delete(
                meta.name,
                meta.namespace,
                uid=meta.uid,
                propagation=propagation,
                timeout=self._timeout,
            )
        except OUTDATED_READ:
            # Gone, or another object has its name by now: the one that was meant is gone.
            return
        # The object that the caller has read may lack a finalizer that it has by now.
        if remaining is None:
            self.informer.observe_delete(obj)
        else:
            self.informer.observe_write(remaining)

    def observe(self, obj: T) -> None:
        """Let reads show an object that `fetch` returned, if the cache is older than that."""
        self.informer.observe_write(obj)

    def _observed(self, obj: T) -> T:
        self.informer.observe_write(obj)
        return obj


class ClientProvider(Protocol):
    """Makes cached clients, as a manager does."""

    def cached_client(self, resource: Resource[T]) -> CachedClient[T]:
        """Return the cached client of a kind."""
        ...


def list_all(client: Client, resource: Resource[T]) -> Sequence[T]:
    """Return all objects of a kind, as the server has them now.

    Raises:
        DecodeError: An object cannot be decoded: to leave it out would be a wrong answer.
    """
    found = client.resource(resource).list()
    if found.failures:
        raise found.failures[0]
    return found.items


class ObjectReader(Protocol[T]):
    """Reads of one kind, with the same methods for the cache and for the server.

    Threads: safe from any thread.
    """

    def get(self, name: str, namespace: str = "") -> T:
        """Return one object.

        Raises:
            NotFound: The object does not exist.
        """
        ...

    def list(self, selector: Selector | None = None, namespace: str = "") -> list[T]:
        """Return the objects whose labels match, of one namespace or of all."""
        ...


class ServerClient(Protocol):
    """The part of a client that reads from the server."""

    def resource(self, resource: Resource[T]) -> ResourceReader[T]:
        """Return the reading verbs of a kind."""
        ...


class ReaderFactory:
    """Decides for each kind whether it is read from the cache or from the server (CL-12).

    The rules follow controller-runtime's client: typed kinds are read from the cache;
    `Unstructured` kinds, whose whole objects would be cached, and kinds listed in `uncached`
    are read from the server. Unlike there, a read never starts an informer: a kind without an
    informer is refused with `KindNotCached`. Writes go to the server, by `Client` or
    `CachedClient`.

    Threads: safe from any thread.
    """

    def __init__(
        self,
        client: ServerClient,
        informers: InformerFactory,
        *,
        uncached: Iterable[Resource[Any]] = (),
        cache_untyped: bool = False,
    ) -> None:
        """Use a client and the informers of a process.

        Args:
            client: For reads from the server.
            informers: For cached reads.
            uncached: Kinds that are read from the server, of any type.
            cache_untyped: Read resources of type `dict` from the cache, too.
        """
        self._client = client
        self._informers = informers
        self._uncached = frozenset(_kind(resource) for resource in uncached)
        self._cache_untyped = cache_untyped

    def reader(self, resource: Resource[T]) -> ObjectReader[T]:
        """Return the reader of a kind."""
        untyped = issubclass(resource.type, dict) and not self._cache_untyped
        if untyped or _kind(resource) in self._uncached:
            return _FromServer(self._client.resource(resource))
        return _FromCache(self._informers, resource)


class _FromServer(Generic[T]):
    def __init__(self, live: ResourceReader[T]) -> None:
        self._live = live

    def get(self, name: str, namespace: str = "") -> T:
        return self._live.get(name, namespace)

    def list(self, selector: Selector | None = None, namespace: str = "") -> list[T]:
        wanted = "" if selector is None else str(selector)
        return self._live.list(namespace, ListOptions(label_selector=wanted)).items


class _FromCache(Generic[T]):
    def __init__(self, informers: InformerFactory, resource: Resource[T]) -> None:
        self._informers = informers
        self._resource = resource

    def get(self, name: str, namespace: str = "") -> T:
        return self._informer().lister.get(name, namespace)

    def list(self, selector: Selector | None = None, namespace: str = "") -> list[T]:
        return self._informer().lister.list(selector, namespace)

    def _informer(self) -> SharedInformer[T]:
        return self._informers.find(self._resource)


def _kind(resource: Resource[Any]) -> tuple[str, str]:
    return resource.group, resource.plural
