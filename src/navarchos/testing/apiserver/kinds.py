"""Kinds: how they are named, stored, validated and served."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from navarchos.testing.apiserver import names, store
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.objects import JsonObject, encode
from navarchos.testing.apiserver.schema import Schema

__all__ = [
    "ALL_VERBS",
    "Conversion",
    "CustomKind",
    "Kind",
    "KindStrategy",
    "Kinds",
    "PrinterColumn",
    "encoded_entry",
    "version_order",
]

ALL_VERBS: Final = (
    "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
)  # fmt: skip

_Mutate = Callable[[JsonObject], None]
_Compare = Callable[[JsonObject, JsonObject], None]
_Validate = Callable[[JsonObject], list[statuses.FieldError]]
_ValidateUpdate = Callable[[JsonObject, JsonObject], list[statuses.FieldError]]


def _change_nothing(_obj: JsonObject) -> None:
    return


def _change_nothing_on_update(_new: JsonObject, _old: JsonObject) -> None:
    return


def _no_errors(_obj: JsonObject) -> list[statuses.FieldError]:
    return []


def _no_update_errors(_new: JsonObject, _old: JsonObject) -> list[statuses.FieldError]:
    return []


@dataclass(frozen=True, slots=True)
class KindStrategy:
    """How a kind differs from the common rules of create, update and delete.

    Attributes:
        name_rule: Checks names.
        generation: `metadata.generation` counts the changes of the spec.
        unconditional_update: An update may omit the resourceVersion.
        create_on_update: A PUT creates an object that does not exist.
        status_metadata: Parts of the metadata that `/status` may change.
        returns_deleted: DELETE returns the object rather than a `Status`.
        orphans: Dependents are orphaned by default when the object is deleted.
        default: Sets defaults, at create and at update.
        prepare_create: Sets the fields of a new object that the server owns.
        prepare_update: Restores the fields that an update may not change; (new, old).
        validate: Returns the errors of an object.
        validate_create: Returns further errors of a new object.
        validate_update: Returns the errors of a change; (new, old).
        status_on_create: A new object may have a status.
    """

    name_rule: names.NameRule = names.dns_subdomain
    generation: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    status_metadata: tuple[str, ...] = ("labels", "annotations", "finalizers")
    returns_deleted: bool = False
    orphans: bool = False
    default: _Mutate = _change_nothing
    prepare_create: _Mutate = _change_nothing
    prepare_update: _Compare = _change_nothing_on_update
    validate: _Validate = _no_errors
    validate_create: _Validate = _no_errors
    validate_update: _ValidateUpdate = _no_update_errors
    status_on_create: bool = False


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A printer column of a custom kind."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a served version differs from the stored one. Pure functions."""

    decode: Callable[[JsonObject], JsonObject]
    encode: Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, slots=True)
