"""Read your own writes: the result of a write covers the cache until the watch brings it."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.informers.errors import IndexFailed
from navarchos.informers.position import is_at_least
from navarchos.informers.store import Replaced, WritableStore
from navarchos.meta import ResourceVersion, identity_of, key_of

__all__ = ["OVERLAY_LIFETIME", "Overlay"]

T = TypeVar("T")

OVERLAY_LIFETIME: Final = 300.0
"""Seconds after which a write of this process no longer covers the cache in any case."""


class _Written(msgspec.Struct, Generic[T], frozen=True):
    obj: T | None  # None: deleted, or no longer in the informer's scope
    uid: str
    version: ResourceVersion  # of a deletion: the version of the object as last seen
    until: float
    deleted: bool = False


class Overlay(Generic[T]):
    """A store, covered by the writes that this process made lately (ST-17).

    Promises: a read after `observe_write(obj)` shows `obj` or a newer state. A write
    leaves the overlay in the same step in which the store absorbs it or a later change, so
    a reader never falls back to an older state in between. A late `observe_write`, after
    the watch has shown a later state, changes nothing; so a deleted object never reappears.

    Does not promise: notifications; handlers are called when the watch brings the change.
    Nor order between objects: a write of this process is visible before earlier changes
    of other objects by other clients.

    How it works: changes of a resource reach a watch in the order of their versions. Once
    the store has absorbed version v, every write up to v is in the store or has been
    overtaken, whichever object it changed. So each entry of the overlay is newer than the
    whole store, and one comparison for each change keeps it so. This also holds for an
    object that was deleted and re-created under the same name; deletions need no record.

    client-go's mutation cache has a limit of 100 entries. This one has no limit, because the
    promise matters most during a burst of creations. Entries end with the next change
    or bookmark that reaches the store, or after `OVERLAY_LIFETIME`.

    Threads: every method is safe from any thread. Only the event processor calls the
    methods that change the store.
    """

    # Lock order: _view_lock, then the store's own.

    def __init__(
        self,
        store: WritableStore[T],
        *,
        in_scope: Callable[[T], bool] = lambda _: True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Cover a store.

        Args:
            store: Changed only through this overlay from now on.
            in_scope: Returns whether the informer's watch shows an object at all.
            clock: Measures the lifetime of entries.
        """
        self._store = store
        self._in_scope = in_scope
        self._clock = clock
        self._view_lock = threading.RLock()
        self._written: dict[str, _Written[T]] = {}  # guarded by _view_lock; newer than the store

    # Writes of this process

    def observe_write(self, obj: T) -> None:
        """Show the result of a write in reads from now on.

        A version that is not an integer, as with some aggregated APIs, cannot be ordered.
        The write is then ignored, and reads lag as they do without this call.

        Raises:
            KeyFailed: The object has no metadata or no name.
        """
        identity, key = identity_of(obj), key_of(obj)
        version = ResourceVersion(identity.resource_version)
        shown = obj if self._in_scope(obj) else None
        with self._view_lock:
            if is_at_least(version, version) is None or self._has(version):
                return
            earlier = self._written.get(key)
            if earlier is not None and not _supersedes(identity.uid, version, earlier):
                return
            self._written[key] = _Written(shown, identity.uid, version, self._deadline())

    def observe_delete(self, obj: T) -> None:
        """Hide an object that this process has deleted.

        It stays hidden until the watch shows its deletion, its deletion timestamp, or
        another object under its name.

        Args:
            obj: The object as last seen; only its identity matters.

        Raises:
            KeyFailed: The object has no metadata or no name.
        """
        identity, key = identity_of(obj), key_of(obj)
        version = ResourceVersion(identity.resource_version)
        with self._view_lock:
            stored, earlier = self._store.get(key), self._written.get(key)
            shown = stored if earlier is None else earlier.obj
            if shown is None or identity_of(shown).uid != identity.uid or _is_terminating(shown):
                return
            self._written[key] = _Written(
                None, identity.uid, version, self._deadline(), deleted=True
            )

    # Reading

    def get(self, key: str) -> T | None:
        """Return the object with the key `namespace/name` (or `name`), or `None`."""
        with self._view_lock:
            written = self._current().get(key)
            return self._store.get(key) if written is None else written.obj

    def keys(self) -> list[str]:
        """Return the keys of all objects."""
        return list(self.snapshot())

    def values(self) -> list[T]:
        """Return all objects."""
        with self._view_lock:
            if not self._current():
                return self._store.values()
            return list(self.snapshot().values())

    def snapshot(self) -> dict[str, T]:
        """Return all objects by key."""
        with self._view_lock:
            objects = self._store.snapshot()
            for key, written in self._current().items():
                _cover(objects, key, written.obj)
            return objects

    def by_index(self, name: str, value: str) -> list[T]:
        """Return the objects under a value of an index.

        Raises:
            UnknownIndex: The index does not exist.
        """
        with self._view_lock:
            written = self._current()
            if not written:
                return self._store.by_index(name, value)
            found = {key_of(obj): obj for obj in self._store.by_index(name, value)}
            for key, own in written.items():
                obj = own.obj
                try:
                    fits = obj is not None and value in self._store.values_of(key, obj)[name]
                except IndexFailed:
                    continue  # the store will leave this state out, too, and report it
                _cover(found, key, obj if fits else None)
            return list(found.values())

    def __len__(self) -> int:
        return len(self.snapshot())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    # Changes of the store. Each also drops the entries that it overtakes, in one step.

    def put(self, key: str, obj: T, version: ResourceVersion) -> T | None:
        """Store an object and return the object that it replaces, if there is one."""
        with self._view_lock:
            old = self._store.put(key, obj, version)
            if self._written:
                self._drop_absorbed()
                self._unhide(key, obj)
            return old

    def remove(self, key: str, version: ResourceVersion | None) -> T | None:
        """Remove an object and return it."""
        with self._view_lock:
            old = self._store.remove(key, version)
            if not self._written:
                return old
            self._drop_absorbed()
            written = self._written.get(key)
            # Old servers give a deletion the version of the last state, so compare the uid.
            if written and old is not None and written.uid == identity_of(old).uid:
                del self._written[key]
            return old

    def replace(
        self, objects: Mapping[str, T], version: ResourceVersion, *, keep: Iterable[str] = ()
    ) -> Replaced[T]:
        """Replace the store's content; see `WritableStore.replace`."""
        with self._view_lock:
            replaced = self._store.replace(objects, version, keep=keep)
            self._drop_absorbed()
            for key in list(self._written):
                self._unhide(key, replaced.content.get(key))
            return replaced

    def bookmark(self, version: ResourceVersion) -> None:
        """Record that the store has everything up to `version`."""
        with self._view_lock:
            self._store.position.advance(version)
            self._drop_absorbed()

    # All below need _view_lock held

    def _drop_absorbed(self) -> None:
        for key, written in list(self._written.items()):
            if not written.deleted and self._has(written.version):
                del self._written[key]

    def _has(self, version: ResourceVersion) -> bool:
        return is_at_least(self._store.position.newest, version) is True

    def _unhide(self, key: str, stored: T | None) -> None:
        """Drop the entry of a deletion that the store has caught up with.

        The client that deletes an object does not learn the version of the deletion. So
        the entry ends when its effect shows: the object is gone or terminating, or there
        is another object under its name.
        """
        written = self._written.get(key)
        if written is None or not written.deleted:
            return
        if is_at_least(self._store.position.newest, written.version) is False:
            # The store is older than the deleted object. The store may not have that object
            # yet, or may have an earlier object of the same name: the watch is going to
            # bring the deleted object, and then its deletion.
            return
        if (
            stored is None
            or identity_of(stored).uid != written.uid
            or _is_terminating(stored)
            # In a projection without the timestamp any later state counts.
            or (
                not _has_deletion_timestamp(stored)
                and identity_of(stored).resource_version != written.version
            )
        ):
            del self._written[key]

    def _current(self) -> dict[str, _Written[T]]:
        if self._written:
            now = self._clock.monotonic()
            for key in [key for key, own in self._written.items() if own.until <= now]:
                del self._written[key]
        return self._written

    def _deadline(self) -> float:
        return self._clock.monotonic() + OVERLAY_LIFETIME


def _supersedes(uid: str, version: ResourceVersion, earlier: _Written[T]) -> bool:
    """Return whether a write is later than the write that covers its key now."""
    if earlier.deleted and earlier.uid == uid:
        return False  # it was written before the deletion, and only observed afterwards
    return is_at_least(version, earlier.version) is True


def _cover(objects: dict[str, T], key: str, obj: T | None) -> None:
    if obj is None:
        objects.pop(key, None)
    else:
        objects[key] = obj


def _has_deletion_timestamp(obj: object) -> bool:
    return isinstance(obj, dict) or hasattr(identity_of(obj), "deletion_timestamp")


def _is_terminating(obj: object) -> bool:
    if isinstance(obj, dict):
        return bool(obj["metadata"].get("deletionTimestamp"))
    return getattr(identity_of(obj), "deletion_timestamp", None) is not None
