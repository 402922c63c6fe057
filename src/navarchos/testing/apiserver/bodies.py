"""Bodies of writes: type checks, unknown fields, empty values, and write options.

The checks do what Go's JSON decoder does with the types of built-in kinds, and have its texts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from navarchos.testing.apiserver import kinds, objects, requests, store
from navarchos.testing.apiserver.access.users import User
from navarchos.testing.apiserver.schema import Schema, prune, unknown_fields
from navarchos.testing.apiserver.status import (
    FieldError,
    StatusError,
    bad_request,
    forbidden_field,
    invalid,
    invalid_value,
    quote,
    required,
    too_long,
    unsupported_value,
)
from navarchos.testing.apiserver.types import TYPES

__all__ = [
    "BodyDecodeError",
    "WriteOptions",
    "check_types",
    "drop_empty",
    "fill_required",
    "json_name",
    "read_object",
    "read_write_options",
]

_QUANTITY: Final = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_GO_TYPES: Final = {
    "string": "string",
    "integer": "int32",
    "number": "float64",
    "boolean": "bool",
}
_GO_NAMES: Final = {"LabelSelectorSpec": "LabelSelector"}
_FITTING: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "int-or-string": (int, float, str),
}
_VALIDATION: Final = ("Ignore", "Warn", "Strict")
_OPTION_KINDS: Final = {"update": "UpdateOptions", "patch": "PatchOptions"}
_MAX_MANAGER_BYTES: Final = 128
_ZEROS: Final[Mapping[str, objects.JsonValue]] = {"string": "", "integer": 0, "boolean": False}
_MICRO_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"
_STRICT: Final = "strict decoding error: "
_TYPE_META: Final = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\"";'
    r' Kind string "json:\"kind,omitempty\"" }'
)
_MANAGERS: Final = TYPES.schema("meta.ObjectMeta").properties["managedFields"]
_SCHEME: Final = "pkg/runtime/scheme.go:111"  # where upstream registers its types


class BodyDecodeError(Exception):
    """A value of the wrong JSON type; the text comes from Go's decoder."""


def check_types(
    value: objects.JsonValue, schema: Schema, *, owner: str = "", path: str = ""
) -> None:
    """Raise `BodyDecodeError` if the type of a value does not fit its field.

    Null fits every field: it means that there is no value.
    """
    if value is None or not schema.type:
        return
    if schema.type == "object":
        _check_object(value, schema, owner, path)
    elif schema.type == "array":
        if not isinstance(value, list):
            raise _mismatch(value, "[]" + _go_type(schema.items), owner, path)
        for item in value:
            if schema.items is not None:
                check_types(item, schema.items, owner=owner, path=path)
    else:
        _check_scalar(value, schema, owner, path)


def _check_object(value: objects.JsonValue, schema: Schema, owner: str, path: str) -> None:
    if not isinstance(value, dict):
        raise _mismatch(value, _go_type(schema), owner, path)
    for key, item in value.items():
        child = schema.child(key)
        if child is not None:
            at = f"{path}.{key}" if path else key
            if key not in schema.properties:
                at = path  # Go does not name the key of a map here
            check_types(item, child, owner=schema.name or owner, path=at)


def _check_scalar(value: objects.JsonValue, schema: Schema, owner: str, path: str) -> None:
    # In Python a bool is an int; in JSON it is not.
    fits = isinstance(value, _FITTING[schema.type]) and (
        type(value) is not bool or schema.type == "boolean"
    )
    if not fits and schema.format != "quantity":
        raise _mismatch(value, _go_type(schema), owner, path)
    if schema.format == "date-time" and not objects.is_rfc3339(value):
        raise BodyDecodeError(
            f'parsing time "{value}" as "{objects.TIME_LAYOUT}": cannot parse "{value}" as "2006"'
        )
    if schema.format == "micro-time" and not objects.is_micro_time(value):
        raise BodyDecodeError(_micro_text(value))
    if schema.format == "quantity" and not (fits and _QUANTITY.match(str(value))):
        pattern = _QUANTITY.pattern
        raise BodyDecodeError(f"quantities must match the regular expression '{pattern}'")


def _go_type(schema: Schema | None) -> str:
    """Return the type of a field as Go prints it; all types are from packages named v1."""
    if schema is None:
        return ""
    if schema.type == "object":
        name = _GO_NAMES.get(schema.name, schema.name)
        return f"v1.{name}" if name else "map[string]string"
    return schema.format if schema.type == "integer" else _GO_TYPES.get(schema.type, "")


