"""The local copy: a thread-safe, indexed store with one writer and many readers."""

import threading
from collections.abc import Iterable, Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from navarchos.informers.errors import IndexFailed
from navarchos.informers.indexes import Indexes, IndexFunction, Values
from navarchos.informers.position import CachePosition
from navarchos.meta import ResourceVersion, identity_of

__all__ = ["NAMESPACE_INDEX", "Reader", "Replaced", "Store", "WritableStore"]

T = TypeVar("T")

NAMESPACE_INDEX: Final = "namespace"
"""The index that every store has; cluster-scoped objects are under ``""`` (ST-11)."""


class Reader(Protocol[T]):
    """Reads cached objects by key and by index.

    Each result is a snapshot. The objects in it are shared by all readers, so they are
    read-only (ST-05).
    """

    def get(self, key: str) -> T | None:
        """Return the object with the key `namespace/name` (or `name`), or `None`."""
        ...

    def keys(self) -> list[str]:
        """Return the keys of all objects."""
        ...

    def values(self) -> list[T]:
        """Return all objects."""
        ...

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects under a value of an index.

        Raises:
            UnknownIndex: The index does not exist. An unknown value is not an error.
        """
        ...

    def __len__(self) -> int: ...

    def __contains__(self, key: object) -> bool: ...


class Store(Generic[T]):
    """The objects that the server has shown so far, for reading.

    Promises: every result comes from one state of the store, before or after a change,
    never from the middle of one; a relist is one change (ST-10). Objects come in the
    order in which they were first stored.

    Does not promise: that two calls see the same state, or that the state is the server's
    present one.

    Threads: every method is safe from any thread. Index functions run under the store's
    lock: they must be pure and quick, and must not read the store.

    Attributes:
        position: Records the version of each change, in the step that makes the change.
    """

    def __init__(
        self,
        indexers: Mapping[str, IndexFunction[T]] | None = None,
        position: CachePosition | None = None,
    ) -> None:
        """Make an empty store.

        Args:
            indexers: Index functions by name, besides the index `namespace`.
            position: A private one by default.
        """
        functions: dict[str, IndexFunction[T]] = {NAMESPACE_INDEX: _namespace_of}
        self.position = position or CachePosition()
        self._content_lock = threading.Lock()
        self._objects: dict[str, T] = {}  # guarded by _content_lock
        self._indexes = Indexes(functions)  # guarded by _content_lock; covers _objects exactly

        self.add_indexers(indexers or {})

    @property
    def resource_version(self) -> ResourceVersion:
        """The version that the store has absorbed last; empty before the first (ST-13)."""
        return self.position.version

    def get(self, key: str) -> T | None:
        """Return the object with the key `namespace/name` (or `name`), or `None`."""
        with self._content_lock:
            return self._objects.get(key)

    def keys(self) -> list[str]:
        """Return the keys of all objects."""
        with self._content_lock:
            return list(self._objects)

    def values(self) -> list[T]:
        """Return all objects."""
        with self._content_lock:
            return list(self._objects.values())

    def snapshot(self) -> dict[str, T]:
        """Return all objects by key."""
        with self._content_lock:
            return dict(self._objects)

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects under a value of an index; none for an unknown value.

        Raises:
            UnknownIndex: The index does not exist.
        """
        with self._content_lock:
            return [self._objects[key] for key in self._indexes.keys(name, value)]

    def index_keys(self, name: str, value: str) -> list[str]:
        """Return the keys under a value of an index; none for an unknown value.

        Raises:
            UnknownIndex: The index does not exist.
        """
        with self._content_lock:
            return self._indexes.keys(name, value)

    def index_values(self, name: str) -> list[str]:
        """Return the values of an index that have objects.

        Raises:
            UnknownIndex: The index does not exist.
        """
        with self._content_lock:
            return self._indexes.values(name)

    def index(self, name: str, obj: T) -> list[T]:
        """Return the stored objects that share a value of the index with `obj`.

        Each object comes once, even if they share several values. `obj` need not be stored.

        Raises:
            UnknownIndex: The index does not exist.
            IndexFailed: The index function raised on `obj`.
        """
        with self._content_lock:
            values = self._indexes.values_of("", obj).get(name, ())
            keys = {key: None for value in values for key in self._indexes.keys(name, value)}
            # Looked up even if there are no values, so that an unknown name always raises.
            self._indexes.keys(name, "")
            return [self._objects[key] for key in keys]

    def index_names(self) -> list[str]:
        """Return the names of the indexes."""
        with self._content_lock:
            return self._indexes.names()

    def values_of(self, key: str, obj: T) -> Values:
        """Return the values of an object in every index; it need not be stored.

        Raises:
            IndexFailed: An index function raised on it.
        """
        with self._content_lock:
            return self._indexes.values_of(key, obj)

    def add_indexers(self, indexers: Mapping[str, IndexFunction[T]]) -> None:
        """Add indexes and build them over the stored objects at once (ST-09).

        Raises:
            IndexConflict: A name is taken; nothing was added.
            IndexFailed: A function raised; nothing was added.
        """
        with self._content_lock:
            self._indexes.add(indexers, self._objects)

    def __len__(self) -> int:
        with self._content_lock:
            return len(self._objects)

    def __contains__(self, key: object) -> bool:
        with self._content_lock:
            return key in self._objects


