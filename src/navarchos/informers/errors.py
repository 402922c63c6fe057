"""What a cache can refuse.

```text
CacheError
  SyncTimeout      caches that were not filled in time: unsynced
  KindNotCached    a read of a kind that nobody declared: resource
  UnknownIndex     a look-up in an index that does not exist: index, known
  IndexConflict    indexers whose names are taken: names
  IndexFailed      an index function raised, chained as the cause: index, key
```
"""

from collections.abc import Iterable

from navarchos.errors import NavarchosError

__all__ = [
    "CacheError",
    "IndexConflict",
    "IndexFailed",
    "KindNotCached",
    "SyncTimeout",
    "UnknownIndex",
]


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
    """An index function raised, so the store was left as it was (ST-12).

    Attributes:
        index: The index whose function raised.
        key: The object that it was given.
    """

    def __init__(self, index: str, key: str) -> None:
        super().__init__(index, key)
        self.index = index
        self.key = key

    def __str__(self) -> str:
        return f"index function {self.index!r} failed on {self.key}"