def _micro_text(value: str) -> str:
    rest, wanted = (value[19:], ".000000") if objects.is_rfc3339(value) else (value, "2006")
    return f'parsing time "{value}" as "{_MICRO_LAYOUT}": cannot parse "{rest}" as "{wanted}"'


def json_name(value: objects.JsonValue) -> str:
    """Return the name of a value's type in the errors of Go's decoder."""
    found = {bool: "bool", str: "string", int: "number", float: "number", list: "array"}
    return found.get(type(value), "object")


def _mismatch(value: objects.JsonValue, written: str, owner: str, path: str) -> BodyDecodeError:
    name = json_name(value)
    if isinstance(value, float) and written.startswith("int"):
        name = f"number {value}"  # Go shows the number if it is not an integer
    where = f"Go struct field {owner}.{path}" if owner else "Go value"
    return BodyDecodeError(f"json: cannot unmarshal {name} into {where} of type {written}")


def fill_required(value: objects.JsonValue, schema: Schema) -> None:
    """Set absent fields, in place, to the values that Go's encoder writes for them.

    These are zeros for required scalars, and null for some times. Typed clients rely on it: a
    required string may be empty, but it is present.
    """
    if isinstance(value, list) and schema.items is not None:
        for item in value:
            fill_required(item, schema.items)
    if not isinstance(value, dict):
        return
    for name in schema.required:
        kind = schema.properties[name]
        if name not in value and kind.type in _ZEROS and not kind.format.endswith("-time"):
            value[name] = _ZEROS[kind.type]
    for name in schema.shown_as_null:
        value.setdefault(name, None)
    for key, item in value.items():
        child = schema.child(key)
        if child is not None and isinstance(item, dict | list):
            fill_required(item, child)


def drop_empty(value: objects.JsonObject, schema: Schema) -> None:
    """Remove, in place, the values that Go's encoder omits.

    It omits nulls, empty lists and maps, and zeros, unless zero is a value of the field. Empty
    structs stay, because Go has a pointer to them. Values of a map stay, for example the empty
    value of a label.
    """
    required = schema.required if schema.additional is None else value
    for key in list(value):
        child = schema.child(key)
        if child is None or not child.type:
            continue
        item = value[key]
        if item is None or item == [] or _is_omitted(item, child, key in required):
            del value[key]
        elif isinstance(item, dict):
            drop_empty(item, child)
        elif isinstance(item, list) and child.items is not None:
            for element in item:
                if isinstance(element, dict):
                    drop_empty(element, child.items)


def _is_omitted(item: objects.JsonValue, schema: Schema, required: bool) -> bool:
    if required:
        return False
    if item == {}:
        return schema.additional is not None
    return schema.type in _ZEROS and not schema.shows_zero and item == _ZEROS[schema.type]


@dataclass(slots=True)
class WriteOptions:
    """The options of a write, and facts about its request.

    Attributes:
        dry_run: Check everything, and store nothing.
        field_validation: `Strict`, `Warn` or `Ignore`, for unknown fields.
        origin: The request that makes the change, for listeners.
        keep_status: Keep the status, uid and creation time of a new object; only
            `ApiServer.install` sets this.
        patching: The body is the result of a patch, for which upstream's errors have different
            texts.
        manager: The field manager that will own the changed fields; empty to leave the managed
            fields as they are.
        applying: The object already has its new managed fields.
        user: The user of the request; `None` for the server itself, which may do everything.
        warnings: Texts for `Warning` headers; grows while the request runs.
    """

    dry_run: bool = False
    field_validation: str = "Warn"
    origin: store.Origin | None = None
    keep_status: bool = False
    patching: bool = False
    manager: str = ""
    applying: bool = False
    user: User | None = None
    warnings: list[str] = field(default_factory=list)


