"""What an event says, and how it is written on the wire."""

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
"""Of the answer nothing but the metadata is of interest."""

# Limits of the server (kubernetes pkg/apis/core/validation/events.go).
_WORD_LIMIT: Final = 128
_NOTE_LIMIT: Final = 1024
_QUALIFIED_NAME: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


class EventType(StrEnum):
    """How bad it is; the server knows no other types."""

    NORMAL = "Normal"
    WARNING = "Warning"


class InvalidEvent(NavarchosError):
    """An event that the server would refuse. Logged and counted, never raised to users.

    Attributes:
        why: What is wrong with it.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"not an event: {self.why}"


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports: a component, and which of its instances."""

    component: str
    instance: str

    @classmethod
    def of(cls, component: str, instance: str = "") -> Self:
        """Return a reporter; the instance is named after the machine by default.

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
            KeyFailed: It has no usable metadata, or no name (EV-03).
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
        """What tells one object from another; its version does not."""
        return (self.api_version, self.kind, self.namespace, self.name, self.uid)

    def body(self) -> dict[str, object]:
        """Return the reference on the wire, without what is empty."""
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
    """An event as its author gave it, in the limits of the server."""

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
        """Check and cut to size. The server demands an action: the reason stands in.

        Raises:
            InvalidEvent: The type is unknown (EV-02), or a word is missing or long.
        """
        if type_ not in tuple(EventType):
            raise InvalidEvent(f"its type is {type_!r}, and must be Normal or Warning")
        for what, word in (("reason", reason), ("action", action or reason)):
            if not 0 < len(word.encode()) <= _WORD_LIMIT:
                raise InvalidEvent(f"its {what} {word!r} must have 1 to {_WORD_LIMIT} characters")
        return cls(regarding, EventType(type_), reason, action or reason, _cut(note), related)

    @property
    def key(self) -> tuple[str, ...]:
        """Events with this in common are one series; the note plays no part (EV-15)."""
        return (*self.subject, self.type, self.reason, self.action)

    @property
    def subject(self) -> tuple[str, ...]:
        """What it is about: one object, or one and another that it has to do with."""
        related = self.related.identity if self.related is not None else ()
        return (*self.regarding.identity, *related)

    @property
    def namespace(self) -> str:
        """Where the event lives (EV-02)."""
        return self.regarding.namespace or "default"


@dataclass(frozen=True, slots=True)
class SeriesSnapshot:
    """A series as it stood when it was taken for writing.

    Attributes:
        facts: Of its first event.
        name: Of the object on the server.
        count: Occurrences so far.
        first_at: When it occurred first.
        last_at: When it occurred last.
        stored: Whether the server has it already.
    """

    facts: EventFacts
    name: str
    count: int
    first_at: datetime
    last_at: datetime
    stored: bool


def new_event(event: SeriesSnapshot, reporter: Reporter) -> dict[str, object]:
    """Return the body that creates an event.

    The deprecated fields (count, timestamps, source) stay out: this version of
    the API refuses them, and `kubectl` reads their successors.
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
    """Return the merge patch that tells of repeats; no other field may change."""
    series = {"count": event.count, "lastObservedTime": format_micro_time(event.last_at)}
    return {"series": series}


def _cut(note: str) -> str:
    """The server counts bytes; a cut must not leave half a character."""
    raw = note.encode()
    if len(raw) <= _NOTE_LIMIT:
        return note
    return raw[: _NOTE_LIMIT - 3].decode(errors="ignore") + "..."