class CustomKind:
    """The parts of a kind that its CustomResourceDefinition defines."""

    definition: str
    columns: tuple[PrinterColumn, ...] = ()
    selectable: tuple[str, ...] = ()
    scale: JsonObject | None = None
    deprecation: str = ""
    openapi: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind in one served version. Compared by identity.

    Attributes:
        type_name: The name in the table of built-in types; empty for custom kinds.
        bucket: Where the store keeps the objects; several versions share one bucket.
        stored_version: The `apiVersion` of the stored objects.
        empty: The fields of a new object before a client sets any, without the kind.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    schema: Schema
    bucket: store.BucketId
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ALL_VERBS
    strategy: KindStrategy = field(default_factory=KindStrategy)
    type_name: str = ""
    list_kind: str = ""
    custom: CustomKind | None = None
    conversion: Conversion | None = None
    stored_version: str = ""
    empty: JsonObject = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        """Group and version as in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> statuses.ResourceName:
        """Group and plural, as errors name them."""
        return statuses.ResourceName(self.group, self.plural)

    @property
    def has_status(self) -> bool:
        """Whether there is a status subresource."""
        return "status" in self.subresources

    def envelope(self, obj: JsonObject) -> JsonObject:
        """Return `obj` with kind, apiVersion and metadata first, as stored."""
        rest = {k: v for k, v in obj.items() if k not in {"kind", "apiVersion", "metadata"}}
        head = {"kind": self.kind, "apiVersion": self.stored_version or self.api_version}
        return {**head, "metadata": obj.get("metadata") or {}, **rest}

    def to_served(self, obj: JsonObject) -> JsonObject:
        """Return a stored object in this version; may be `obj` itself."""
        if self.conversion is not None:
            return self.conversion.encode(obj)
        if obj.get("apiVersion") == self.api_version:
            return obj
        return {**obj, "apiVersion": self.api_version}


class Kinds:
    """All kinds that are served now. Custom kinds are added and removed.

    Threads: safe from any thread; readers see one snapshot.
    """

    def __init__(self, builtin: Iterable[Kind]) -> None:
        self._kinds_lock = threading.Lock()
        self._all: tuple[Kind, ...] = tuple(builtin)
        self._by_path = self._index(self._all)
        self.generation = 0

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind of a path, if it is served."""
        return self._by_path.get((group, version, plural))

    def all(self) -> Sequence[Kind]:
        """Return every served kind, built-in ones first."""
        return self._all

    def is_builtin(self, group: str) -> bool:
        """Return whether a group has built-in kinds."""
        return any(kind.group == group and kind.custom is None for kind in self._all)

    def versions(self, group: str) -> list[str]:
        """Return the served versions of a group, preferred one first."""
        found: dict[str, None] = {}
        for kind in self._all:
            if kind.group == group:
                found[kind.version] = None
        return sorted(found, key=version_order)

    def groups(self) -> list[str]:
        """Return the names of all groups but core, in the order in which they were added."""
        return list(dict.fromkeys(kind.group for kind in self._all if kind.group))

    def by_resource(self, plural: str, group: str) -> Kind | None:
        """Return the preferred version of a resource."""
        found = [k for k in self._all if k.plural == plural and k.group == group]
        return min(found, key=lambda k: version_order(k.version), default=None)

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind with this `apiVersion` and `kind`."""
        group, _, version = api_version.rpartition("/")
        matching = [k for k in self._all if k.kind == kind and k.group == group]
        return next((k for k in matching if k.version == version), None)

    def by_bucket(self, bucket: store.BucketId) -> Kind | None:
        """Return a kind whose objects the bucket keeps."""
        return next((k for k in self._all if k.bucket == bucket and k.conversion is None), None)

    def replace_custom(self, definition: str, kinds: Iterable[Kind]) -> None:
        """Serve exactly `kinds` for a definition."""
        with self._kinds_lock:
            others = [k for k in self._all if k.custom is None or k.custom.definition != definition]
            self._all = (*others, *kinds)
            self._by_path = self._index(self._all)
            self.generation += 1

    @staticmethod
    def _index(kinds: Iterable[Kind]) -> dict[tuple[str, str, str], Kind]:
        return {(kind.group, kind.version, kind.plural): kind for kind in kinds}


def version_order(version: str) -> tuple[int, int, int, str]:
    """Return a sort key: v2 before v1, stable before beta before alpha, other names last."""
    body = version[1:]
    for rank, marker in enumerate(("", "beta", "alpha")):
        major, found, minor = body.partition(marker) if marker else (body, "", "0")
        if version.startswith("v") and major.isdigit() and minor.isdigit() and (found == marker):
            return rank, -int(major), -int(minor), ""
    return 3, 0, 0, version


def encoded_entry(kind: Kind, entry: store.Entry) -> bytes:
    """Return an entry's JSON in the version of `kind`; the stored bytes if possible."""
    served = kind.to_served(entry.obj)
    return entry.raw if served is entry.obj else encode(served)
