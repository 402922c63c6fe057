"""From decoded objects to the event processor: transform, intern, and skip broken ones."""

import threading
from collections.abc import Collection, Mapping
from typing import Final, Generic, TypeVar

from navarchos.client.errors import DecodeError
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.informers.errors import IndexFailed, TransformFailed
from navarchos.informers.interning import Interner
from navarchos.informers.metrics import InformerMetrics
from navarchos.informers.options import Transform
from navarchos.informers.paged_list import FetchedList
from navarchos.informers.processor import EventProcessor
from navarchos.informers.source import Event
from navarchos.logs import get_logger
from navarchos.meta import KeyFailed, ResourceVersion, key_of

__all__ = ["Draft", "Ingest", "SkippedObjects"]

T = TypeVar("T")

_SLOW: Final = 0.1
_SLOW_LIST: Final = 1.0

_log = get_logger(__name__)


class SkippedObjects:
    """Reports skipped objects, and records for how long the cache is without them (ST-12).

    An object is skipped when a state of it cannot be taken into the cache. It counts as
    skipped until another state of it is taken in, it is deleted, or a list has it in good
    order or does not have it. Until then the cache has its earlier state, or no state.

    Threads: every method is safe from any thread; one thread writes.
    """

    def __init__(self, kind: str, metrics: InformerMetrics) -> None:
        self._kind = kind
        self._metrics = metrics
        self._errors_lock = threading.Lock()
        self._errors: dict[str, Exception] = {}  # guarded by _errors_lock; by key

    def snapshot(self) -> dict[str, Exception]:
        """Return the error of each object that is skipped at present, by key."""
        with self._errors_lock:
            return dict(self._errors)

    def report(self, error: Exception, key: str = "") -> None:
        """Count and log a skipped object without recording it."""
        self._metrics.decode_failures.inc()
        namespace, _, name = key.rpartition("/")
        _log.warning(
            "object_skipped",
            kind=self._kind,
            namespace=namespace,
            name=name,
            error=str(error),
            # Of user code only: an index function, or a transform.
            exc_info=error if error.__cause__ else None,
        )

    def add(self, key: str, error: Exception) -> None:
        """Report a skipped object, and record it."""
        self.report(error, key)
        self._change({key: error}, gone=())

    def remove(self, key: str) -> None:
        """Remove the record of an object: the cache has its present state, or it is deleted."""
        # Records are rare. Reading without the lock is safe, because only
        # this thread adds records.
        if self._errors:
            self._change({}, gone=(key,))

    def replace(self, errors: Mapping[str, Exception]) -> None:
        """Replace all records by the skipped objects of a list. They are reported already."""
        self._change(errors, gone=[key for key in self.snapshot() if key not in errors])

    def close(self) -> None:
        """Subtract this cache's records from the gauge. Called once, at the end."""
        self._metrics.skipped.dec(len(self.snapshot()))

    def _change(self, more: Mapping[str, Exception], gone: Collection[str]) -> None:
        with self._errors_lock:
            before = len(self._errors)
            for key in gone:
                self._errors.pop(key, None)
            self._errors.update(more)
            if len(self._errors) != before:
                self._metrics.skipped.inc(len(self._errors) - before)


class Draft(Generic[T]):
    """An incomplete list; it replaces the store's content once it is complete.

    An object that is on the server but cannot be decoded is recorded by key. If it were
    simply missing, that would look like its deletion.
    """

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}
        self._unreadable: dict[str, Exception] = {}  # never in _objects

    @property
    def objects(self) -> Mapping[str, T]:
        """The objects by key, as they are going to be stored."""
        return self._objects

    @property
    def unreadable(self) -> Mapping[str, Exception]:
        """The errors of other objects, which are on the server but are skipped, by key."""
        return self._unreadable

    def put(self, key: str, obj: T) -> None:
        """Enter an object."""
        if self._unreadable:
            self._unreadable.pop(key, None)
        self._objects[key] = obj

    def skip(self, key: str, error: Exception) -> None:
        """Enter an object that is on the server but is skipped."""
        self._objects.pop(key, None)
        self._unreadable[key] = error

    def remove(self, key: str) -> None:
        """Remove an object."""
        self._objects.pop(key, None)
        self._unreadable.pop(key, None)

    def __len__(self) -> int:
        return len(self._objects)

    def store(self, processor: EventProcessor[T], version: ResourceVersion) -> list[IndexFailed]:
        """Replace the store's content; return why objects were skipped only in this step."""
        return processor.replace(self._objects, version, keep=self._unreadable)


