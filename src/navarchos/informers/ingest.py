"""Between wire and intake: what is kept of an object, and what is left out."""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final, Generic, TypeVar

from navarchos.client.errors import DecodeError
from navarchos.clock import SYSTEM_CLOCK, Clock
from navarchos.informers.errors import IndexFailed, TransformFailed
from navarchos.informers.interning import Interner
from navarchos.informers.metrics import InformerMetrics
from navarchos.informers.paged_list import FetchedList
from navarchos.informers.processor import EventProcessor
from navarchos.informers.source import Event
from navarchos.logs import get_logger
from navarchos.meta import KeyFailed, ResourceVersion, key_of

__all__ = ["Draft", "Ingest", "SkippedObjects", "Transform"]

T = TypeVar("T")

Transform = Callable[[T], T]
"""Trims an object before it is stored; keeps name, namespace, uid and resourceVersion.

One that raises, or returns what has another name or none, leaves the object out."""

_SLOW: Final = 0.1
_SLOW_LIST: Final = 1.0

_log = get_logger(__name__)


class SkippedObjects:
    """Reports what was left out, and remembers it for as long as it is (ST-12).

    An object is left out from the state that could not be taken in until another
    state of it is, it ends, or a list shows it in good order or not at all. Until then
    the cache has it as it was before, or not at all.

    Threads: every method is safe from any thread; one thread writes.
    """

    def __init__(self, resource: str, metrics: InformerMetrics) -> None:
        self._resource = resource
        self._metrics = metrics
        self._whys_lock = threading.Lock()
        self._whys: dict[str, Exception] = {}  # guarded by _whys_lock; by key

    def present(self) -> dict[str, Exception]:
        """Return why objects are left out at present, by key."""
        with self._whys_lock:
            return dict(self._whys)

    def report(self, why: Exception, key: str = "") -> None:
        """Count and log an object that is left out, without remembering it."""
        self._metrics.decode_failures.inc()
        _log.warning(
            "object_left_out",
            resource=self._resource,
            key=key,
            why=str(why),
            # Foreign code's: an index function's, or a transform's.
            exc_info=why if why.__cause__ else None,
        )

    def add(self, key: str, why: Exception) -> None:
        """Report an object, and remember it."""
        self.report(why, key)
        self._change({key: why}, gone=())

    def remove(self, key: str) -> None:
        """Forget an object: the cache has its present state, or it has ended."""
        # Nearly always there is nothing to forget; only this thread adds anything.
        if self._whys:
            self._change({}, gone=(key,))

    def replace(self, whys: Mapping[str, Exception]) -> None:
        """Forget all others: these are what a list could not bring. Already reported."""
        self._change(whys, gone=[key for key in self.present() if key not in whys])

    def close(self) -> None:
        """Take this cache's share out of the gauge. Called once, after all else."""
        self._metrics.skipped.dec(len(self.present()))

    def _change(self, more: Mapping[str, Exception], gone: Collection[str]) -> None:
        with self._whys_lock:
            before = len(self._whys)
            for key in gone:
                self._whys.pop(key, None)
            self._whys.update(more)
            if len(self._whys) != before:
                self._metrics.skipped.inc(len(self._whys) - before)


class Draft(Generic[T]):
    """A list in the making: it replaces the store's content once it is complete.

    An object that is on the server, but that we cannot read, is remembered by key:
    to leave it out would look like its deletion.
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
        """Why others could not be read that are on the server, by key."""
        return self._unreadable

    def put(self, key: str, obj: T) -> None:
        """Enter an object."""
        if self._unreadable:
            self._unreadable.pop(key, None)
        self._objects[key] = obj

    def skip(self, key: str, why: Exception) -> None:
        """Enter an object that is on the server and cannot be read."""
        self._objects.pop(key, None)
        self._unreadable[key] = why

    def remove(self, key: str) -> None:
        """Take an object out."""
        self._objects.pop(key, None)
        self._unreadable.pop(key, None)

    def __len__(self) -> int:
        return len(self._objects)

    def store(self, intake: EventProcessor[T], version: ResourceVersion) -> list[IndexFailed]:
        """Replace the store's content; return why objects were left out only now."""
        return intake.replace(self._objects, version, keep=self._unreadable)


