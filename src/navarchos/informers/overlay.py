"""Read your own writes: what a write returned covers the cache until the watch has it."""

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
"""Seconds after which an own write no longer covers the cache, whatever happened."""


class _Written(msgspec.Struct, Generic[T], frozen=True):
    obj: T | None  # None: deleted, or written out of the informer's scope
    uid: str
    version: ResourceVersion  # of a deletion: what was deleted, as last seen
    until: float
    deleted: bool = False


class Overlay(Generic[T]):
    """A store seen through this process's own writes (ST-17).

    Promises: a read that follows `observe_write(obj)` shows `obj` or something
    newer. An own write disappears in the very step in which the store absorbs it
    or anything later, so no reader falls back to an older state in between. A
    write that is observed late, when the watch has shown a later state already,
    changes nothing; so nothing deleted comes back.

    Does not promise: notifications; handlers hear of a change when the watch
    brings it. Nor order between objects: an own write is seen before others'
    earlier changes of other objects.

    How: changes of a resource reach a watch in the order of their versions. Once
    the store has absorbed version v, every own write up to v is in it or has been
    overtaken, whatever object it was to. So an entry is always newer than all of
    the store, and one comparison on each change keeps it so. This holds across a
    deletion and re-creation under the same name; no record of deletions is kept.

    Unlike upstream's mutation cache there is no limit of 100 entries: a burst of
    creations is exactly when the promise matters. Entries end with the next
    change or bookmark that reaches the store, or after `OVERLAY_LIFETIME`.

    Threads: every method is safe from any thread. Only the intake calls the
    writing half.
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
            store: Written through this object from now on.
            in_scope: Tells whether the informer's watch shows an object at all.
            clock: Times the entries out.
        """
        self._store = store
        self._in_scope = in_scope
        self._clock = clock
        self._view_lock = threading.RLock()
        self._written: dict[str, _Written[T]] = {}  # guarded by _view_lock; newer than the store
        self._absorbed = ResourceVersion("")  # guarded by _view_lock

    # What this process wrote

    def observe_write(self, obj: T) -> None:
        """Let reads show what a write returned.

        A version that is no integer (a foreign aggregated API) cannot be ordered
        and is ignored: reads then lag as without this call.

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

        It stays hidden until the watch shows its end, its deletion timestamp, or
        another object under its name.

        Args:
            obj: What was deleted, as last seen: the identity counts.

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
        """Return the object under `namespace/name` (or `name`), if there is one."""
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
            UnknownIndex: There is no such index.
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

    # The intake's half: each changes the store and drops what it overtakes in one step

    def put(self, key: str, obj: T, version: ResourceVersion) -> T | None:
        """Store an object and return what was stored before."""
        with self._view_lock:
            old = self._store.put(key, obj, version)
            self._absorb(version)
            if self._written:
                self._unhide(key, obj)
            return old

    def remove(self, key: str, version: ResourceVersion | None) -> T | None:
        """Remove an object and return it."""
        with self._view_lock:
            old = self._store.remove(key, version)
            if version is not None:
                self._absorb(version)
            written = self._written.get(key)
            # Old servers give a deletion the version of the last state: go by uid.
            if written and old is not None and written.uid == identity_of(old).uid:
                del self._written[key]
            return old

    def replace(
        self, objects: Mapping[str, T], version: ResourceVersion, *, keep: Iterable[str] = ()
    ) -> Replaced[T]:
        """Swap the store's content; see there."""
        with self._view_lock:
            replaced = self._store.replace(objects, version, keep=keep)
            # Not the maximum: after a restore from backup versions start lower.
            self._absorbed = version
            self._drop_absorbed()
            for key in list(self._written):
                self._unhide(key, replaced.content.get(key))
            return replaced

    def bookmark(self, version: ResourceVersion) -> None:
        """Note that the store has everything up to `version`."""
        with self._view_lock:
            self._store.bookmark(version)
            self._absorb(version)

    # All below need _view_lock held

    def _absorb(self, version: ResourceVersion) -> None:
        if is_at_least(version, self._absorbed or "0"):
            self._absorbed = version
            if self._written:
                self._drop_absorbed()

    def _drop_absorbed(self) -> None:
        for key, written in list(self._written.items()):
            if not written.deleted and self._has(written.version):
                del self._written[key]

    def _has(self, version: ResourceVersion) -> bool:
        return is_at_least(self._absorbed, version) is True

    def _unhide(self, key: str, stored: T | None) -> None:
        """End a deletion that the store has caught up with.

        The version of a deletion is not known to who asked for it, so it is over
        when its effect shows: the object is gone, terminating, or another one.
        """
        written = self._written.get(key)
        if written is None or not written.deleted:
            return
        if is_at_least(self._absorbed, written.version) is False:
            # The store is older than what was deleted. It may lack that, or have its
            # predecessor under the name; what was deleted has yet to come, and go.
            return
        if (
            stored is None
            or identity_of(stored).uid != written.uid
            or _is_terminating(stored)
            # A projection without the timestamp: any later state has to do.
            or (
                not _tells_termination(stored)
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
    """Tell whether a write is later than the one that covers its key now."""
    if earlier.deleted and earlier.uid == uid:
        return False  # it was written before it was deleted, and only observed after
    return is_at_least(version, earlier.version) is True


def _cover(objects: dict[str, T], key: str, obj: T | None) -> None:
    if obj is None:
        objects.pop(key, None)
    else:
        objects[key] = obj


def _tells_termination(obj: object) -> bool:
    return isinstance(obj, dict) or hasattr(identity_of(obj), "deletion_timestamp")


def _is_terminating(obj: object) -> bool:
    if isinstance(obj, dict):
        return bool(obj["metadata"].get("deletionTimestamp"))
    return getattr(identity_of(obj), "deletion_timestamp", None) is not None
