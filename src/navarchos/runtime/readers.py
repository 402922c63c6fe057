"""Where reads go: to the cache, or to the server."""

from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from navarchos.client import Resource, ResourceReader, Selector
from navarchos.informers import InformerFactory, SharedInformer

__all__ = ["Reader", "Readers", "ServerClient"]

T = TypeVar("T")


class Reader(Protocol[T]):
    """Reads of one kind, the same out of the cache and from the server.

    Threads: safe from any thread.
    """

    def get(self, name: str, namespace: str = "") -> T:
        """Return one object.

        Raises:
            NotFound: There is none of that name.
        """
        ...

    def list(self, selector: Selector | None = None, namespace: str = "") -> list[T]:
        """Return the objects whose labels match, of one namespace or of all."""
        ...


class ServerClient(Protocol):
    """What reads from the server need of a client."""

    def resource(self, resource: Resource[T]) -> ResourceReader[T]:
        """Return the verbs that read a kind."""
        ...


class Readers:
    """Decides for each kind whether it is read out of the cache (CL-12).

    As controller-runtime's client does: typed reads go to the cache; `Unstructured`
    ones, which would cache whole objects, and those of kinds that are named go to the
    server. Nothing is cached because somebody reads it: a kind that no informer was
    asked for is refused with `KindNotCached`. Writes never come here; they go to the
    server, by `Client` or `CachedClient`.

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
        """Decide between a client and the informers of a process.

        Args:
            client: For reads from the server.
            informers: For cached reads.
            uncached: Kinds that are read from the server, whatever they decode into.
            cache_untyped: Read resources of type `dict` out of the cache, too.
        """
        self._client = client
        self._informers = informers
        self._uncached = frozenset(_kind(resource) for resource in uncached)
        self._cache_untyped = cache_untyped

    def reader(self, resource: Resource[T]) -> Reader[T]:
        """Return reads of a kind from where they belong."""
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
        return self._live.list(namespace, label_selector=wanted).items


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