class Ingest(Generic[T]):
    """Transforms what was read and passes it on.

    An object that cannot be decoded, keyed, transformed or indexed never stops the
    others: it is counted, logged and remembered as left out, and what is known of it
    stays. To remove that would look like the object's end, which is worse than an
    older state: whoever waits for a pod's end must not take it for one.

    An object passes the transform once. (Upstream passes it twice in a streaming
    list, and so has to ask that transforms be idempotent, RF-28.)

    What takes long is logged, for the watch waits meanwhile: more than 100 ms for an
    object, or for each of a list, but at most 1 s (FQ-16).

    Threads: one thread feeds it.
    """

    def __init__(
        self,
        intake: EventProcessor[T],
        *,
        resource: str,
        skipped: SkippedObjects,
        sharing: Interner,
        transform: Transform[T] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._intake = intake
        self._resource = resource
        self._skipped = skipped
        self._sharing = sharing
        self._transform = transform

    def share(self, obj: T) -> None:
        """Give an object of a list that is still coming the parts that others have.

        Done when it is stored, it would be done when all copies of them are there.
        """
        self._sharing.share(obj)

    def take_list(self, found: FetchedList[T]) -> None:
        """Replace the store's content with a list of objects that `share` has heard of (RF-12)."""
        began = self._clock.monotonic()
        draft = Draft[T]()
        for failure in found.failures:
            self._enter_failure(draft, failure)
        for obj in found.items:
            self._enter(draft, obj, is_shared=self._transform is None)
        self._store(draft, found.version)
        self._report_slow(began, len(draft))

    def stored(self) -> int:
        """Return how many objects are in the store."""
        return self._intake.stored()

    def draft(self, draft: Draft[T], event: Event[T]) -> None:
        """Apply an event of a streamed list to the draft of it."""
        if event.failure is not None:
            self._enter_failure(draft, event.failure)
        elif event.object is not None and event.type == "DELETED":
            draft.remove(key_of(event.object))
        elif event.object is not None:
            self._enter(draft, event.object)

    def take_draft(self, draft: Draft[T], version: ResourceVersion) -> None:
        """Replace the store's content with a complete draft (RF-25)."""
        began = self._clock.monotonic()
        self._store(draft, version)
        self._report_slow(began, len(draft))

    def take_event(self, event: Event[T]) -> bool:
        """Apply an event of a watch (RF-16).

        Returns:
            False if it was skipped as unreadable, so that it does not count as
            seen (RF-19).
        """
        began = self._clock.monotonic()
        try:
            if event.type == "BOOKMARK":
                self._intake.bookmark(ResourceVersion(event.resource_version))
                return True
            return self._delete(event) if event.type == "DELETED" else self._put(event)
        except KeyFailed as error:
            self._skipped.report(error)
            return False
        finally:
            self._report_slow(began, 1)

    def _put(self, event: Event[T]) -> bool:
        if event.object is None:
            self._undecodable(event.failure)
            return False
        key = key_of(event.object)
        try:
            obj = event.object
            if self._transform is not None:
                obj = self._transformed(key, obj)
            self._sharing.share(obj)
            self._intake.put(key, obj, ResourceVersion(event.resource_version))
        except (IndexFailed, TransformFailed) as error:
            self._skipped.add(key, error)
        else:
            self._skipped.remove(key)
        return True

    def _delete(self, event: Event[T]) -> bool:
        version = ResourceVersion(event.resource_version) or None
        if event.object is not None:
            key = key_of(event.object)
            self._intake.delete(key, self._last_state(key, event.object), version)
        else:
            self._undecodable(event.failure)
            if event.failure is None or not event.failure.name:
                return False
            # The final state is illegible, but the end is not: a tombstone will do.
            key = event.failure.key
            self._intake.delete(key, None, version)
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

    def _enter(self, draft: Draft[T], obj: T, *, is_shared: bool = False) -> None:
        try:
            key = key_of(obj)
        except KeyFailed as error:
            self._skipped.report(error)
            return
        try:
            if self._transform is not None:
                obj = self._transformed(key, obj)
            if not is_shared:
                self._sharing.share(obj)  # mutant: keep-equal-parts, look-at-each
            draft.put(key, obj)
        except TransformFailed as error:
            self._skipped.report(error, key)
            draft.skip(key, error)

    def _enter_failure(self, draft: Draft[T], failure: DecodeError) -> None:
        self._skipped.report(failure, failure.key)
        if failure.name:
            draft.skip(failure.key, failure)

    def _store(self, draft: Draft[T], version: ResourceVersion) -> None:
        failed = {error.key: error for error in draft.store(self._intake, version)}
        for key, error in failed.items():
            self._skipped.report(error, key)
        self._skipped.replace({**draft.unreadable, **failed})
        self._sharing.end_list()

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
            _log.info("cache_is_slow", resource=self._resource, seconds=seconds, objects=objects)
