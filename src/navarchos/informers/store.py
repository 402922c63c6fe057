"""The local copy: a thread-safe, indexed store with one writer and many readers."""

import threading
from collections.abc import Iterable, Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from navarchos.informers.errors import IndexFailed
from navarchos.informers.indexes import Indexes, IndexFunction, Values
from navarchos.meta import ResourceVersion, identity_of

__all__ = ["NAMESPACE_INDEX", "Reader", "Replaced", "Store", "WritableStore"]

T = TypeVar("T")

NAMESPACE_INDEX: Final = "namespace"
"""The index that every store has (ST-11); cluster-scoped objects are under ``""``."""


class Reader(Protocol[T]):
    """Reads cached objects by key and by index.

    Each answer is a snapshot; the objects in it are shared with everybody, so
    they are read-only (ST-05).
    """

    def get(self, key: str) -> T | None:
        """Return the object under `namespace/name` (or `name`), if there is one."""
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
            UnknownIndex: There is no such index. An unknown value is no error.
        """
        ...

    def __len__(self) -> int: ...

    def __contains__(self, key: object) -> bool: ...


class Store(Generic[T]):
    """What the server has shown so far, for reading.

    Promises: every answer comes from one state of the store, before or after a
    change, never from the middle of one; a relist is one change (ST-10). Objects
    come in the order in which they were first stored.

    Does not promise: that two calls see the same state, or that the state is
    the server's present one.

    Threads: every method is safe from any thread. Index functions run under the
    store's lock: they must be pure, quick, and not read the store.
    """

    def __init__(self, indexers: Mapping[str, IndexFunction[T]] | None = None) -> None:
        """Make an empty store.

        Args:
            indexers: Index functions by name, besides the index `namespace`.
        """
        functions: dict[str, IndexFunction[T]] = {NAMESPACE_INDEX: _namespace_of}
        self._content_lock = threading.Lock()
        self._objects: dict[str, T] = {}  # guarded by _content_lock
        self._indexes = Indexes(functions)  # guarded by _content_lock; covers _objects exactly
        self._version = ResourceVersion("")  # guarded by _content_lock
        self.add_indexers(indexers or {})

    @property
    def resource_version(self) -> ResourceVersion:
        """The version absorbed last; empty before the first (ST-13)."""
        with self._content_lock:
            return self._version

    def get(self, key: str) -> T | None:
        """Return the object under `namespace/name` (or `name`), if there is one."""
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
            UnknownIndex: There is no such index.
        """
        with self._content_lock:
            return [self._objects[key] for key in self._indexes.keys(name, value)]

    def index_keys(self, name: str, value: str) -> list[str]:
        """Return the keys under a value of an index; none for an unknown value.

        Raises:
            UnknownIndex: There is no such index.
        """
        with self._content_lock:
            return self._indexes.keys(name, value)

    def index_values(self, name: str) -> list[str]:
        """Return the values of an index under which there are objects.

        Raises:
            UnknownIndex: There is no such index.
        """
        with self._content_lock:
            return self._indexes.values(name)

    def index(self, name: str, obj: T) -> list[T]:
        """Return the stored objects that share a value of the index with `obj`.

        Each comes once, however many values they share. `obj` need not be stored.

        Raises:
            UnknownIndex: There is no such index.
            IndexFailed: The index function raised on `obj`.
        """
        with self._content_lock:
            values = self._indexes.values_of("", obj).get(name, ())
            keys = {key: None for value in values for key in self._indexes.keys(name, value)}
            # Asked for even without values, so that a wrong name never passes.
            self._indexes.keys(name, "")
            return [self._objects[key] for key in keys]

    def index_names(self) -> list[str]:
        """Return the names of the indexes."""
        with self._content_lock:
            return self._indexes.names()

    def values_of(self, key: str, obj: T) -> Values:
        """Return the values of any object in every index, stored or not.

        Raises:
            IndexFailed: An index function raised on it.
        """
        with self._content_lock:
            return self._indexes.values_of(key, obj)

    def add_indexers(self, indexers: Mapping[str, IndexFunction[T]]) -> None:
        """Add indexes, built at once over what is stored (ST-09).

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
    """What became of a swap of the whole content.

    Attributes:
        former: The content before, by key.
        content: The content now, by key.
        failed: Why objects were left out.
    """

    former: dict[str, T]
    content: dict[str, T]
    failed: list[IndexFailed]


class WritableStore(Store[T]):
    """The writer's side. Its owner hands it out as a `Store` only.

    Index functions run before anything is touched. One that raises leaves its
    object, and all indexes, as they were (ST-12); an object of a list that is
    refused so does not hold up the others. No failing function keeps an object from
    being removed.
    """

    def put(self, key: str, obj: T, version: ResourceVersion) -> T | None:
        """Store an object over whatever was there, and return what that was.

        Raises:
            IndexFailed: An index function raised; nothing changed.
        """
        with self._content_lock:
            old = self._objects.get(key)
            values = self._indexes.values_of(key, obj)
            # From the object that was stored, not from the new one (ST-07).
            gone = {} if old is None else self._indexes.values_of_entered(key, old)
            self._objects[key] = obj
            if gone != values:
                self._indexes.move(key, gone, values)
            self._version = version
            return old

    def remove(self, key: str, version: ResourceVersion | None = None) -> T | None:
        """Remove an object and return it; `None`, and no error, if there was none.

        Args:
            key: Its key.
            version: That of the deletion, if it is known.
        """
        with self._content_lock:
            old = self._objects.get(key)
            if old is not None:
                values = self._indexes.values_of_entered(key, old)
                del self._objects[key]
                self._indexes.move(key, values, {})
            if version is not None:
                self._version = version
            return old

    def replace(
        self, objects: Mapping[str, T], version: ResourceVersion, *, keep: Iterable[str] = ()
    ) -> Replaced[T]:
        """Swap the whole content in one step.

        An object that cannot be indexed is left out; what is stored under its key,
        if anything is, stays as it is.

        Args:
            objects: The new content.
            version: Its version.
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
            self._version = version
            return Replaced(former, dict(content), failed)

    def bookmark(self, version: ResourceVersion) -> None:
        """Remember that everything up to `version` has been absorbed."""
        with self._content_lock:
            self._version = version


def _namespace_of(obj: object) -> tuple[str, ...]:
    return (identity_of(obj).namespace,)
