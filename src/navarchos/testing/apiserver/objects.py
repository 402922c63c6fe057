"""Helpers for JSON objects, and the API's formats of time."""

import random
import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

__all__ = [
    "TIME_LAYOUT",
    "JsonObject",
    "JsonValue",
    "conditions_of",
    "copy_json",
    "dig",
    "encode",
    "is_condition_true",
    "is_micro_time",
    "is_rfc3339",
    "meta",
    "micro_timestamp",
    "name_suffix",
    "new_uid",
    "owner_references",
    "timestamp",
]

JsonValue: TypeAlias = Any
"""Any JSON value. The server handles objects of every shape."""

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object. Objects that the store returns are read-only."""

_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of generated names: no vowels, no similar letters (apimachinery's rand)."""

_RFC3339: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?P<fraction>\.\d+)?(Z|[+-]\d{2}:\d{2})"
)
TIME_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
"""Go's name of the format."""

_encoder = msgspec.json.Encoder()


def encode(value: object) -> bytes:
    """Return `value` as compact JSON."""
    return _encoder.encode(value)


def copy_json(value: JsonValue) -> JsonValue:
    """Return a deep copy of JSON; several times faster than `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_json(item) for item in value]
    return value


def meta(obj: Mapping[str, Any]) -> JsonObject:
    """Return the object's `metadata`, or an empty dict that is not part of the object."""
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def dig(value: JsonValue, *path: str, default: JsonValue = None) -> JsonValue:
    """Return the value at `path` in nested objects; `default` if it is absent or null."""
    for step in path:
        if not isinstance(value, dict):
            return default
        value = value.get(step)
    return default if value is None else value


def owner_references(obj: Mapping[str, Any]) -> list[JsonObject]:
    """Return `metadata.ownerReferences`; empty if they are absent or null."""
    return meta(obj).get("ownerReferences") or []


def conditions_of(obj: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Iterate `status.conditions`."""
    yield from dig(obj, "status", "conditions", default=[])


def is_condition_true(obj: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition of that type exists and is `True`."""
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions_of(obj))


def timestamp(at: datetime | None = None) -> str:
    """Return a time, now by default, in the format of the API's `Time`: UTC, whole seconds."""
    return (at or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(at: datetime | None = None) -> str:
    """Return a time, now by default, in the format of the API's `MicroTime`: six digits."""
    return (at or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def is_rfc3339(value: str) -> bool:
    """Return whether `value` is a valid date and time with a zone."""
    if not _RFC3339.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def is_micro_time(value: str) -> bool:
    """Return whether `value` is a time with exactly six fractional digits."""
    match = _RFC3339.fullmatch(value)
    return match is not None and len(match["fraction"] or "") == 7 and is_rfc3339(value)


def new_uid() -> str:
    """Return a new uid."""
    return str(uuid.uuid4())


def name_suffix() -> str:
    """Return the five letters that `generateName` appends."""
    return "".join(random.choices(_SUFFIX_ALPHABET, k=5))  # noqa: S311 - a name, no secret
