"""A recorder that keeps events instead of writing them."""

import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

from navarchos.client import Resource
from navarchos.events import EventType, Reference
from navarchos.meta import identity_of

__all__ = ["FakeRecorder", "RecordedEvent"]


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """A recorded event. Its text is `type reason message` (EV-05).

    Attributes:
        kind: The kind of the object.
        namespace: The namespace of the object; empty for cluster-scoped kinds.
        name: The name of the object.
        type: `NORMAL` or `WARNING`.
        reason: One word.
        message: The text.
        action: One word, or empty.
        related: A related object, if one was given.
    """

    kind: str
    namespace: str
    name: str
    type: EventType
    reason: str
    message: str
    action: str = ""
    related: Reference | None = None

    def __str__(self) -> str:
        return f"{self.type} {self.reason} {self.message}"


class FakeRecorder:
    """Keeps every recorded event for a test.

    Unlike `EventRecorder` it does not aggregate or filter events, and it raises errors that
    `EventRecorder` only logs.

    Args:
        limit: How many events to keep; the oldest are dropped first.

    Threads: safe from any thread.
    """

    def __init__(self, *, limit: int = 1000) -> None:
        self._events_lock = threading.Lock()
        self._events: deque[RecordedEvent] = deque(maxlen=limit)  # guarded by _events_lock

    def record(
        self,
        resource: Resource[Any],
        obj: object,
        type: EventType,  # noqa: A002 - the field's name
        reason: str,
        message: str,
        *,
        action: str = "",
        related: Reference | None = None,
    ) -> None:
        """Keep an event.

        Raises:
            KeyFailed: The object has no metadata.
            ValueError: The type is neither Normal nor Warning.
        """
        identity = identity_of(obj)
        event = RecordedEvent(
            resource.kind,
            identity.namespace,
            identity.name,
            EventType(type),
            reason,
            message,
            action,
            related,
        )
        with self._events_lock:
            self._events.append(event)

    @property
    def events(self) -> list[RecordedEvent]:
        """The recorded events, oldest first."""
        with self._events_lock:
            return list(self._events)

    @property
    def lines(self) -> list[str]:
        """The events as text: `type reason message`."""
        return [str(event) for event in self.events]

    @property
    def reasons(self) -> list[str]:
        """The reasons of the events."""
        return [event.reason for event in self.events]

    def clear(self) -> None:
        """Drop all events."""
        with self._events_lock:
            self._events.clear()
