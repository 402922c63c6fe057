"""Metadata of objects: names, identity, owners, times, and keys.

`ObjectMeta` has the common fields of `metadata`. A kind may declare a struct with fewer
fields; it needs at least `name`, `namespace`, `uid` and `resource_version`, which are the
fields that the framework reads.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, NewType, Protocol, cast, runtime_checkable

import msgspec

from navarchos.errors import NavarchosError
from navarchos.structs import prepare_decoding

__all__ = [
    "EPOCH",
    "Identity",
    "KeyFailed",
    "Object",
    "ObjectKey",
    "ObjectMeta",
    "OwnerReference",
    "ResourceVersion",
    "Unstructured",
    "controller_of",
    "format_micro_time",
    "format_time",
    "identity_of",
    "key_of",
    "parse_time",
    "split_key",
]

EPOCH: Final = datetime.min.replace(tzinfo=UTC)
"""Earlier than every time of the API: the sort key of an object without a time."""

ResourceVersion = NewType("ResourceVersion", str)
"""A server's version of an object or a list. Opaque: it is passed on and not parsed.

`navarchos.informers.position` is the exception, which compares two versions.
"""

Unstructured = Mapping[str, object]
"""An object as decoded JSON, for code that needs every field. Read-only."""


class ObjectKey(NamedTuple):
    """Namespace and name; the namespace is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@runtime_checkable
class Identity(Protocol):
    """The fields of `metadata` that the framework needs."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def namespace(self) -> str: ...  # noqa: D102
    @property
    def uid(self) -> str: ...  # noqa: D102
    @property
    def resource_version(self) -> str: ...  # noqa: D102


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """An entry of `metadata.ownerReferences`."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        group, slash, _ = self.api_version.rpartition("/")
        return group if slash else ""


class ObjectMeta(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, kw_only=True
):
    """The common fields of `metadata`, without `managedFields`.

    Times are aware, in UTC. Mappings are shared with the cache: read-only.
    """

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: ResourceVersion = ResourceVersion("")
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)


@prepare_decoding
class Object(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, kw_only=True
):
    """The base class of typed objects; a subclass declares the fields that it needs.

    ```python
    class NodeSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
        unschedulable: bool = False

    class Node(Object, frozen=True):
        spec: NodeSpec = NodeSpec()
    ```

    Fields need defaults, because servers leave out empty fields. Subclasses inherit the
    struct options except `frozen`. Nested structs must set `rename="camel"` themselves.
    """

    metadata: ObjectMeta = ObjectMeta()


class KeyFailed(NavarchosError):
    """An object has no key, because it has no valid metadata (ST-01).

    Attributes:
        obj: The object.
    """

    def __init__(self, obj: object) -> None:
        super().__init__(obj)
        self.obj = obj

    def __str__(self) -> str:
        return f"object of type {type(self.obj).__name__} has no metadata with a name"


class _DictIdentity(NamedTuple):
    name: str
    namespace: str
    uid: str
    resource_version: str


def identity_of(obj: object) -> Identity:
    """Return the name, namespace, uid and resourceVersion of a struct or dict.

    Raises:
        KeyFailed: The object has no metadata, or metadata of another form.
    """
    # Called several times for each event of a watch. Reading the attribute of a struct is
    # much faster than checking the type first, and mappings have no such attribute.
    struct: Any = obj
    try:
        identity: Identity = struct.metadata
        identity.resource_version  # noqa: B018 - raises if it is missing
    except AttributeError:
        if isinstance(obj, Mapping):
            return _identity_of_mapping(obj)
        raise KeyFailed(obj) from None
    return identity


def _identity_of_mapping(obj: Mapping[str, object]) -> Identity:
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        raise KeyFailed(obj)
    fields = [metadata.get(f) or "" for f in ("name", "namespace", "uid", "resourceVersion")]
    if not all(isinstance(field, str) for field in fields):
        raise KeyFailed(obj)
    return _DictIdentity(*cast("list[str]", fields))


def key_of(obj: object) -> str:
    """Return `namespace/name`, or `name` alone without a namespace (ST-01).

    Raises:
        KeyFailed: The object has no metadata or no name.
    """
    identity = identity_of(obj)
    if not identity.name:
        raise KeyFailed(obj)
    return f"{identity.namespace}/{identity.name}" if identity.namespace else identity.name


def split_key(key: str) -> ObjectKey:
    """Split a key from `key_of` (ST-02).

    Raises:
        ValueError: The key has more than one slash.
    """
    parts = key.split("/")
    if len(parts) == 1:
        return ObjectKey("", parts[0])
    if len(parts) == 2:
        return ObjectKey(parts[0], parts[1])
    raise ValueError(f"unexpected key {key!r}: use namespace/name or name")


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the reference to the controller of the object, if any."""
    for owner in metadata.owner_references:  # a generator would be three times slower
        if owner.controller:
            return owner
    return None


def format_time(at: datetime) -> str:
    """Format a time as the API's `Time`: UTC, whole seconds (`2026-01-02T15:04:05Z`)."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(at: datetime) -> str:
    """Format a time as the API's `MicroTime`: UTC, exactly six digits (LE-03).

    `isoformat` would leave out the fraction at microsecond 0, which the server refuses
    (RT-23).
    """
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Parse a `Time` or a `MicroTime`.

    Raises:
        ValueError: The text is neither.
    """
    return datetime.fromisoformat(text).astimezone(UTC)
