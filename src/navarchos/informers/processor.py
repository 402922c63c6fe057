"""The event processor: each change goes to the store first, then to the handlers.

client-go puts deltas into a queue, and a second thread pops them. Here the thread that
reads the watch applies each change itself, under one lock. So the promises of the queue
hold by construction, and nothing in between can be reordered:

- One entry per event, in arrival order, across all keys (FQ-01): one thread does one
  thing after the other.
- A relist is one step, and is compared with the store as it is at that moment (FQ-02,
  FQ-03, FQ-04); there are no objects that are "only in the queue".
- A resync is one step under the same lock, so no replay is older than an earlier change
  (FQ-10, RT-04).
- Back-pressure is complete (FQ-13): the watch is not read while a change is applied.
  Handlers do not slow it down, because each has a buffer.

The price: the socket is not read ahead of a slow index function. The gain: one thread less
for each informer, and no delay between the arrival of a change and the store.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec
from prometheus_client import Gauge

from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.errors import AlreadyStopped
from navarchos.informers.delivery import Delivery
from navarchos.informers.errors import IndexFailed
from navarchos.informers.handlers import Added, Deleted, Notification, Tombstone, Updated
from navarchos.informers.overlay import Overlay
from navarchos.informers.store import Store
from navarchos.logs import get_logger
from navarchos.meta import ResourceVersion, identity_of

__all__ = [
    "MIN_RESYNC_PERIOD",
    "EventProcessor",
    "ProcessorListener",
    "ResyncTimer",
    "clamp_period",
    "is_unchanged",
]

T = TypeVar("T")

MIN_RESYNC_PERIOD: Final = 1.0
"""Shortest resync period in seconds; a shorter one is raised to this."""

_BOOKKEEPING: Final = frozenset({"resourceVersion", "managedFields"})

_log = get_logger(__name__)


class ResyncTimer:
    """The resync period of one handler, and whether replays go to it at present (SI-16 to SI-18).

    A handler is due at the first check at or after its time, and its next time counts from
    that check. So its real interval is a multiple of the check period.

    Threads: guarded by the event processor's lock.

    Attributes:
        syncing: Whether the handler receives replays at present. An update with an
            unchanged resourceVersion counts as one. True until the first check, so that
            without resync a relist reaches every handler.
        wanted: The requested period in seconds; 0 for never.
        period: The period in force.
    """

    def __init__(self, wanted: float, now: float) -> None:
        self.syncing = True
        self.wanted = wanted
        self.period = wanted
        self._next = now + wanted

    def check(self, now: float) -> bool:
        """Return whether the handler is due, and record it as `syncing`."""
        self.syncing = self.period > 0 and now >= self._next
        if self.syncing:
            self._next = now + self.period
        return self.syncing


class ProcessorListener(Generic[T]):
    """A registered handler as the event processor sees it.

    Attributes:
        delivery: The buffer for its notifications.
        timer: Decides when it is due for a resync.
        skip_unchanged: Whether to leave out updates that its projection does not show.
    """

    def __init__(
        self, delivery: Delivery[T], timer: ResyncTimer, *, skip_unchanged: bool = False
    ) -> None:
        self.delivery = delivery
        self.timer = timer
        self.skip_unchanged = skip_unchanged


class EventProcessor(Generic[T]):
    """Applies changes to the store and notifies the handlers, in one order for all of them.

    Promises: see the module. The store has a change before any handler is notified.
    A handler that is added to a running informer gets the present content as its initial
    list, and every later change exactly once (SI-10, RT-05).

    Threads: one thread feeds it; listeners and resyncs come from any thread. The order lock
    is held while index functions run, but never while a handler runs.
    """

    # Lock order: _order_lock, then the overlay's, the store's, a delivery's, the position's.

    def __init__(
        self,
        store: Store[T],
        overlay: Overlay[T],
        *,
        name: str,
        objects: Gauge,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._name = name
        self._store = store
        self._overlay = overlay
        self._position = store.position
        self._objects = objects
        self._clock = clock
        self._order_lock = threading.Lock()
        self._listeners: list[ProcessorListener[T]] = []  # guarded by _order_lock
        self._check_period = 0.0  # guarded by _order_lock; 0: no resyncs
        self._running = False  # guarded by _order_lock
        self._stopped = False  # guarded by _order_lock

    # Changes, from the reflector

    def put(self, key: str, obj: T, version: ResourceVersion) -> None:
        """Apply ADDED or MODIFIED; the store decides which of them it is (FQ-06).

        Raises:
            IndexFailed: An index function raised; nothing changed.
        """
        with self._order_lock:
            old = self._overlay.put(key, obj, version)
            if not self._position.synced:
                self._sync_locked()
            if old is None:
                self._objects.inc(1)
                self._notify_locked((Added(obj, initial=False),))
            else:
                self._notify_locked((Updated(old, obj),))

    def delete(self, key: str, last: T | None, version: ResourceVersion | None) -> None:
        """Apply DELETED. Handlers that never saw the object are not notified.

        Args:
            key: The object's key.
            last: Its final state; `None` if it could not be decoded, and then handlers get
                a tombstone with the last known state (FQ-05).
            version: The version of the deletion, if known.
        """
        with self._order_lock:
            old = self._overlay.remove(key, version)
            if not self._position.synced:
                self._sync_locked()
            if old is not None:
                self._objects.dec(1)
                self._notify_locked([Deleted(Tombstone(key, old) if last is None else last)])

    def replace(
        self, objects: Mapping[str, T], version: ResourceVersion, *, keep: Iterable[str] = ()
    ) -> list[IndexFailed]:
        """Apply a whole list: deletions first, then the list in its order (FQ-02).

        Args:
            objects: The list, by key.
            version: The list's version.
            keep: Keys of objects that are on the server but could not be decoded: if they
                are in the store, they stay as they are.

        Returns:
            Why objects of the list were skipped; they stay as they are in the store.
        """
        with self._order_lock:
            initial = not self._position.synced
            former, content, failed = self._overlay.replace(objects, version, keep=keep)
            if len(content) != len(former):
                self._objects.inc(len(content) - len(former))
            self._notify_locked(_difference(former, content, initial=initial))
            if initial:
                self._sync_locked()
            return failed

    def bookmark(self, version: ResourceVersion) -> None:
        """Apply BOOKMARK: everything up to `version` is in the store."""
        with self._order_lock:
            self._overlay.bookmark(version)

    def stored(self) -> int:
        """Return how many objects are in the store."""
        return len(self._store)

    # Resync, from a timer

    def resync(self) -> None:
        """Replay the store to the handlers that are due (FQ-10). Sends no request."""
        with self._order_lock:
            now = self._clock.monotonic()
            due = [listener for listener in self._listeners if listener.timer.check(now)]
            if not due:
                return
            replay = [Updated(obj, obj) for obj in self._store.values()]
            for listener in due:
                listener.delivery.enqueue(replay)

    # Listeners, from any thread

    def add(self, listener: ProcessorListener[T]) -> None:
        """Register a handler; a running one first gets the present content (SI-10).

        Raises:
            AlreadyStopped: The event processor has been closed.
        """
        with self._order_lock:
            if self._stopped:
                raise AlreadyStopped(f"informer {self._name}")
            self._clamp_locked(listener)
            self._listeners.append(listener)
            if not self._running:
                return
            listener.delivery.start()
            initial = [Added(obj, initial=True) for obj in self._store.values()]
            listener.delivery.enqueue(initial)
            # Only after the list was buffered: otherwise its count could be zero before
            # the first notification is counted (RT-06).
            if self._position.synced:
                listener.delivery.end_initial_list()

    def remove(self, listener: ProcessorListener[T]) -> None:
        """Remove a handler and stop its delivery. May be repeated (SI-13)."""
        with self._order_lock:
            if listener in self._listeners:
                self._listeners.remove(listener)
        listener.delivery.stop("handler removed")

    def unsynced(self) -> list[str]:
        """Return the names of the handlers that have not handled their whole initial list."""
        with self._order_lock:
            return [e.delivery.name for e in self._listeners if not e.delivery.has_synced()]

    def open(self, check_period: float) -> float:
        """Start the deliveries; handlers that are added later get the present content.

        Args:
            check_period: The informer's own resync period in seconds; handlers that
                were added before may lower it (SI-17).

        Returns:
            The period in seconds in which to call `resync()`; 0 for never.
        """
        with self._order_lock:
            self._running = True
            if check_period > 0:
                wanted = [e.timer.wanted for e in self._listeners if e.timer.wanted > 0]
                self._check_period = min([check_period, *wanted])
            for listener in self._listeners:
                self._clamp_locked(listener)
                listener.delivery.start()
            return self._check_period

    def close(self) -> None:
        """Refuse further handlers. Called once, after the last change."""
        with self._order_lock:
            self._stopped = True
            self._objects.dec(len(self._store))

    # All below need _order_lock held

    def _clamp_locked(self, listener: ProcessorListener[T]) -> None:
        if self._running:
            listener.timer.period = clamp_period(
                listener.timer.wanted, self._check_period, handler=listener.delivery.name
            )

    def _sync_locked(self) -> None:
        # Also after a plain event before any list: then the initial list is empty (FQ-07).
        self._position.sync()
        for listener in self._listeners:
            listener.delivery.end_initial_list()

    def _notify_locked(self, notifications: Sequence[Notification[T]]) -> None:
        for listener in self._listeners:
            wanted = [
                each
                for each in notifications
                if type(each) is not Updated or _is_wanted(each, listener)
            ]
            if wanted:
                listener.delivery.enqueue(wanted)


def clamp_period(wanted: float, check_period: float, *, handler: str) -> float:
    """Return the resync period that a handler gets.

    Args:
        wanted: The requested period in seconds; 0 for never.
        check_period: The period in which the informer resyncs; 0 for never.
        handler: For the log.
    """
    if wanted <= 0 or check_period <= 0:
        if wanted > 0:
            reason = "the informer has no resync period"
            _log.warning("resync_impossible", handler=handler, wanted=wanted, error=reason)
        return 0.0
    if wanted < check_period:
        _log.warning("resync_period_raised", handler=handler, wanted=wanted, period=check_period)
    return max(wanted, check_period)


def _difference(
    former: dict[str, T], content: dict[str, T], *, initial: bool
) -> list[Notification[T]]:
    gone: list[Notification[T]] = [
        Deleted(Tombstone(key, obj), initial) for key, obj in former.items() if key not in content
    ]
    return gone + [
        Updated(former[key], obj, initial) if key in former else Added(obj, initial)
        for key, obj in content.items()
    ]


def _is_wanted(update: Updated[T], listener: ProcessorListener[T]) -> bool:
    old, new = update.old, update.new
    if identity_of(old).resource_version == identity_of(new).resource_version:
        # A relist that found the object unchanged counts as a replay (SI-18).
        return listener.timer.syncing
    return not (listener.skip_unchanged and is_unchanged(old, new))


def is_unchanged(old: object, new: object) -> bool:
    """Return whether two versions of an object differ in their resourceVersion only.

    A projection hides most of an object, and so most of its changes: a kubelet's status
    updates change nothing in a node of which only the labels are decoded. Two states with
    the same version are a replay, not an update, and count as changed.
    """
    before, after = identity_of(old), identity_of(new)
    if before.resource_version == after.resource_version or before.uid != after.uid:
        return False
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _content(old) == _content(new)
    return _rest(old) == _rest(new) and _metadata(before) == _metadata(after)


def _content(obj: Mapping[str, object]) -> dict[str, object]:
    metadata = obj["metadata"]
    assert isinstance(metadata, Mapping)  # identity_of has read it
    shown = {key: value for key, value in metadata.items() if key not in _BOOKKEEPING}
    return {**obj, "metadata": shown}


def _rest(obj: object) -> list[object]:
    return [value for name, value in _fields(obj) if name != "metadata"]


def _metadata(metadata: object) -> list[object]:
    return [value for name, value in _fields(metadata) if name != "resource_version"]


def _fields(struct: object) -> list[tuple[str, object]]:
    assert isinstance(struct, msgspec.Struct)  # the only other form of objects
    return [(name, getattr(struct, name)) for name in struct.__struct_fields__]
