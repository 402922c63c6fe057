"""What an applied configuration may look like, in the words of structured-merge-diff."""

from collections.abc import Iterator
from typing import Final

from navarchos.testing.apiserver.objects import JsonObject, JsonValue, encode
from navarchos.testing.apiserver.ownership.fieldsets import field, path_text
from navarchos.testing.apiserver.ownership.structure import (
    ElementFault,
    element_of,
    is_granular_list,
    schema_below,
)
from navarchos.testing.apiserver.schema import Schema

__all__ = ["faults_of"]

_GO_TYPES: Final = {str: "string", bool: "bool", int: "int64", float: "float64"}


def faults_of(config: JsonObject, schema: Schema) -> str:
    """Return what is wrong with a configuration, in one text; nothing if it may be applied."""
    found = [f"{path}: {text}" if path else text for path, text in _check(config, schema, "")]
    if len(found) < 2:
        return "".join(found)
    return "\n  ".join(["errors:", *found])


def _check(value: JsonValue, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if value is None or not schema.type:
        return
    if schema.type == "object":
        yield from _check_map(value, schema, path)
    elif schema.type == "array":
        yield from _check_list(value, schema, path)
    elif text := _wrong_scalar(value, schema):
        yield path, text


def _check_map(value: JsonValue, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, f"expected map, got {_shown(value)}"
        return
    for key, item in value.items():
        at = path + path_text((field(key),))
        if schema.child(key) is None and not schema.preserve:
            yield at, "field not declared in schema"
            return  # upstream stops at the first
        yield from _check(item, schema_below(schema, key), at)


def _check_list(value: JsonValue, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list):
        yield path, f"expected list, got {_shown(value)}"
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        at = f"[{index}]"
        if is_granular_list(schema):
            try:
                element = element_of(item, schema)
            except ElementFault as fault:
                yield path, f"element {index}: {fault}"
                return
            at = path_text((element,))
            if element in seen:
                yield path, f"duplicate entries for key {at}"
            seen.add(element)
        if schema.items is not None:
            yield from _check(item, schema.items, path + at)


def _wrong_scalar(value: JsonValue, schema: Schema) -> str:
    wanted = schema.type
    if wanted in {"integer", "number"} and (
        isinstance(value, bool) or not isinstance(value, int | float)
    ):
        return f"expected numeric (int or float), got {_GO_TYPES.get(type(value), 'object')}"
    if wanted == "string" and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{encode(value).decode()}}}"
    if wanted == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got {_shown(value)}"
    if wanted == "int-or-string" and schema.format and isinstance(value, dict | list):
        return f"expected any scalar, got {_shown(value)}"
    return ""


def _shown(value: JsonValue) -> str:
    """Write a value as Go prints the box that it is in."""
    return f"&{{{_printed(value)}}}"


def _printed(value: JsonValue) -> str:
    if isinstance(value, dict):
        pairs = (f"{key}:{_printed(item)}" for key, item in sorted(value.items()))
        return f"map[{' '.join(pairs)}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_printed, value))}]"
    return value if isinstance(value, str) else encode(value).decode()
