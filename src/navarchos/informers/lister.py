"""Typed reads of a cache."""

import copy
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar, cast

from navarchos.client.errors import NotFound
from navarchos.client.resource import Resource
from navarchos.client.selectors import Selector
from navarchos.client.status import Status
from navarchos.informers.errors import NamespaceNotCached
from navarchos.informers.indexes import IndexFunction
from navarchos.informers.store import NAMESPACE_INDEX, Reader
from navarchos.meta import identity_of, key_of, split_key
from navarchos.threads import ForkGuard

__all__ = ["Lister", "UnionReader", "field_index", "labels_of"]

T = TypeVar("T")
U = TypeVar("U")


class Lister(Generic[T]):
    """Reads one kind from an informer's cache, this process's own writes included.

    Promises: reads come from memory, at once, and include writes of this process that were
    reported by `observe_write`. Objects are the cached instances, shared by all readers:
    read-only (ST-05). `with_copies()` returns a lister of private copies.

    Does not promise: the server's present state; use the client for that.

    Threads: every method is safe from any thread.
    """

    def __init__(
        self,
        reader: Reader[T],
        resource: Resource[T],
        *,
        namespaces: Collection[str] = (),
        copies: bool = False,
        fork_guard: ForkGuard | None = None,
    ) -> None:
        """Read from a reader.

        Args:
            reader: The cache.
            resource: The kind, for keys and errors.
            namespaces: The namespaces of the cache; empty for all. Reads of others are
                refused, because the cache does not know their objects (IF-11). A single
                namespace is the default of `get`.
            copies: Return deep copies.
            fork_guard: The guard of the informer; every read asks it first.
        """
        self.resource = resource
        self._reader = reader
        self._namespaces = frozenset(namespaces)
        self._copies = copies
        self._fork_guard = fork_guard or ForkGuard(f"the cache of {resource}")

    def get(self, name: str, namespace: str = "") -> T:
        """Return one object.

        Args:
            name: Its name.
            namespace: Its namespace; ignored for cluster-scoped kinds.

        Raises:
            NotFound: The cache has no object of that name (LS-02).
            NamespaceNotCached: The cache is of other namespaces.
        """
        found = self.find(name, namespace)
        if found is None:
            raise self._not_found(name, namespace)
        return found

    def find(self, name: str, namespace: str = "") -> T | None:
        """Return one object, or `None` if the cache has no object of that name.

        Raises:
            NamespaceNotCached: The cache is of other namespaces.
        """
        self._fork_guard.check()
        found = self._reader.get(self._key(name, namespace))
        return None if found is None else self._out(found)

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects under a value of an index; empty for an unknown value.

        Raises:
            UnknownIndex: The index does not exist.
        """
        self._fork_guard.check()
        return [self._out(obj) for obj in self._reader.by_index(name, value)]

    def with_copies(self) -> "Lister[T]":
        """Return a lister of deep copies, which the caller may change (LS-04)."""
        return Lister(
            self._reader,
            self.resource,
            namespaces=self._namespaces,
            copies=True,
            fork_guard=self._fork_guard,
        )

    def list(
        self,
        selector: Selector | None = None,
        namespace: str = "",
        *,
        fields: Mapping[str, str] | None = None,
    ) -> list[T]:
        """Return the objects that match every argument.

        Args:
            selector: Selects by labels; `None` selects all.
            namespace: Empty for all namespaces.
            fields: Exact values of fields. Each field needs an index made by
                `field_index` (LS-05); the first is looked up, the others filter.

        Raises:
            UnknownIndex: A field without an index.
            NamespaceNotCached: The cache is of other namespaces.
        """
        self._fork_guard.check()
        if namespace:
            self._check(namespace)
        found = _candidates(self._reader, namespace, fields or {})
        if selector is not None and not selector.is_everything:
            found = [obj for obj in found if selector.matches(labels_of(obj) or {})]
        return [self._out(obj) for obj in found] if self._copies else found

    def _out(self, obj: T) -> T:
        return copy.deepcopy(obj) if self._copies else obj

    def _key(self, name: str, namespace: str) -> str:
        if not self.resource.namespaced:
            return name
        if not namespace and len(self._namespaces) == 1:
            (namespace,) = self._namespaces
        self._check(namespace)
        return f"{namespace}/{name}" if namespace else name

    def _check(self, namespace: str) -> None:
        if self._namespaces and namespace not in self._namespaces:
            raise NamespaceNotCached(str(self.resource), namespace, self._namespaces)

    def _not_found(self, name: str, namespace: str) -> NotFound:
        message = f'{self.resource} "{name}" not found in the cache'
        status = Status(code=404, reason="NotFound", message=message)
        key = self._key(name, namespace)
        return NotFound(status, verb="get", resource=str(self.resource), key=key)


def _candidates(reader: Reader[T], namespace: str, fields: Mapping[str, str]) -> list[T]:
    lookups = [(f"field:{field}", value) for field, value in fields.items()]
    if not lookups:
        return reader.by_index(NAMESPACE_INDEX, namespace) if namespace else reader.values()
    found = reader.by_index(*lookups[0])
    for index, value in lookups[1:]:
        wanted = {key_of(obj) for obj in reader.by_index(index, value)}
        found = [obj for obj in found if key_of(obj) in wanted]
    return [obj for obj in found if not namespace or identity_of(obj).namespace == namespace]


def field_index(field: str, value_of: "IndexFunction[T]") -> "dict[str, IndexFunction[T]]":
    """Return the indexer that `Lister.list(fields={field: ...})` needs.

    Args:
        field: The field's path, such as `spec.nodeName`.
        value_of: Returns the field's values in an object; empty if it is not set.
    """
    return {f"field:{field}": value_of}


def labels_of(obj: object) -> Mapping[str, str] | None:
    """Return an object's labels; `None` if its type does not list them."""
    if isinstance(obj, Mapping):
        metadata = obj.get("metadata") or {}
        return cast("Mapping[str, str]", metadata.get("labels") or {})
    return cast("Mapping[str, str] | None", getattr(identity_of(obj), "labels", None))


class UnionReader(Generic[T]):
    """Reads some namespaces of a kind as one, from a separate cache for each (IF-11).

    Does not promise: a consistent snapshot; each cache follows a separate watch.

    Threads: as the readers, which are safe from any thread.

    Args:
        readers: By namespace.
    """

    def __init__(self, readers: Mapping[str, Reader[T]]) -> None:
        self._readers = dict(readers)

    def get(self, key: str) -> T | None:
        """Return the object with the key `namespace/name`, or `None`."""
        reader = self._readers.get(split_key(key).namespace)
        return None if reader is None else reader.get(key)

    def keys(self) -> list[str]:
        """Return the keys of all objects."""
        return self._merged(lambda reader: reader.keys())

    def values(self) -> list[T]:
        """Return all objects."""
        return self._merged(lambda reader: reader.values())

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects under a value of an index.

        Raises:
            UnknownIndex: One of the caches has no such index.
        """
        return self._merged(lambda reader: reader.by_index(name, value))

    def __len__(self) -> int:
        return sum(len(reader) for reader in self._readers.values())

    def __contains__(self, key: object) -> bool:
        return any(key in reader for reader in self._readers.values())

    def _merged(self, read: Callable[[Reader[T]], list[U]]) -> list[U]:
        return [found for reader in self._readers.values() for found in read(reader)]
