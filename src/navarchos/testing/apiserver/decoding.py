"""Decode checks of built-in kinds: what Go's JSON decoder would refuse or drop."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from navarchos.testing.apiserver.objects import JsonObject, JsonValue
from navarchos.testing.apiserver.schema import Schema

__all__ = [
    "TIME_LAYOUT",
    "DecodeFault",
    "check_types",
    "drop_empty",
    "fill_required",
    "is_micro_time",
    "is_rfc3339",
    "json_name",
]

_RFC3339: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?P<fraction>\.\d+)?(Z|[+-]\d{2}:\d{2})"
)
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
_ZEROS: Final[Mapping[str, JsonValue]] = {"string": "", "integer": 0, "boolean": False}
_MICRO_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"
TIME_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
"""How Go names the form of a time."""


class DecodeFault(Exception):
    """A value of the wrong JSON type; the text is the decoder's."""


def check_types(value: JsonValue, schema: Schema, *, owner: str = "", path: str = "") -> None:
    """Raise `DecodeFault` where a value's type does not fit its field.

    Null fits everywhere: it is the absence of a value.
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


def _check_object(value: JsonValue, schema: Schema, owner: str, path: str) -> None:
    if not isinstance(value, dict):
        raise _mismatch(value, _go_type(schema), owner, path)
    for key, item in value.items():
        child = schema.child(key)
        if child is not None:
            at = f"{path}.{key}" if path else key
            if key not in schema.properties:
                at = path  # Go does not say which value of a map it was
            check_types(item, child, owner=schema.name or owner, path=at)


def _check_scalar(value: JsonValue, schema: Schema, owner: str, path: str) -> None:
    # A boolean is an integer to Python, and to nobody else.
    fits = isinstance(value, _FITTING[schema.type]) and (
        type(value) is not bool or schema.type == "boolean"
    )
    if not fits and schema.format != "quantity":
        raise _mismatch(value, _go_type(schema), owner, path)
    if schema.format == "date-time" and not is_rfc3339(value):
        raise DecodeFault(
            f'parsing time "{value}" as "{TIME_LAYOUT}": cannot parse "{value}" as "2006"'
        )
    if schema.format == "micro-time" and not is_micro_time(value):
        raise DecodeFault(_micro_text(value))
    if schema.format == "quantity" and not (fits and _QUANTITY.match(str(value))):
        pattern = _QUANTITY.pattern
        raise DecodeFault(f"quantities must match the regular expression '{pattern}'")


def _go_type(schema: Schema | None) -> str:
    """Return how Go prints the type of a field; all served types are of packages named v1."""
    if schema is None:
        return ""
    if schema.type == "object":
        name = _GO_NAMES.get(schema.name, schema.name)
        return f"v1.{name}" if name else "map[string]string"
    return schema.format if schema.type == "integer" else _GO_TYPES.get(schema.type, "")


def _micro_text(value: str) -> str:
    match = _RFC3339.fullmatch(value)
    rest, wanted = (value, "2006") if match is None else (value[19:], ".000000")
    return f'parsing time "{value}" as "{_MICRO_LAYOUT}": cannot parse "{rest}" as "{wanted}"'


def is_rfc3339(value: str) -> bool:
    """Return whether `value` is a time with a zone that exists."""
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


def json_name(value: JsonValue) -> str:
    """Return what Go's decoder calls a value."""
    found = {bool: "bool", str: "string", int: "number", float: "number", list: "array"}
    return found.get(type(value), "object")


def _mismatch(value: JsonValue, written: str, owner: str, path: str) -> DecodeFault:
    name = json_name(value)
    if isinstance(value, float) and written.startswith("int"):
        name = f"number {value}"  # one that is none of these is shown
    where = f"Go struct field {owner}.{path}" if owner else "Go value"
    return DecodeFault(f"json: cannot unmarshal {name} into {where} of type {written}")


def fill_required(value: JsonValue, schema: Schema) -> None:
    """Set, in place, what is absent to what Go's encoder shows instead.

    Zero for required scalars, null for some times. Typed clients rely on it: a
    required string may be empty, but it is there.
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


def drop_empty(value: JsonObject, schema: Schema) -> None:
    """Remove, in place, what Go's encoder leaves out.

    That is nulls, empty lists and maps, and zeros where zero is no value. An empty
    struct stays: behind a pointer it says something; and so does whatever a map has
    under a key, such as the empty value of a label.
    """
    required = schema.required if schema.additional is None else value
    for key in list(value):
        child = schema.child(key)
        if child is None or not child.type:
            continue
        item = value[key]
        if item is None or item == [] or _is_nothing(item, child, key in required):
            del value[key]
        elif isinstance(item, dict):
            drop_empty(item, child)
        elif isinstance(item, list) and child.items is not None:
            for element in item:
                if isinstance(element, dict):
                    drop_empty(element, child.items)


def _is_nothing(item: JsonValue, schema: Schema, required: bool) -> bool:
    if required:
        return False
    if item == {}:
        return schema.additional is not None
    return schema.type in _ZEROS and not schema.shows_zero and item == _ZEROS[schema.type]
