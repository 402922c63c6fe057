"""What a cache can refuse.

```text
CacheError
  SyncTimeout      caches that were not filled in time: unsynced
  KindNotCached    a read of a kind that nobody declared: resource
  NamespaceNotCached  a read of a namespace outside the cached ones: namespace, cached
  CacheMutated     somebody changed what is shared: cache, changed
  UnknownIndex     a look-up in an index that does not exist: index, known
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
    """A cache could not do what it was asked."""


class SyncTimeout(CacheError):
    """Caches were not filled within the time given. They go on trying.

    Attributes:
        unsynced: Their names, sorted; a handler that still owes its initial list,
            or failed in it, is named behind its informer (RT-08).
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
    """A cached read of something that no informer was asked for (IF-05).

    Attributes:
        resource: `plural.group`, with the scope that was asked for.
    """

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def __str__(self) -> str:
        return f"{self.resource} is not cached: ask the factory for an informer of it first"


class NamespaceNotCached(CacheError):
    """A cached read of a namespace that is outside those that are cached (IF-11).

    Attributes:
        resource: `plural.group`.
        namespace: The one that was asked for; empty if none was named.
        cached: Those that are cached, sorted.
    """

    def __init__(self, resource: str, namespace: str, cached: Iterable[str]) -> None:
        self.resource = resource
        self.namespace = namespace
        self.cached = tuple(sorted(cached))
        super().__init__(resource, namespace, self.cached)

    def __str__(self) -> str:
        asked = f"in namespace {self.namespace!r}" if self.namespace else "without a namespace"
        return f"{self.resource} {asked} are not cached; those in {', '.join(self.cached)} are"


class CacheMutated(CacheError):
    """Somebody changed cached objects, which all readers share (ST-15).

    Attributes:
        cache: The informer.
        changed: Keys with the path of what is different, such as
            `default/a.metadata.labels.app`; sorted. What several objects have in common
            is different in each.
    """

    def __init__(self, cache: str, changed: Iterable[str]) -> None:
        self.cache = cache
        self.changed = tuple(sorted(changed))
        super().__init__(cache, self.changed)

    def __str__(self) -> str:
        return (
            f"cached objects of {self.cache} were changed: {_first_of(self.changed)}; "
            "they are shared and read-only: copy first, or read with_copies()"
        )


class UnknownIndex(CacheError):
    """A look-up in an index that was never added (ST-06).

    Attributes:
        index: The name asked for.
        known: The names there are, sorted.
    """

    def __init__(self, index: str, known: Iterable[str]) -> None:
        self.index = index
        self.known = tuple(sorted(known))
        super().__init__(index, self.known)

    def __str__(self) -> str:
        return f"no index {self.index!r}; there are {', '.join(self.known)}: add an indexer"


class IndexConflict(CacheError):
    """Indexers under names that are taken; none of the call was added (ST-09).

    Attributes:
        names: The names that are taken, sorted.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(sorted(names))
        super().__init__(self.names)

    def __str__(self) -> str:
        return f"indexes {', '.join(self.names)} exist already: choose other names"


class IndexFailed(CacheError):
    """An index function raised, so the object was not stored (ST-12).

    What the store had of it stays. The cause is chained.

    Attributes:
        index: The index whose function raised.
        key: The object that it was given.
    """

    def __init__(self, index: str, key: str) -> None:
        super().__init__(index, key)
        self.index = index
        self.key = key

    def __str__(self) -> str:
        cause = f": {self.__cause__!r}" if self.__cause__ else ""
        return f"index function {self.index!r} failed on {self.key}{cause}"


class TransformFailed(CacheError):
    """A transform raised, or returned something else than the object that it got.

    The object was not stored; what the store had of it stays.

    Attributes:
        key: The object that it was given.
        why: What it did.
    """

    def __init__(self, key: str, why: str) -> None:
        super().__init__(key, why)
        self.key = key
        self.why = why

    def __str__(self) -> str:
        return f"transform failed on {self.key}: {self.why}"


class InconsistentList(CacheError):
    """A streamed list is not what an ordinary list shows at the same version (RF-29).

    Either the server or this library is wrong, and no cache can be trusted: it ends
    the informer. Raised only where the detector was turned on.

    Attributes:
        resource: The kind.
        version: The version of both lists.
        keys: Of the objects that differ, sorted.
    """

    def __init__(self, resource: str, version: str, keys: Iterable[str]) -> None:
        self.resource = resource
        self.version = version
        self.keys = tuple(sorted(keys))
        super().__init__(resource, version, self.keys)

    def __str__(self) -> str:
        return (
            f"streamed and ordinary list of {self.resource} at version {self.version} differ in "
            f"{len(self.keys)} objects: {_first_of(self.keys)}; report it, and pass "
            "streaming=False meanwhile"
        )


def _first_of(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