class Replaced(NamedTuple, Generic[T]):
    """The result of replacing the whole content.

    Attributes:
        former: The content before, by key.
        content: The content now, by key.
        failed: Why objects were skipped.
    """

    former: dict[str, T]
    content: dict[str, T]
    failed: list[IndexFailed]


class WritableStore(Store[T]):
    """A store that can be changed. Its owner hands it out as a `Store` only.

    Index functions run before anything changes. If one raises, its object and all indexes
    stay as they were (ST-12). Such an object in a list does not hold up the others, and a
    failing index function never prevents the removal of an object.
    """

    def put(self, key: str, obj: T, version: ResourceVersion) -> T | None:
        """Store an object and return the object that it replaces, if there is one.

        Raises:
            IndexFailed: An index function raised; nothing changed.
        """
        with self._content_lock:
            old = self._objects.get(key)
            values = self._indexes.values_of(key, obj)
            # The old values come from the stored object, not from the new one (ST-07).
            gone = {} if old is None else self._indexes.values_of_entered(key, old)
            self._objects[key] = obj
            if gone != values:
                self._indexes.move(key, gone, values)
            self.position.advance(version)
            return old

    def remove(self, key: str, version: ResourceVersion | None = None) -> T | None:
        """Remove an object and return it; return `None` if it was not stored.

        Args:
            key: The object's key.
            version: The version of the deletion, if it is known.
        """
        with self._content_lock:
            old = self._objects.get(key)
            if old is not None:
                values = self._indexes.values_of_entered(key, old)
                del self._objects[key]
                self._indexes.move(key, values, {})
            if version is not None:
                self.position.advance(version)
            return old

    def replace(
        self, objects: Mapping[str, T], version: ResourceVersion, *, keep: Iterable[str] = ()
    ) -> Replaced[T]:
        """Replace the whole content in one step.

        An object that cannot be indexed is skipped; if the store has an earlier state of
        it, that state stays.

        Args:
            objects: The new content.
            version: The version of the new content.
            keep: Keys of further objects that stay as they are, if they are stored.
        """
        with self._content_lock:
            content, values, failed = dict[str, T](), dict[str, Values](), list[IndexFailed]()
            for key, obj in objects.items():
                try:
                    values[key] = self._indexes.values_of(key, obj)
                    content[key] = obj
                except IndexFailed as error:
                    failed.append(error)
            for key in [*keep, *(error.key for error in failed)]:
                known = self._objects.get(key)
                if known is not None and key not in content:
                    values[key] = self._indexes.values_of_entered(key, known)
                    content[key] = known
            former, self._objects = self._objects, content
            self._indexes.build(values)
            self.position.advance_by_list(version)
            return Replaced(former, dict(content), failed)


def _namespace_of(obj: object) -> tuple[str, ...]:
    return (identity_of(obj).namespace,)
