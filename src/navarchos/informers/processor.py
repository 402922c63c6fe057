"""The ordered intake: each change goes to the store first, then to the handlers.

Where client-go queues deltas and lets a second thread pop them, here the thread
that reads the watch applies each delta itself, under one lock. The promises of the
queue hold by construction, with nothing in between that could be reordered:

- One entry per event, in arrival order, across all keys (FQ-01): nothing overtakes
  a thread that does one thing after the other.
- A relist is one step, and is reconciled with the store as it is at that moment
  (FQ-02, FQ-03, FQ-04); there are no objects that are "only in the queue".
- A resync is one step under the same lock, so no replay is older than a change that
  came before it (FQ-10, RT-04).
- Back-pressure is complete (FQ-13): the watch is not read on while a change is
  being applied. Handlers do not slow it, for they have buffers of their own.

What is given up is reading the socket ahead of a slow index function; what is
gained is a thread less per informer and no window between arrival and store.
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
from navarchos.informers.position import CachePosition
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


class ResyncTimer:
    """One handler's resync: its period, and whether replays go to it at present.

    A handler is due at the first check at or after its time, and its next time
    counts from that check; so its real interval is a multiple of the check period.

    Threads: none of its own; the intake's lock guards it.

    Attributes:
        syncing: Whether the handler takes part in replays, which an update with an
            unchanged resourceVersion counts as. True until the first check, so
            that without resync a relist reaches everybody.
        wanted: The period asked for, in seconds; 0 for never.
        period: The period in force.
    """

    def __init__(self, wanted: float, now: float) -> None:
        self.syncing = True
        self.wanted = wanted
        self.period = wanted
        self._next = now + wanted

    def check(self, now: float) -> bool:
        """Decide whether the handler is due, and remember it as `syncing`."""
        self.syncing = self.period > 0 and now >= self._next
        if self.syncing:
            self._next = now + self.period
        return self.syncing


class ProcessorListener(Generic[T]):
    """A registered handler as the intake sees it.

    Attributes:
        delivery: Where its notifications go.
        timer: When it is due for a resync.
        skip_unchanged: Whether it wants to hear only of changes that its projection
            shows.
    """

    def __init__(
        self, delivery: Delivery[T], timer: ResyncTimer, *, skip_unchanged: bool = False
    ) -> None:
        self.delivery = delivery
        self.timer = timer
        self.skip_unchanged = skip_unchanged


class EventProcessor(Generic[T]):
    """Applies deltas to the store and tells the handlers, in one order for all.

    Promises: see the module. The store has a change before any handler hears of
    it. A handler added in the middle gets the present content as its initial list
    and every later change exactly once (SI-10, RT-05).

    Threads: one thread feeds it; listeners and resyncs come from any thread. The
    order lock is held while index functions run, but never while a handler does.
    """

    # Lock order: _order_lock, then the overlay's, the store's, a delivery's, progress's.

    def __init__(
        self,
        store: Store[T],
        overlay: Overlay[T],
        progress: CachePosition,
        *,
        name: str,
        objects: Gauge,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._name = name
        self._store = store
        self._overlay = overlay
        self._progress = progress
        self._objects = objects
        self._clock = clock
        self._order_lock = threading.Lock()
        self._listeners: list[ProcessorListener[T]] = []  # guarded by _order_lock
        self._check_period = 0.0  # guarded by _order_lock; 0: nobody is resynced
        self._running = False  # guarded by _order_lock
        self._synced = False  # guarded by _order_lock; as progress has it, for this thread
        self._stopped = False  # guarded by _order_lock

    # Deltas, from the reflector

    def put(self, key: str, obj: T, version: ResourceVersion) -> None:
        """Apply ADDED or MODIFIED: which of them it is, the store knows better (FQ-06).

        Raises:
            IndexFailed: An index function raised; nothing changed.
        """
        with self._order_lock:
            old = self._overlay.put(key, obj, version)
            self._absorbed_locked(version, 1 if old is None else 0)
            told = Added(obj, initial=False) if old is None else Updated(old, obj)
            self._tell_locked((told,))

    def delete(self, key: str, last: T | None, version: ResourceVersion | None) -> None:
        """Apply DELETED. An object that handlers never heard of ends unheard of, too.

        Args:
            key: Of the object.
            last: Its final state; `None` if it could not be read, and then handlers
                get a tombstone with the state known before (FQ-05).
            version: That of the deletion, if known.
        """
        with self._order_lock:
            old = self._overlay.remove(key, version)
            known = old is not None
            self._absorbed_locked(version or self._store.resource_version, -1 if known else 0)
            if known:
                self._tell_locked([Deleted(Tombstone(key, old) if last is None else last)])

    def replace(
        self, objects: Mapping[str, T], version: ResourceVersion, *, keep: Iterable[str] = ()
    ) -> list[IndexFailed]:
        """Apply a whole list: deletions first, then the list in its order (FQ-02).

        Args:
            objects: The list, by key.
            version: The list's version.
            keep: Keys of objects that are on the server but could not be read: if
                they are known here, they stay as they are.

        Returns:
            Why objects of the list were left out; they stay as they are known here.
        """
        with self._order_lock:
            initial = not self._synced
            former, content, failed = self._overlay.replace(objects, version, keep=keep)
            self._absorbed_locked(version, len(content) - len(former), listed=True)
            self._tell_locked(_difference(former, content, initial=initial))
            self._sync_locked()
            return failed

    def bookmark(self, version: ResourceVersion) -> None:
        """Apply BOOKMARK: everything up to `version` is in the store."""
        with self._order_lock:
            self._overlay.bookmark(version)
            self._progress.advance(version)

    def stored(self) -> int:
        """Return how many objects are in the store."""
        return len(self._store)

    # Resync, from a timer

    def resync(self) -> None:
        """Replay the store to the handlers that are due (FQ-10). Asks no server."""
        with self._order_lock:
            now = self._clock.monotonic()
            due = [listener for listener in self._listeners if listener.timer.check(now)]
            if not due:
                return
            replay = [Updated(obj, obj) for obj in self._store.values()]
            for listener in due:
                listener.delivery.enqueue(replay)

    # Listeners, from anywhere

    def add(self, listener: ProcessorListener[T]) -> None:
        """Register a handler; a running one gets the present content first (SI-10).

        Raises:
            AlreadyStopped: The intake has been closed.
        """
        with self._order_lock:
            if self._stopped:
                raise AlreadyStopped(f"informer {self._name}")
            self._settle_locked(listener)
            self._listeners.append(listener)
            if not self._running:
                return
            listener.delivery.start()
            initial = [Added(obj, initial=True) for obj in self._store.values()]
            listener.delivery.enqueue(initial)
            # Only now: else its count could be zero before it began (RT-06).
            if self._synced:
                listener.delivery.end_initial_list()

    def remove(self, listener: ProcessorListener[T]) -> None:
        """Forget a handler and stop its delivery; harmless when repeated (SI-13)."""
        with self._order_lock:
            if listener in self._listeners:
                self._listeners.remove(listener)
        listener.delivery.stop("handler removed")

    def unsynced(self) -> list[str]:
        """Return the names of the handlers that still owe part of their initial list."""
        with self._order_lock:
            return [e.delivery.name for e in self._listeners if not e.delivery.has_synced()]

    def open(self, check_period: float) -> float:
        """Start the deliveries; from now on handlers added get the present content.

        Args:
            check_period: The informer's own resync period in seconds; handlers that
                were added before may lower it (SI-17).

        Returns:
            How often `resync()` is to be called, in seconds; 0 for never.
        """
        with self._order_lock:
            self._running = True
            if check_period > 0:
                wanted = [e.timer.wanted for e in self._listeners if e.timer.wanted > 0]
                self._check_period = min([check_period, *wanted])
            for listener in self._listeners:
                self._settle_locked(listener)
                listener.delivery.start()
            return self._check_period

    def close(self) -> None:
        """Refuse further handlers. Called once, when no further delta will come."""
        with self._order_lock:
            self._stopped = True
            self._objects.dec(len(self._store))

    # All below need _order_lock held

    def _settle_locked(self, listener: ProcessorListener[T]) -> None:
        if self._running:
            listener.timer.period = clamp_period(
                listener.timer.wanted, self._check_period, handler=listener.delivery.name
            )

    def _absorbed_locked(
        self, version: ResourceVersion, more: int, *, listed: bool = False
    ) -> None:
        if more:
            self._objects.inc(more)
        self._progress.advance(version, listed=listed)
        if not listed and not self._synced:
            # A plain event before any list: there is no initial list (FQ-07).
            self._sync_locked()

    def _sync_locked(self) -> None:
        if not self._synced:
            self._synced = True
            self._progress.sync()
            for listener in self._listeners:
                listener.delivery.end_initial_list()

    def _tell_locked(self, notifications: Sequence[Notification[T]]) -> None:
        for listener in self._listeners:
            wanted = [
                each
                for each in notifications
                if type(each) is not Updated or _is_wanted(each, listener)
            ]
            if wanted:
                listener.delivery.enqueue(wanted)


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
        # A relist that found the object as it was counts as a replay (SI-18).
        return listener.timer.syncing
    return not (listener.skip_unchanged and is_unchanged(old, new))


_BOOKKEEPING: Final = frozenset({"resourceVersion", "managedFields"})


def is_unchanged(old: object, new: object) -> bool:
    """Tell whether two versions of an object differ in their resourceVersion alone.

    A projection hides most of an object, and so most of its changes: a kubelet's
    status updates change nothing of a node that is known by its labels. Two states
    of one version are a replay, not an update, and count as changed.
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


MIN_RESYNC_PERIOD: Final = 1.0
"""Seconds; a smaller resync period is raised to this."""

_log = get_logger(__name__)


def clamp_period(wanted: float, check_period: float, *, handler: str) -> float:
    """Return the period that a handler gets.

    Args:
        wanted: What it asked for in seconds; 0 for never.
        check_period: How often the informer looks; 0 when it never does.
        handler: For the log.
    """
    if wanted <= 0 or check_period <= 0:
        if wanted > 0:
            _log.warning("resync_impossible", handler=handler, wanted=wanted, why="informer has 0")
        return 0.0
    if wanted < check_period:
        _log.warning("resync_period_raised", handler=handler, wanted=wanted, period=check_period)
    return max(wanted, check_period)
