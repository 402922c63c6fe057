"""The content of an event, and its JSON."""

import re
import socket
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self

from navarchos.client import Resource
from navarchos.errors import ConfigError, NavarchosError
from navarchos.meta import KeyFailed, Object, format_micro_time, identity_of

__all__ = [
    "EVENTS",
    "EventFacts",
    "EventType",
    "InvalidEvent",
    "Reference",
    "Reporter",
    "SeriesSnapshot",
    "new_event",
    "next_in_series",
]

EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True, type=Object)
"""Responses are decoded as metadata only, since nothing else of them is used."""

# Limits of the server (kubernetes pkg/apis/core/validation/events.go).
_WORD_LIMIT: Final = 128
_NOTE_LIMIT: Final = 1024
_QUALIFIED_NAME: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


class EventType(StrEnum):
    """The types of events that the server accepts."""

    NORMAL = "Normal"
    WARNING = "Warning"


class InvalidEvent(NavarchosError):
    """An event that the server would refuse. Logged and counted, not raised by `record`.

    Attributes:
        why: The reason.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"invalid event: {self.why}"


@dataclass(frozen=True, slots=True)
class Reporter:
    """The reporting component, and its instance."""

    component: str
    instance: str

    @classmethod
    def of(cls, component: str, instance: str = "") -> Self:
        """Return a reporter; the instance is named after the host by default.

        Raises:
            ConfigError: The server would refuse the component or the instance.
        """
        if not _QUALIFIED_NAME.fullmatch(component):
            raise ConfigError("component", component, "it must be a name such as widget-controller")
        if len(instance) > _WORD_LIMIT:
            raise ConfigError("instance", instance, f"it may have at most {_WORD_LIMIT} characters")
        return cls(component, instance or f"{component}-{socket.gethostname()}"[:_WORD_LIMIT])


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str

    @classmethod
    def to(cls, resource: Resource[Any], obj: object) -> Self:
        """Return a reference to an object of a resource.

        Raises:
            KeyFailed: The object has no usable metadata, or no name (EV-03).
        """
        identity = identity_of(obj)
        if not identity.name:
            raise KeyFailed(obj)
        return cls(
            resource.api_version,
            resource.kind,
            identity.namespace,
            identity.name,
            identity.uid,
            identity.resource_version,
        )

    @property
    def identity(self) -> tuple[str, ...]:
        """The fields that identify the object; the version is not among them."""
        return (self.api_version, self.kind, self.namespace, self.name, self.uid)

    def body(self) -> dict[str, object]:
        """Return the reference as JSON, without empty fields."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class EventFacts:
    """An event as recorded, checked against the limits of the server."""

    regarding: Reference
    type: EventType
    reason: str
    action: str
    note: str
    related: Reference | None = None

    @classmethod
    def of(
        cls,
        regarding: Reference,
        type_: str,
        reason: str,
        note: str,
        action: str,
        related: Reference | None = None,
    ) -> Self:
        """Check an event and cut its note. The action defaults to the reason.

        Raises:
            InvalidEvent: The type is unknown (EV-02), or a word is missing or too long.
        """
        if type_ not in tuple(EventType):
            raise InvalidEvent(f"its type is {type_!r}, and must be Normal or Warning")
        for what, word in (("reason", reason), ("action", action or reason)):
            if not 0 < len(word.encode()) <= _WORD_LIMIT:
                raise InvalidEvent(f"its {what} {word!r} must have 1 to {_WORD_LIMIT} characters")
        return cls(regarding, EventType(type_), reason, action or reason, _cut(note), related)

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the series; the note is not part of it (EV-15)."""
        return (*self.subject, self.type, self.reason, self.action)

    @property
    def subject(self) -> tuple[str, ...]:
        """The identity of the object and of the related object."""
        related = self.related.identity if self.related is not None else ()
        return (*self.regarding.identity, *related)

    @property
    def namespace(self) -> str:
        """The namespace of the event (EV-02)."""
        return self.regarding.namespace or "default"


@dataclass(frozen=True, slots=True)
class SeriesSnapshot:
    """The state of a series at the time of a write.

    Attributes:
        facts: The first event of the series.
        name: Of the Event object on the server.
        count: Number of occurrences.
        first_at: Time of the first occurrence.
        last_at: Time of the last occurrence.
        stored: Whether the Event object exists on the server.
    """

    facts: EventFacts
    name: str
    count: int
    first_at: datetime
    last_at: datetime
    stored: bool


def new_event(event: SeriesSnapshot, reporter: Reporter) -> dict[str, object]:
    """Return the body that creates an event.

    The deprecated fields (count, timestamps, source) are omitted: this version of the API
    refuses them, and `kubectl` reads their successors.
    """
    facts = event.facts
    body: dict[str, object] = {
        "metadata": {"name": event.name, "namespace": facts.namespace},
        "eventTime": format_micro_time(event.first_at),
        "type": facts.type.value,
        "reason": facts.reason,
        "action": facts.action,
        "note": facts.note,
        "regarding": facts.regarding.body(),
        "reportingController": reporter.component,
        "reportingInstance": reporter.instance,
    }
    if facts.related is not None:
        body["related"] = facts.related.body()
    return body if event.count == 1 else body | next_in_series(event)


def next_in_series(event: SeriesSnapshot) -> dict[str, object]:
    """Return the merge patch for repeats; the server allows no other field to change."""
    series = {"count": event.count, "lastObservedTime": format_micro_time(event.last_at)}
    return {"series": series}


def _cut(note: str) -> str:
    """Cut a note to the limit, which is in bytes, without splitting a character."""
    raw = note.encode()
    if len(raw) <= _NOTE_LIMIT:
        return note
    return raw[: _NOTE_LIMIT - 3].decode(errors="ignore") + "..."
