"""The caches of several namespaces, read as one."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from navarchos.informers.store import Reader
from navarchos.meta import split_key

__all__ = ["UnionReader"]

T = TypeVar("T")
U = TypeVar("U")


class UnionReader(Generic[T]):
    """Reads some namespaces of a kind, each out of a cache of its own (IF-11).

    Does not promise: one moment for all; each cache follows its own watch.

    Threads: as the readers, which are safe from any thread.

    Args:
        readers: By namespace.
    """

    def __init__(self, readers: Mapping[str, Reader[T]]) -> None:
        self._readers = dict(readers)

    def get(self, key: str) -> T | None:
        """Return the object under `namespace/name`, if there is one."""
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