def read_object(
    kind: kinds.Kind, body: objects.JsonValue, options: WriteOptions
) -> objects.JsonObject:
    """Return a private copy of the body without the fields that the kind does not have.

    `managedFields` are an exception: they are checked, and shared with the body.

    Raises:
        StatusError: 400, or 422 for the result of a patch.
    """
    body, managers = _without_managers(body)
    obj = objects.copy_json(body)
    if not isinstance(obj, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get"
            f" version/kind; json parse error: json: cannot unmarshal {json_name(body)} into Go"
            f" value of type {_TYPE_META} ({objects.encode(body).hex()})"
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
    except BodyDecodeError as fault:
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
    return kind.conversion.decode(obj) if kind.conversion else obj


def _without_managers(body: objects.JsonValue) -> tuple[objects.JsonValue, objects.JsonValue]:
    """Take `managedFields` out of a body: copying them would be expensive."""
    metadata = body.get("metadata") if isinstance(body, dict) else None
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return body, None
    rest = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**body, "metadata": rest}, metadata["managedFields"]


def _check_types(kind: kinds.Kind, obj: objects.JsonObject) -> None:
    envelope = kind.schema.properties["metadata"]
    check_types(obj["metadata"], envelope, owner=kind.kind, path="metadata")
    if kind.custom is None:
        check_types(obj, kind.schema)


def _undecodable(
    kind: kinds.Kind, obj: objects.JsonObject, why: str, options: WriteOptions
) -> StatusError:
    if options.patching:
        # The patch is wrong, not the object, so upstream names neither kind nor name.
        return invalid("", "", "", [invalid_value("patch", quote(obj), why)])
    return bad_request(f"{_unhandled_text(kind)}: {why}")


def _drop_empty_maps(metadata: objects.JsonObject) -> None:
    for name in ("labels", "annotations"):
        if metadata.get(name) == {}:
            del metadata[name]


def _unhandled_text(kind: kinds.Kind) -> str:
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'


def _check_envelope(kind: kinds.Kind, obj: objects.JsonObject) -> None:
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


def _drop_unknown(kind: kinds.Kind, obj: objects.JsonObject, options: WriteOptions) -> None:
    unknown = unknown_fields(obj, kind.schema)
    if options.patching or kind.custom is not None:
        unknown.sort()  # upstream keeps these fields in a map, which Go writes sorted
    if unknown and options.field_validation == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise _undecodable(kind, obj, f"{_STRICT}{listed}", options)
    if unknown:
        prune(obj, kind.schema)
    if options.field_validation == "Warn":
        options.warnings += [f'unknown field "{path}"' for path in unknown]


def read_write_options(
    request: requests.Request, verb: str, *, applying: bool = False
) -> WriteOptions:
    """Read the options of a write from the query.

    Args:
        request: The request.
        verb: Its verb; names the kind of options in errors.
        applying: The request is a server-side apply, which must name its field manager.

    Raises:
        StatusError: 422, an option has an invalid value.
    """
    query = request.query
    dry_run = query.get("dryRun", "")
    validation = query.get("fieldValidation") or "Warn"
    manager = query.get("fieldManager", "")
    errors = []
    if applying and not manager:
        errors.append(required("fieldManager", "is required for apply patch"))
    if verb == "patch" and not applying and query.get("force"):
        errors.append(forbidden_field("force", "may not be specified for non-apply patch"))
    errors += _manager_errors(manager)
    if dry_run not in {"", "All"}:
        errors.append(unsupported_value("dryRun", [dry_run], ("All",)))
    if validation not in _VALIDATION:
        choices = ("", *sorted(_VALIDATION))
        errors.append(unsupported_value("fieldValidation", validation, choices))
    if errors:
        kind = _OPTION_KINDS.get(verb, "CreateOptions")
        raise invalid(kind, "meta.k8s.io", "", errors)
    return WriteOptions(
        dry_run=bool(dry_run),
        field_validation=validation,
        origin=store.Origin(verb, request.user_agent),
        manager=manager or _manager_of(request.user_agent),
        user=request.user,
    )


def _manager_errors(manager: str) -> list[FieldError]:
    errors = []
    if len(manager.encode()) > _MAX_MANAGER_BYTES:
        errors.append(too_long("fieldManager", _MAX_MANAGER_BYTES))
    for index, letter in enumerate(manager):
        if not letter.isprintable():
            text = f"invalid character U+{ord(letter):04X} (at position {index})"
            errors.append(invalid_value("fieldManager", manager, text))
    return errors


def _manager_of(user_agent: str) -> str:
    """Return the default field manager of a client."""
    name = "".join(letter for letter in user_agent.partition("/")[0] if letter.isprintable())
    return name.encode()[:_MAX_MANAGER_BYTES].decode(errors="ignore") or "unknown"
