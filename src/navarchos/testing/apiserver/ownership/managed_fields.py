"""The entries of `metadata.managedFields`, decoded.

Identity, order and limits follow apimachinery, package managedfields.

Stored objects keep their sets of fields encoded, as `msgspec.Raw`. As trees of dicts they would be
larger than the objects themselves. Decoding takes microseconds, and only writes need it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from navarchos.testing.apiserver.objects import JsonObject, JsonValue, encode
from navarchos.testing.apiserver.ownership.fieldsets import FieldSet, union

__all__ = [
    "APPLY",
    "UPDATE",
    "FieldManager",
    "ManagedFields",
    "OwnedFields",
    "cap_updaters",
    "decode_managed_fields",
    "encode_managed_fields",
    "is_reset",
    "readable",
    "same_but_for_times",
]

APPLY: Final = "Apply"
UPDATE: Final = "Update"

_MAX_UPDATERS: Final = 10
_ANCIENT: Final = "ancient-changes"
_TYPE: Final = "FieldsV1"


class FieldManager(NamedTuple):
    """The identity of a field manager; `managedFields` has one entry for each.

    Attributes:
        name: `fieldManager`, or the first part of the user agent.
        operation: `APPLY` or `UPDATE`.
        version: The apiVersion of an update. Empty for an apply, which has one entry for all
            versions.
        subresource: The subresource of the write, if any.
    """

    name: str
    operation: str
    version: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        """Return the manager as the texts of conflicts write it."""
        through = f" with subresource {encode(self.subresource).decode()}"
        using = f" using {self.version}" if self.operation == UPDATE else ""
        return encode(self.name).decode() + (through if self.subresource else "") + using


class OwnedFields(NamedTuple):
    """The fields that one manager owns, in one version; `time` may be empty."""

    fields: FieldSet
    version: str
    time: str = ""


ManagedFields: TypeAlias = dict[FieldManager, OwnedFields]
"""All managers of an object with their fields. Read-only."""


def is_reset(entries: JsonValue) -> bool:
    """Return whether a write asks to remove all managed fields, with `[]` or `[{}]`."""
    return entries in ([], [{}])


def decode_managed_fields(entries: JsonValue) -> ManagedFields:
    """Return the decoded `managedFields`; empty if one of the entries is invalid."""
    found: ManagedFields = {}
    for entry in entries or ():
        operation, version = entry.get("operation"), entry.get("apiVersion")
        if operation not in {APPLY, UPDATE} or not version or entry.get("fieldsType") != _TYPE:
            return {}
        manager = FieldManager(
            entry.get("manager") or "",
            operation,
            "" if operation == APPLY else version,
            entry.get("subresource") or "",
        )
        found[manager] = OwnedFields(
            _fields(entry.get("fieldsV1")), version, entry.get("time") or ""
        )
    return found


def _fields(written: JsonValue) -> FieldSet:
    found = msgspec.json.decode(written) if isinstance(written, msgspec.Raw) else written
    return found if isinstance(found, dict) else {}


def readable(entries: Sequence[JsonObject]) -> JsonValue:
    """Return stored `managedFields` as plain JSON."""
    return msgspec.json.decode(encode(entries))


def encode_managed_fields(managed: ManagedFields) -> list[JsonObject]:
    """Return `managedFields` to store, in upstream's order: by operation, time, name."""
    return [
        _entry(manager, owned_fields)
        for manager, owned_fields in sorted(managed.items(), key=lambda item: _order(*item))
    ]


def _order(manager: FieldManager, owned_fields: OwnedFields) -> tuple[str, ...]:
    return (
        manager.operation,
        owned_fields.time,
        manager.name,
        owned_fields.version,
        manager.subresource,
    )


def _entry(manager: FieldManager, owned_fields: OwnedFields) -> JsonObject:
    entry: JsonObject = {}
    if manager.name:
        entry["manager"] = manager.name
    entry |= {"operation": manager.operation, "apiVersion": owned_fields.version}
    if owned_fields.time:
        entry["time"] = owned_fields.time
    fields = msgspec.json.encode(owned_fields.fields, order="sorted")
    entry |= {"fieldsType": _TYPE, "fieldsV1": _shared(fields)}
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


@lru_cache(maxsize=4096)
def _shared(fields: bytes) -> msgspec.Raw:
    """Return the stored form of a set of fields; equal sets share one object.

    The pods of a workload differ in names and addresses, and not in the owners of their fields, so
    thousands of pods share a few sets.
    """
    return msgspec.Raw(fields)


def same_but_for_times(one: Sequence[JsonObject], other: Sequence[JsonObject]) -> bool:
    """Return whether two lists of entries are equal except for their times."""
    return len(one) == len(other) and all(
        _without_time(left) == _without_time(right) for left, right in zip(one, other, strict=True)
    )


def _without_time(entry: JsonObject) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "time"}


def cap_updaters(managed: ManagedFields) -> ManagedFields:
    """Return managed fields with at most ten updaters; the oldest are combined."""
    updaters = [manager for manager in managed if manager.operation == UPDATE]
    excess = len(updaters) - _MAX_UPDATERS
    if excess <= 0:
        return managed
    result = dict(managed)
    first: dict[str, FieldManager] = {}
    for manager in sorted(updaters, key=lambda one: (managed[one].time, one)):
        if excess <= 0:
            break
        version = managed[manager].version
        if version not in first:
            first[version] = manager
            continue
        bucket = FieldManager(_ANCIENT, UPDATE, version)
        older = result.pop(bucket, None) or result.pop(first[version])
        owned_fields = result.pop(manager)
        result[bucket] = OwnedFields(
            union(owned_fields.fields, older.fields), version, owned_fields.time
        )
        excess -= 1
    return result
