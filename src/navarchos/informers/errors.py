"""The errors of caches.

```text
CacheError
  SyncTimeout      caches that were not filled in time: unsynced
  KindNotCached    a read of a kind without an informer: resource
  NamespaceNotCached  a read of a namespace that is not cached: namespace, cached
  CacheMutated     shared objects were changed: cache, changed
  UnknownIndex     a lookup in an index that does not exist: index, known
  IndexConflict    indexers whose names are taken: names
  IndexFailed      an index function raised, chained as the cause: index, key
  TransformFailed  a transform raised, chained as the cause, or lost the object: key, why
  InconsistentList a streamed list differs from an ordinary one: resource, version, keys
```
"""

from collections.abc import Iterable, Sequence
from typing import Final

from navarchos.errors import NavarchosError

__all__ = [
    "CacheError",
    "CacheMutated",
    "InconsistentList",
    "IndexConflict",
    "IndexFailed",
    "KindNotCached",
    "NamespaceNotCached",
    "SyncTimeout",
    "TransformFailed",
    "UnknownIndex",
]

_SHOWN: Final = 10


class CacheError(NavarchosError):
    """The base of the errors of caches."""


class SyncTimeout(CacheError):
    """Caches were not filled in time. They continue to try.

    Attributes:
        unsynced: Their names, sorted. A handler that has not handled its whole initial
            list, or failed on a part of it, is named after its informer (RT-08).
    """

    def __init__(self, unsynced: Iterable[str]) -> None:
        self.unsynced = tuple(sorted(unsynced))
        super().__init__(self.unsynced)

    def __str__(self) -> str:
        return (
            f"caches not synced in time: {', '.join(self.unsynced)}; "
            "see the log for failing lists or handlers, and check list and watch permissions"
        )


class KindNotCached(CacheError):
    """A cached read of a kind and scope without an informer (IF-05).

    Attributes:
        resource: `plural.group`, with the requested scope.
    """

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def __str__(self) -> str:
        return f"{self.resource} is not cached: request an informer from the factory first"


class NamespaceNotCached(CacheError):
    """A cached read of a namespace that is not cached (IF-11).

    Attributes:
        resource: `plural.group`.
        namespace: The requested namespace; empty if the request has no namespace.
        cached: The cached namespaces, sorted.
    """

    def __init__(self, resource: str, namespace: str, cached: Iterable[str]) -> None:
        self.resource = resource
        self.namespace = namespace
        self.cached = tuple(sorted(cached))
        super().__init__(resource, namespace, self.cached)

    def __str__(self) -> str:
        asked = f"in namespace {self.namespace!r}" if self.namespace else "without a namespace"
        return (
            f"{self.resource} {asked} are not cached: "
            f"the cached namespaces are {', '.join(self.cached)}"
        )


class CacheMutated(CacheError):
    """Cached objects, which all readers share, were changed (ST-15).

    Attributes:
        cache: The informer.
        changed: Keys with the path of the difference, such as
            `default/a.metadata.labels.app`; sorted. A part that several objects share is
            different in each of them.
    """

    def __init__(self, cache: str, changed: Iterable[str]) -> None:
        self.cache = cache
        self.changed = tuple(sorted(changed))
        super().__init__(cache, self.changed)

    def __str__(self) -> str:
        return (
            f"cached objects of {self.cache} were changed: {_first_of(self.changed)}; "
            "they are shared and read-only; copy them first, or read with_copies()"
        )


class UnknownIndex(CacheError):
    """A lookup in an index that was never added (ST-06).

    Attributes:
        index: The requested name.
        known: The names of the existing indexes, sorted.
    """

    def __init__(self, index: str, known: Iterable[str]) -> None:
        self.index = index
        self.known = tuple(sorted(known))
        super().__init__(index, self.known)

    def __str__(self) -> str:
        return (
            f"index {self.index!r} does not exist, only {', '.join(self.known)}: "
            "add an indexer of that name"
        )


class IndexConflict(CacheError):
    """Indexers under names that are taken; no indexer of the call was added (ST-09).

    Attributes:
        names: The names that are taken, sorted.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(sorted(names))
        super().__init__(self.names)

    def __str__(self) -> str:
        return f"indexes {', '.join(self.names)} exist already: use other names"


class IndexFailed(CacheError):
    """An index function raised, so the object was not stored (ST-12).

    An earlier state of the object stays in the store. The cause is chained.

    Attributes:
        index: The index whose function raised.
        key: The object's key.
    """

    def __init__(self, index: str, key: str) -> None:
        super().__init__(index, key)
        self.index = index
        self.key = key

    def __str__(self) -> str:
        cause = f": {self.__cause__!r}" if self.__cause__ else ""
        return f"index function {self.index!r} failed on {self.key}{cause}"


class TransformFailed(CacheError):
    """A transform raised, or returned another object.

    The object was not stored; an earlier state of it stays in the store.

    Attributes:
        key: The object's key.
        why: What the transform did.
    """

    def __init__(self, key: str, why: str) -> None:
        super().__init__(key, why)
        self.key = key
        self.why = why

    def __str__(self) -> str:
        return f"transform failed on {self.key}: {self.why}"


class InconsistentList(CacheError):
    """A streamed list differs from an ordinary list at the same version (RF-29).

    Either the server or this library has a bug, and the cache cannot be trusted, so this
    ends the informer. Raised only if the detector is on.

    Attributes:
        resource: The kind.
        version: The version of both lists.
        keys: The keys of the objects that differ, sorted.
    """

    def __init__(self, resource: str, version: str, keys: Iterable[str]) -> None:
        self.resource = resource
        self.version = version
        self.keys = tuple(sorted(keys))
        super().__init__(resource, version, self.keys)

    def __str__(self) -> str:
        return (
            f"streamed and ordinary list of {self.resource} at version {self.version} differ in "
            f"{len(self.keys)} objects: {_first_of(self.keys)}; report this, and use "
            "streaming=False until it is fixed"
        )


def _first_of(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
