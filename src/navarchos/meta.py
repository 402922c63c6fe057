"""What every object carries: names, identity, owners, times, and its key.

The structs here are the common projection of `metadata`. A kind may declare a
slimmer one of its own; then it needs at least `name`, `namespace`, `uid` and
`resource_version`, which is all that the framework itself reads.
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
"""A server's version of an object or a list. Opaque: passed on, not parsed.

The one place that compares two of them says so and why it may.
"""

Unstructured = Mapping[str, object]
"""An object as decoded JSON, for code that must see every field. Read-only."""


class ObjectKey(NamedTuple):
    """Namespace and name; the namespace is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@runtime_checkable
class Identity(Protocol):
    """The part of `metadata` that the framework needs."""

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
    """The common projection of `metadata`; `managedFields` is not part of it.

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
    """The base of typed objects: a projection lists the fields it needs.

    ```python
    class NodeSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
        unschedulable: bool = False

    class Node(Object, frozen=True):
        spec: NodeSpec = NodeSpec()
    ```

    Fields need defaults, because servers leave out what is empty. Struct options
    except `frozen` are inherited; name conversion is not, so nested structs say
    `rename="camel"` themselves.
    """

    metadata: ObjectMeta = ObjectMeta()


class KeyFailed(NavarchosError):
    """An object has no usable metadata, so no key (ST-01).

    Attributes:
        obj: The offending object.
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
        KeyFailed: There is no metadata, or it is of another shape.
    """
    # Called several times for every event of a watch. To take what a struct has is much
    # quicker than to ask what it is, and mappings have no such members.
    struct: Any = obj
    try:
        identity: Identity = struct.metadata
        identity.resource_version  # noqa: B018 - whether it is there
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
        KeyFailed: There is no metadata or no name; the object is attached.
    """
    identity = identity_of(obj)
    if not identity.name:
        raise KeyFailed(obj)
    return f"{identity.namespace}/{identity.name}" if identity.namespace else identity.name


def split_key(key: str) -> ObjectKey:
    """Split what `key_of` made (ST-02).

    Raises:
        ValueError: More than one slash.
    """
    parts = key.split("/")
    if len(parts) == 1:
        return ObjectKey("", parts[0])
    if len(parts) == 2:
        return ObjectKey(parts[0], parts[1])
    raise ValueError(f"unexpected key {key!r}: use namespace/name or name")


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the owner that manages the object, if one does."""
    for owner in metadata.owner_references:  # a generator would be three times as dear
        if owner.controller:
            return owner
    return None


def format_time(at: datetime) -> str:
    """Write a time as the API's `Time`: UTC, whole seconds (`2026-01-02T15:04:05Z`)."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(at: datetime) -> str:
    """Write a time as the API's `MicroTime`: UTC, exactly six digits (LE-03).

    `isoformat` would leave the fraction out at microsecond 0, and the server
    refuses that (RT-23).
    """
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Read a `Time` or a `MicroTime`.

    Raises:
        ValueError: It is neither.
    """
    return datetime.fromisoformat(text).astimezone(UTC)
