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
    """An event as it was recorded. Its text is `type reason message` (EV-05).

    Attributes:
        kind: Of the object.
        namespace: Of the object; empty for cluster-scoped kinds.
        name: Of the object.
        type: `NORMAL` or `WARNING`.
        reason: One word.
        message: For people.
        action: One word, or empty.
        related: Another object that it has to do with, if one was named.
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
    """Keeps what is recorded, every occurrence of it, for a test to look at.

    Unlike `EventRecorder` it counts nothing together and filters nothing, and it
    raises what that one would only log: a test wants to know.

    Args:
        limit: How many events are kept; the oldest go first.

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
        """What was recorded, oldest first."""
        with self._events_lock:
            return list(self._events)

    @property
    def lines(self) -> list[str]:
        """The same as text: `type reason message`."""
        return [str(event) for event in self.events]

    @property
    def reasons(self) -> list[str]:
        """The reasons alone."""
        return [event.reason for event in self.events]

    def clear(self) -> None:
        """Forget everything."""
        with self._events_lock:
            self._events.clear()