class Ingest(Generic[T]):
    """Transforms decoded objects and passes them to the event processor.

    An object that cannot be decoded, keyed, transformed or indexed never stops the others:
    it is counted, logged and recorded as skipped, and its last known state stays in the
    store. To remove that state would look like the object's deletion, which is worse than
    an older state: a client that waits for the end of a pod must not be misled.

    An object passes the transform once. (In client-go it passes it twice in a streaming
    list, so transforms there must be idempotent, RF-28.)

    A slow step is logged, because the watch waits meanwhile: more than 100 ms for an
    object, or for each object of a list, but at most 1 s for a list (FQ-16).

    Threads: one thread feeds it.
    """

    def __init__(
        self,
        processor: EventProcessor[T],
        *,
        kind: str,
        skipped: SkippedObjects,
        interner: Interner,
        transform: Transform[T] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._processor = processor
        self._kind = kind
        self._skipped = skipped
        self._interner = interner
        self._transform = transform

    def intern(self, obj: T) -> None:
        """Intern the parts of an object of a list that is still incomplete.

        If this were done when the list is stored, all copies of equal parts would exist
        at that moment.
        """
        self._interner.intern(obj)

    def take_list(self, found: FetchedList[T]) -> None:
        """Replace the store's content by a list whose objects have passed `intern` (RF-12)."""
        began = self._clock.monotonic()
        draft = Draft[T]()
        for failure in found.failures:
            self._enter_failure(draft, failure)
        for obj in found.items:
            self._enter(draft, obj, is_interned=self._transform is None)
        self._store(draft, found.version)
        self._report_slow(began, len(draft))

    def stored(self) -> int:
        """Return how many objects are in the store."""
        return self._processor.stored()

    def draft(self, draft: Draft[T], event: Event[T]) -> None:
        """Apply an event of a streamed list to its draft."""
        if event.failure is not None:
            self._enter_failure(draft, event.failure)
        elif event.object is not None and event.type == "DELETED":
            draft.remove(key_of(event.object))
        elif event.object is not None:
            self._enter(draft, event.object)

    def take_draft(self, draft: Draft[T], version: ResourceVersion) -> None:
        """Replace the store's content by a complete draft (RF-25)."""
        began = self._clock.monotonic()
        self._store(draft, version)
        self._report_slow(began, len(draft))

    def take_event(self, event: Event[T]) -> bool:
        """Apply an event of a watch (RF-16).

        Returns:
            False if the event could not be read and was skipped, so that its version does
            not count as seen (RF-19).
        """
        began = self._clock.monotonic()
        try:
            if event.type == "BOOKMARK":
                self._processor.bookmark(event.resource_version)
                return True
            return self._delete(event) if event.type == "DELETED" else self._put(event)
        except KeyFailed as error:
            self._skipped.report(error)
            return False
        finally:
            self._report_slow(began, 1)

    def _put(self, event: Event[T]) -> bool:
        obj = event.object
        if obj is None:
            self._undecodable(event.failure)
            return False
        key = key_of(obj)
        try:
            if self._transform is not None:
                obj = self._transformed(key, obj)
            self._interner.intern(obj)  # mutant: look-at-each-event
            self._processor.put(key, obj, event.resource_version)
        except (IndexFailed, TransformFailed) as error:
            self._skipped.add(key, error)
        else:
            self._skipped.remove(key)
        return True

    def _delete(self, event: Event[T]) -> bool:
        version = event.resource_version or None
        if event.object is not None:
            key = key_of(event.object)
            self._processor.delete(key, self._last_state(key, event.object), version)
        else:
            self._undecodable(event.failure)
            if event.failure is None or not event.failure.name:
                return False
            # The final state cannot be decoded, but the object is known to be deleted, so
            # handlers get a tombstone.
            key = event.failure.key
            self._processor.delete(key, None, version)
        self._skipped.remove(key)
        return True

    def _last_state(self, key: str, obj: T) -> T | None:
        try:
            return self._transformed(key, obj)
        except TransformFailed as error:
            self._skipped.report(error, key)
            return None

    def _undecodable(self, failure: DecodeError | None) -> None:
        if failure is not None and failure.name:
            self._skipped.add(failure.key, failure)
        elif failure is not None:
            self._skipped.report(failure)

    def _enter(self, draft: Draft[T], obj: T, *, is_interned: bool = False) -> None:
        try:
            key = key_of(obj)
        except KeyFailed as error:
            self._skipped.report(error)
            return
        try:
            if self._transform is not None:
                obj = self._transformed(key, obj)
            if not is_interned:
                self._interner.intern(obj)  # mutant: keep-equal-parts, look-at-each
            draft.put(key, obj)
        except TransformFailed as error:
            self._skipped.report(error, key)
            draft.skip(key, error)

    def _enter_failure(self, draft: Draft[T], failure: DecodeError) -> None:
        self._skipped.report(failure, failure.key)
        if failure.name:
            draft.skip(failure.key, failure)

    def _store(self, draft: Draft[T], version: ResourceVersion) -> None:
        failed = {error.key: error for error in draft.store(self._processor, version)}
        for key, error in failed.items():
            self._skipped.report(error, key)
        self._skipped.replace({**draft.unreadable, **failed})
        self._interner.end_list()

    def _transformed(self, key: str, obj: T) -> T:
        if self._transform is None:
            return obj
        try:
            trimmed = self._transform(obj)
            is_same = key_of(trimmed) == key
        except Exception as error:
            raise TransformFailed(key, repr(error)) from error
        if not is_same:
            raise TransformFailed(key, f"it returned {key_of(trimmed)}")
        return trimmed

    def _report_slow(self, began: float, objects: int) -> None:
        seconds = self._clock.monotonic() - began
        if seconds > _SLOW and seconds > min(_SLOW * max(objects, 1), _SLOW_LIST):
            _log.info("cache_is_slow", resource=self._kind, seconds=seconds, objects=objects)
