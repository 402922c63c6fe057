"""The versioned store: objects, their encoded bytes, and the log of changes.

One counter numbers the writes of all kinds, as etcd's revision does. An entry is immutable; a write
replaces it. An entry keeps its JSON, encoded once, so that reads, lists and watches can copy the
bytes.

Lock order: there is one lock, `ObjectStore._store_lock`, which is re-entrant. Listeners run
with the lock held, in commit order. They may read and write; their writes are committed at
once, and announced after the current change. They must not wait for another thread that uses
the store.
"""

import threading
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.logs import get_logger, traceback_of
from navarchos.testing.apiserver.objects import JsonObject, encode, meta

__all__ = [
    "Bucket",
    "BucketId",
    "Change",
    "ChangeType",
    "Compacted",
    "Entry",
    "FutureVersion",
    "ObjectStore",
    "Origin",
    "StoredEvent",
    "entry_key",
]

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_log = get_logger(__name__)


class BucketId(NamedTuple):
    """The place of one kind's objects, the same for all served versions."""

    plural: str
    group: str


class Origin(NamedTuple):
    """The request that made a change."""

    verb: str
    user_agent: str


@dataclass(frozen=True, slots=True)
class Change:
    """A committed write.

    Attributes:
        type: `ADDED`, `MODIFIED` or `DELETED`.
        resource: Plural and group of the kind.
        object: The object after the write; for `DELETED` its last state, with the version of the
            deletion. Read-only. `fieldsV1` in `managedFields` is still encoded, as `msgspec.Raw`.
        previous: The object before the write; `None` for `ADDED`. Read-only.
        resource_version: The version that the write made.
        request: The request; `None` for writes of the server itself and of `ApiServer.install`.
    """

    type: ChangeType
    resource: BucketId
    object: JsonObject
    previous: JsonObject | None
    resource_version: int
    request: Origin | None


class Entry:
    """A stored object: key, decoded form, JSON and version. Immutable."""

    __slots__ = ("key", "name", "namespace", "obj", "raw", "uid", "version")

    def __init__(self, obj: JsonObject, version: int) -> None:
        metadata = meta(obj)
        self.name: str = metadata["name"]
        self.namespace: str = metadata.get("namespace") or ""
        self.uid: str = metadata.get("uid") or ""
        self.key = entry_key(self.namespace, self.name)
        self.obj = obj
        self.version = version
        self.raw = encode(obj)


class StoredEvent:
    """One entry of a bucket's log, with the encoded lines that watches share."""

    __slots__ = ("at", "entry", "lines", "previous", "type")

    def __init__(self, kind: ChangeType, entry: Entry, previous: Entry | None, at: float) -> None:
        self.type = kind
        self.entry = entry
        self.previous = previous
        self.at = at
        # Watch lines by form; the first watch that needs a line adds it. Two threads may make the
        # same line at once, which is harmless, because the lines are equal.
        self.lines: dict[object, bytes | None] = {}

    @property
    def version(self) -> int:
        """The version of the write."""
        return self.entry.version


class Compacted(Exception):
    """The log does not reach back that far. `oldest` is the first usable version."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(asked, oldest)
        self.asked = asked
        self.oldest = oldest


class FutureVersion(Exception):
    """A version that no write has made yet."""

    def __init__(self, asked: int, current: int) -> None:
        super().__init__(asked, current)
        self.asked = asked
        self.current = current


def entry_key(namespace: str, name: str) -> str:
    """Return the key of an object; keys have the same order as in etcd."""
    return f"{namespace}/{name}" if namespace else name


class Bucket:
    """The objects of one kind, their order and their log. Guarded by the store's lock."""

    def __init__(self, identity: BucketId, oldest: int) -> None:
        self.identity = identity
        self.entries: dict[str, Entry] = {}
        self.keys: list[str] = []  # sorted; exactly the keys of `entries`
        self.log: list[StoredEvent] = []  # oldest first, versions strictly increasing
        self.base = 0  # number of events that were dropped from the log
        self.oldest = oldest  # no watch and no list can begin at an older version

    def record(self, event: StoredEvent, history: int) -> None:
        """Append to the log; drop the older half when the log is twice too long."""
        self.log.append(event)
        if len(self.log) > 2 * history:
            self.forget(len(self.log) - history)

    def forget(self, count: int) -> None:
        """Drop the `count` oldest events."""
        if count:
            self.oldest = self.log[count - 1].version
            del self.log[:count]
            self.base += count

    def keys_of(self, namespace: str, after: str = "") -> Sequence[str]:
        """Return the sorted keys of a namespace, or all keys, that follow `after`."""
        low, high = 0, len(self.keys)
        if namespace:
            low = bisect_left(self.keys, f"{namespace}/")
            high = bisect_left(self.keys, f"{namespace}0")  # "0" is the byte after "/"
        if after:
            low = max(low, bisect_right(self.keys, after))
        return self.keys[low:high]


