"""Between wire and intake: what is kept of an object, and what is left out."""

from collections.abc import Callable
from typing import Generic, TypeVar

from navarchos.informers.deltas import Intake
from navarchos.informers.errors import IndexFailed
from navarchos.informers.listing import Fetched
from navarchos.informers.metrics import InformerMetrics
from navarchos.informers.source import Event
from navarchos.logs import get_logger
from navarchos.meta import KeyFailed, ResourceVersion, key_of

__all__ = ["Draft", "Ingest", "Transform"]

T = TypeVar("T")

Transform = Callable[[T], T]
"""Trims an object before it is stored; keeps name, namespace, uid and resourceVersion."""

_log = get_logger(__name__)


class Draft(Generic[T]):
    """A list in the making: it replaces the store's content once it is complete.

    An object that is on the server, but that we cannot read, is remembered by key:
    to leave it out would look like its deletion.
    """

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}
        self._unreadable: dict[str, None] = {}  # never in _objects

    def put(self, key: str, obj: T | None) -> None:
        """Enter an object; `None` for one that cannot be read."""
        if obj is None:
            self._objects.pop(key, None)
            self._unreadable[key] = None
        else:
            self._unreadable.pop(key, None)
            self._objects[key] = obj

    def remove(self, key: str) -> None:
        """Take an object out."""
        self._objects.pop(key, None)
        self._unreadable.pop(key, None)

    def store(self, intake: Intake[T], version: ResourceVersion) -> None:
        """Replace the store's content."""
        intake.replace(self._objects.values(), version, keep=self._unreadable)


class Ingest(Generic[T]):
    """Transforms what was read and passes it on.

    An object that cannot be decoded, keyed, transformed or indexed never stops the
    others: it is counted and logged, and what is known of it stays.

    An object passes the transform once. (Upstream passes it twice in a streaming
    list, and so has to ask that transforms be idempotent, RF-28.)

    Threads: one thread feeds it.
    """

    def __init__(
        self,
        intake: Intake[T],
        *,
        resource: str,
        metrics: InformerMetrics,
        transform: Transform[T] | None = None,
    ) -> None:
        self._intake = intake
        self._resource = resource
        self._metrics = metrics
        self._transform = transform

    def take_list(self, found: Fetched[T]) -> None:
        """Replace the store's content with a list (RF-12).

        Raises:
            IndexFailed: An index function raised; nothing changed.
        """
        draft = Draft[T]()
        for failure in found.failures:
            self._left_out(failure)
            draft.put(failure.key, None)
        for obj in found.items:
            self._enter(draft, obj)
        draft.store(self._intake, found.version)

    def draft(self, draft: Draft[T], event: Event[T]) -> None:
        """Apply an event of a streamed list to the draft of it."""
        if event.failure is not None:
            self._left_out(event.failure)
            draft.put(event.failure.key, None)
        elif event.object is not None and event.type == "DELETED":
            draft.remove(key_of(event.object))
        elif event.object is not None:
            self._enter(draft, event.object)

    def take_draft(self, draft: Draft[T], version: ResourceVersion) -> None:
        """Replace the store's content with a complete draft (RF-25).

        Raises:
            IndexFailed: An index function raised; nothing changed.
        """
        draft.store(self._intake, version)

    def take_event(self, event: Event[T]) -> bool:
        """Apply an event of a watch (RF-16).

        Returns:
            False if it was skipped as unreadable, so that it does not count as
            seen (RF-19).
        """
        try:
            if event.type == "BOOKMARK":
                self._intake.bookmark(ResourceVersion(event.resource_version))
                return True
            return self._delete(event) if event.type == "DELETED" else self._put(event)
        except KeyFailed as error:
            self._left_out(error)
            return False
        except IndexFailed as error:
            self._left_out(error)
            return True

    def _put(self, event: Event[T]) -> bool:
        if event.object is None:
            self._left_out(event.failure)
            return False
        obj = self._transformed(event.object)
        if obj is not None:
            self._intake.put(obj)
        return True

    def _delete(self, event: Event[T]) -> bool:
        version = ResourceVersion(event.resource_version) or None
        if event.object is not None:
            key = key_of(event.object)
            self._intake.delete(key, self._transformed(event.object), version)
            return True
        self._left_out(event.failure)
        if event.failure is None or not event.failure.name:
            return False
        # The final state is illegible, but the end is not: a tombstone will do.
        self._intake.delete(event.failure.key, None, version)
        return True

    def _enter(self, draft: Draft[T], obj: T) -> None:
        try:
            key = key_of(obj)
        except KeyFailed as error:
            self._left_out(error)
        else:
            draft.put(key, self._transformed(obj))

    def _transformed(self, obj: T) -> T | None:
        if self._transform is None:
            return obj
        try:
            return self._transform(obj)
        except Exception as error:  # noqa: BLE001 - foreign code; counted and logged
            self._left_out(error, key=key_of(obj))
            return None

    def _left_out(self, why: Exception | None, *, key: str = "") -> None:
        self._metrics.decode_failures.inc()
        _log.warning(
            "object_left_out",
            resource=self._resource,
            key=key or getattr(why, "key", ""),
            why=str(why),
            exc_info=why if key else None,
        )
