"""From a decoded body to an object of its kind: types, unknown fields, what is empty."""

from dataclasses import dataclass, field
from typing import Final

from navarchos.testing.apiserver.access.users import User
from navarchos.testing.apiserver.decoding import (
    DecodeFault,
    check_types,
    drop_empty,
    fill_required,
    json_name,
)
from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.objects import JsonObject, JsonValue, copy_json, encode
from navarchos.testing.apiserver.schema import prune, unknown_fields
from navarchos.testing.apiserver.status import (
    StatusError,
    bad_request,
    invalid,
    invalid_value,
    quote,
)
from navarchos.testing.apiserver.store import Origin
from navarchos.testing.apiserver.types import TYPES

__all__ = ["Options", "read_object"]

_STRICT: Final = "strict decoding error: "
_TYPE_META: Final = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\"";'
    r' Kind string "json:\"kind,omitempty\"" }'
)
_MANAGERS: Final = TYPES.schema("meta.ObjectMeta").properties["managedFields"]
_SCHEME: Final = "pkg/runtime/scheme.go:111"  # where upstream made it


@dataclass(slots=True)
class Options:
    """How a write is meant.

    Attributes:
        dry_run: Everything is checked, nothing is stored.
        field_validation: `Strict`, `Warn` or `Ignore`, for unknown fields.
        origin: Who asks; goes into the change.
        keep_status: A new object's status, uid and creation time are kept, which only
            `ApiServer.install` may ask for.
        patching: What is decoded is the result of a patch, which words refusals
            differently.
        manager: Who is to manage the fields that the write changes; empty leaves managers
            as they are.
        applying: The object already says who manages what.
        user: Who asks; `None` for the server itself, which may do everything.
        warnings: Texts for `Warning` headers; grows while the request runs.
    """

    dry_run: bool = False
    field_validation: str = "Warn"
    origin: Origin | None = None
    keep_status: bool = False
    patching: bool = False
    manager: str = ""
    applying: bool = False
    user: User | None = None
    warnings: list[str] = field(default_factory=list)


def read_object(kind: Kind, body: JsonValue, options: Options) -> JsonObject:
    """Return a private copy of the body, freed of what the kind does not know.

    `managedFields` are the exception: they are shared, and only checked.

    Raises:
        StatusError: 400, or 422 for the result of a patch.
    """
    body, managers = _without_managers(body)
    obj = copy_json(body)
    if not isinstance(obj, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get"
            f" version/kind; json parse error: json: cannot unmarshal {json_name(body)} into Go"
            f" value of type {_TYPE_META} ({encode(body).hex()})"
        )
    try:
        _check_envelope(kind, obj)
    except StatusError as refusal:
        if not options.patching:
            raise
        raise _undecodable(kind, obj, refusal.message, options) from refusal
    obj["metadata"] = obj.get("metadata") or {}
    try:
        _check_types(kind, obj)
        if managers is not None:
            check_types(managers, _MANAGERS, owner="ObjectMeta", path="metadata.managedFields")
    except DecodeFault as fault:
        raise _undecodable(kind, obj, str(fault), options) from fault
    _drop_unknown(kind, obj, options)
    if kind.custom is None:
        drop_empty(obj, kind.schema)
        fill_required(obj, kind.schema)
    else:
        drop_empty(obj["metadata"], kind.schema.properties["metadata"])
    _drop_empty_maps(obj["metadata"])
    obj["metadata"].pop("selfLink", None)
    if managers is not None:
        obj["metadata"]["managedFields"] = managers
    return kind.view.decode(obj) if kind.view else obj


def _without_managers(body: JsonValue) -> tuple[JsonValue, JsonValue]:
    """Take `managedFields` out of a body: they are large, and copied by nobody."""
    metadata = body.get("metadata") if isinstance(body, dict) else None
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return body, None
    rest = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**body, "metadata": rest}, metadata["managedFields"]


def _check_types(kind: Kind, obj: JsonObject) -> None:
    envelope = kind.schema.properties["metadata"]
    check_types(obj["metadata"], envelope, owner=kind.kind, path="metadata")
    if kind.custom is None:
        check_types(obj, kind.schema)


def _undecodable(kind: Kind, obj: JsonObject, why: str, options: Options) -> StatusError:
    if options.patching:
        # The patch is at fault, not the object, so upstream names neither kind nor name.
        return invalid("", "", "", [invalid_value("patch", quote(obj), why)])
    return bad_request(f"{_handled_as(kind)}: {why}")


def _drop_empty_maps(metadata: JsonObject) -> None:
    for name in ("labels", "annotations"):
        if metadata.get(name) == {}:
            del metadata[name]


def _handled_as(kind: Kind) -> str:
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'


def _check_envelope(kind: Kind, obj: JsonObject) -> None:
    if kind.custom is not None and not obj.get("kind"):
        raise bad_request(f"Object 'Kind' is missing in '{quote(obj)}'")
    found = obj["kind"] = obj.get("kind") or kind.kind
    if found != kind.kind:
        version = str(obj.get("apiVersion") or kind.api_version).rpartition("/")[2]
        text = f'{found} in version "{version}" cannot be handled as a {kind.kind}'
        if not any(name.endswith(f".{found}") for name in TYPES.names()):
            registered = f'no kind "{found}" is registered for version "{obj.get("apiVersion")}"'
            raise bad_request(f'{text}: {registered} in scheme "{_SCHEME}"')
        ours = f"{kind.group.partition('.')[0] or 'core'}.{kind.kind}"
        raise bad_request(f"{text}: converting ({version}.{found}) to ({ours}): unknown conversion")
    version = obj["apiVersion"] = obj.get("apiVersion") or kind.api_version
    if version != kind.api_version:
        short = str(version).rpartition("/")[2]
        raise bad_request(
            f'{kind.kind} in version "{short}" cannot be handled as a {kind.kind}: no kind'
            f' "{kind.kind}" is registered for version "{version}" in scheme "{_SCHEME}"'
        )


def _drop_unknown(kind: Kind, obj: JsonObject, options: Options) -> None:
    unknown = unknown_fields(obj, kind.schema)
    if options.patching or kind.custom is not None:
        unknown.sort()  # it has been through a map, which Go writes in order
    if unknown and options.field_validation == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise _undecodable(kind, obj, f"{_STRICT}{listed}", options)
    if unknown:
        prune(obj, kind.schema)
    if options.field_validation == "Warn":
        options.warnings += [f'unknown field "{path}"' for path in unknown]