class ObjectStore:
    """Objects of all kinds, in memory, with one version counter.

    Threads: safe from any thread.

    Args:
        history: How many events to keep for watches, per kind.
        clock: The time of creations, bindings, evictions and deletions, and of caches that lag.
    """

    def __init__(self, *, history: int = 10_000, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._history = max(1, history)
        self._store_lock = threading.RLock()
        self._version = 1  # guarded by _store_lock
        self._oldest = 1  # guarded by _store_lock; for buckets that are made later
        self._watched_from = 1  # guarded by _store_lock; no watch can begin at an older version
        self._buckets: dict[BucketId, Bucket] = {}  # guarded by _store_lock
        self._listeners: list[Callable[[Change], None]] = []  # guarded by _store_lock
        self._pending: deque[Change] = deque()  # guarded by _store_lock
        self._depth = 0  # guarded by _store_lock
        self._delivering = False  # guarded by _store_lock
        self._wake: Callable[[BucketId], None] | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the store for a read-modify-write; listeners are notified at the end."""
        with self._store_lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._deliver_locked()

    @property
    def version(self) -> int:
        """The version of the last write."""
        with self._store_lock:
            return self._version

    def get(self, bucket: BucketId, key: str) -> Entry | None:
        """Return the entry under `key`, if there is one."""
        with self._store_lock:
            found = self._buckets.get(bucket)
            return None if found is None else found.entries.get(key)

    def put(self, bucket: BucketId, obj: JsonObject, *, origin: Origin | None = None) -> Entry:
        """Commit `obj` under its key, with the next version.

        The store keeps `obj` itself; the caller must not use it any more.
        """
        with self.transaction():
            version = self._next_version_locked()
            meta(obj)["resourceVersion"] = str(version)
            entry = Entry(obj, version)
            held = self._bucket_locked(bucket)
            previous = held.entries.get(entry.key)
            held.entries[entry.key] = entry
            if previous is None:
                insort(held.keys, entry.key)
            kind: ChangeType = "ADDED" if previous is None else "MODIFIED"
            event = StoredEvent(kind, entry, previous, self.clock.monotonic())
            self._commit_locked(held, event, origin)
            return entry

    def remove(self, bucket: BucketId, key: str, *, origin: Origin | None = None) -> Entry:
        """Delete the object under `key`; return its last state, with the new version.

        Raises:
            KeyError: There is no such object.
        """
        with self.transaction():
            held = self._bucket_locked(bucket)
            previous = held.entries.pop(key)
            del held.keys[bisect_left(held.keys, key)]
            version = self._next_version_locked()
            metadata = {**meta(previous.obj), "resourceVersion": str(version)}
            last = Entry({**previous.obj, "metadata": metadata}, version)
            event = StoredEvent("DELETED", last, previous, self.clock.monotonic())
            self._commit_locked(held, event, origin)
            return last

    def rewrite(self, bucket: BucketId, change: Callable[[JsonObject], JsonObject]) -> None:
        """Replace every stored object of a kind by `change(object)`, without a new version.

        A changed schema shows in reads this way: upstream prunes and defaults objects when it reads
        them from etcd.
        """
        with self._store_lock:
            held = self._bucket_locked(bucket)
            for key, entry in held.entries.items():
                held.entries[key] = Entry(change(entry.obj), entry.version)

    def entries(self, bucket: BucketId, namespace: str = "") -> list[Entry]:
        """Return the entries of a kind, or of one namespace, in key order."""
        with self._store_lock:
            held = self._buckets.get(bucket)
            if held is None:
                return []
            return [held.entries[key] for key in held.keys_of(namespace)]

    def entries_at(self, bucket: BucketId, namespace: str, version: int) -> list[Entry]:
        """Return the entries as they were at `version`, in key order.

        Raises:
            Compacted: The log does not reach back that far.
            FutureVersion: The version does not exist yet.
        """
        with self._store_lock:
            self._check_version_locked(self._bucket_locked(bucket), version)
            then = {entry.key: entry for entry in self.entries(bucket, namespace)}
            held = self._bucket_locked(bucket)
            changed = False
            for event in reversed(held.log):
                if event.version <= version:
                    break
                if namespace and event.entry.namespace != namespace:
                    continue
                changed = True
                if event.previous is None:
                    then.pop(event.entry.key, None)
                else:
                    then[event.entry.key] = event.previous
            return [then[key] for key in sorted(then)] if changed else list(then.values())

    def as_of(self, bucket: BucketId, seconds: float) -> "ObjectStore":
        """Return a store with one kind as it was `seconds` ago, as far as the log reaches.

        The store's version is the version of the last write that a cache with this delay can know.
        Writes to it are lost.
        """
        with self._store_lock:
            held = self._bucket_locked(bucket)
            seen = bisect_right(held.log, self.clock.monotonic() - seconds, key=_time_of)
            unseen = held.log[seen:]
            past = ObjectStore(history=self._history, clock=self.clock)
            past._version = unseen[0].version - 1 if unseen else self._version
            then = past._bucket_locked(bucket)
            found = self.entries_at(bucket, "", past._version)
            then.entries = {entry.key: entry for entry in found}
            then.keys = list(then.entries)
            return past

    def cursor(self, bucket: BucketId, version: int) -> int:
        """Return the position in the log after `version`, for a watch from there.

        Raises:
            Compacted: The log does not reach back that far.
        """
        with self._store_lock:
            held = self._bucket_locked(bucket)
            oldest = max(held.oldest, self._watched_from)
            if version < oldest:
                raise Compacted(version, oldest)
            return held.base + bisect_right(held.log, version, key=_version_of)

    def events_since(self, bucket: BucketId, cursor: int) -> tuple[list[StoredEvent], int, int]:
        """Return the events after `cursor`, the next cursor, and the store's version.

        Raises:
            Compacted: The events after `cursor` have been dropped.
        """
        with self._store_lock:
            held = self._bucket_locked(bucket)
            if cursor < held.base:
                raise Compacted(0, held.oldest)
            events = held.log[cursor - held.base :]
            return events, cursor + len(events), self._version

    def compact(self) -> None:
        """Drop every event: no watch and no list can begin at an older version."""
        with self._store_lock:
            self._oldest = self._version
            for held in self._buckets.values():
                held.forget(len(held.log))
                held.oldest = self._version

    def restart(self) -> None:
        """Refuse watches from older versions; lists may still use them.

        A real server reads events from its memory, which a restart clears, and old objects from
        etcd.
        """
        with self._store_lock:
            self._watched_from = self._version

    def drop(self, bucket: BucketId) -> None:
        """Remove an empty kind, with its log."""
        with self._store_lock:
            self._buckets.pop(bucket, None)

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` after every write, in commit order; return a function to undo this."""
        with self._store_lock:
            self._listeners.append(listener)

        def unsubscribe() -> None:
            with self._store_lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return unsubscribe

    def set_notifier(self, wake: Callable[[BucketId], None] | None) -> None:
        """Set the function that notifies the watches of a kind after a write."""
        with self._store_lock:
            self._wake = wake

    def _next_version_locked(self) -> int:
        self._version += 1
        return self._version

    def _bucket_locked(self, bucket: BucketId) -> Bucket:
        held = self._buckets.get(bucket)
        if held is None:
            held = self._buckets[bucket] = Bucket(bucket, self._oldest)
        return held

    def _check_version_locked(self, held: Bucket, version: int) -> None:
        if version > self._version:
            raise FutureVersion(version, self._version)
        if version < held.oldest:
            raise Compacted(version, held.oldest)

    def _commit_locked(self, held: Bucket, event: StoredEvent, origin: Origin | None) -> None:
        held.record(event, self._history)
        previous = None if event.previous is None else event.previous.obj
        self._pending.append(
            Change(event.type, held.identity, event.entry.obj, previous, event.version, origin)
        )

    def _deliver_locked(self) -> None:
        """Announce committed writes; the writes of listeners follow them."""
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._pending:
                change = self._pending.popleft()
                if self._wake is not None:
                    self._wake(change.resource)
                for listener in tuple(self._listeners):
                    _notify_listener(listener, change)
        finally:
            self._delivering = False


def _version_of(event: StoredEvent) -> int:
    return event.entry.version


def _time_of(event: StoredEvent) -> float:
    return event.at


def _notify_listener(listener: Callable[[Change], None], change: Change) -> None:
    try:
        listener(change)
    except Exception as error:  # noqa: BLE001 - a listener is foreign code
        # The write is committed; an error of a listener does not undo it.
        _log.error(
            "store_listener_failed",
            resource=change.resource.plural,
            error=traceback_of(error),
        )
