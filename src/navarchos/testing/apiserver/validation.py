"""Validation of values by structural schemas.

The texts come from kube-openapi's validator, as apiextensions turns them into field errors.
"""

import base64
import binascii
import ipaddress
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import lru_cache
from typing import Any, Final

from navarchos.testing.apiserver import cel, objects
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.schema import Schema, schema_from_openapi

__all__ = ["validate_update", "validate_value"]

_BLOCKING: Final = frozenset({
    "FieldValueNotSupported", "FieldValueRequired", "FieldValueTypeInvalid", "FieldValueTooLong",
    "FieldValueTooMany",
})  # fmt: skip
_JSON_NAMES: Final = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object",
    type(None): "null",
}  # fmt: skip


_UNCHECKED: Final = statuses.FieldError(
    "FieldValueInvalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid;"
    " correct the existing errors to complete validation",
)


def validate_value(value: objects.JsonValue, schema: Schema) -> list[statuses.FieldError]:
    """Return the errors of a new object, including errors of rules without `oldSelf`."""
    return _validate(value, schema, cel.ABSENT)


def validate_update(
    new: objects.JsonValue, old: objects.JsonValue, schema: Schema
) -> list[statuses.FieldError]:
    """Return the errors of a changed object; values that have not changed are not checked."""
    return _validate(new, schema, old)


def _validate(
    value: objects.JsonValue, schema: Schema, old: objects.JsonValue
) -> list[statuses.FieldError]:
    errors = list(_check(value, schema, "", old))
    if not schema.has_rules:
        return errors
    if any(error.reason in _BLOCKING for error in errors):
        # Rules may assume a valid object, so upstream skips them as well.
        return [*errors, _UNCHECKED]
    return errors + cel.rule_errors(value, schema, old)


def _check(
    value: objects.JsonValue, schema: Schema, path: str, old: objects.JsonValue = cel.ABSENT
) -> Iterator[statuses.FieldError]:
    if (value is None and schema.nullable) or (old is not cel.ABSENT and value == old):
        return
    wrong_type = _type_error(value, schema, path)
    if wrong_type is not None:
        yield wrong_type
        return
    yield from _keyword_errors(value, schema.keywords, path)
    if isinstance(value, dict):
        yield from _object_errors(value, schema, path, old)
    elif isinstance(value, list):
        yield from _list_errors(value, schema, path, old)


def _type_error(value: objects.JsonValue, schema: Schema, path: str) -> statuses.FieldError | None:
    if not schema.type or _fits(value, schema.type):
        return None
    wanted = "integer,string" if schema.type == "int-or-string" else schema.type
    found = _JSON_NAMES[type(value)]
    shown = statuses.quote(found)
    text = f"Invalid value: {shown}: {path or '<root>'} in body must be of type {wanted}: {shown}"
    return statuses.FieldError("FieldValueTypeInvalid", path or "<nil>", text)


def _fits(value: objects.JsonValue, wanted: str) -> bool:
    if wanted == "int-or-string":
        return isinstance(value, (int, str)) and not isinstance(value, bool)
    if wanted == "integer":
        whole = isinstance(value, float) and value.is_integer()
        return (isinstance(value, int) or whole) and not isinstance(value, bool)
    if wanted == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    expected = {"object": dict, "array": list, "string": str, "boolean": bool}[wanted]
    return isinstance(value, expected)


def _object_errors(
    value: dict[str, Any], schema: Schema, path: str, old: objects.JsonValue
) -> Iterator[statuses.FieldError]:
    for name in schema.required:
        if name not in value:
            yield statuses.required(f"{path}.{name}" if path else name)
    for key, item in value.items():
        child = schema.child(key)
        if child is not None:
            at = f"{path}.{key}" if path else key
            before = old.get(key, cel.ABSENT) if isinstance(old, dict) else cel.ABSENT
            yield from _check(item, child, at, before)


def _list_errors(
    value: list[Any], schema: Schema, path: str, old: objects.JsonValue
) -> Iterator[statuses.FieldError]:
    if schema.items is None:
        return
    for index, item in enumerate(value):
        yield from _check(item, schema.items, f"{path}[{index}]", cel.correlate(item, schema, old))
    if schema.list_type == "set":
        yield from _duplicates(value, lambda item: item, path)
    elif schema.list_type == "map":
        yield from _duplicates(value, lambda item: _list_key(item, schema), path)


def _list_key(item: objects.JsonValue, schema: Schema) -> objects.JsonValue:
    if not isinstance(item, dict):
        return item
    return {key: item.get(key) for key in schema.list_keys if key in item}


def _duplicates(
    value: list[Any], key: Callable[[objects.JsonValue], objects.JsonValue], path: str
) -> Iterator[statuses.FieldError]:
    seen: set[bytes] = set()
    for index, item in enumerate(value):
        found = objects.encode(key(item))
        if found in seen:
            yield statuses.duplicate(f"{path}[{index}]", key(item))
        seen.add(found)


def _keyword_errors(
    value: objects.JsonValue, keywords: Mapping[str, Any], path: str
) -> Iterator[statuses.FieldError]:
    choices = keywords.get("enum")
    # In Python True equals 1; in JSON it does not.
    if choices and not any(choice == value and type(choice) is type(value) for choice in choices):
        yield statuses.unsupported_value(path, value, choices)
    if isinstance(value, str):
        yield from _string_errors(value, keywords, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number_errors(value, keywords, path)
    elif isinstance(value, list):
        yield from _size_errors(len(value), keywords, path, "Items", "items")
    elif isinstance(value, dict):
        yield from _size_errors(len(value), keywords, path, "Properties", "properties")
    yield from _combination_errors(value, keywords, path)


def _string_errors(
    value: str, keywords: Mapping[str, Any], path: str
) -> Iterator[statuses.FieldError]:
    longest, shortest = keywords.get("maxLength"), keywords.get("minLength")
    if longest is not None and len(value) > longest:
        text = f"Too long: may not be more than {longest} bytes"
        yield statuses.FieldError("FieldValueTooLong", path, text)
    if shortest is not None and len(value) < shortest:
        yield statuses.invalid_value(
            path, value, f"{path} in body should be at least {shortest} chars long"
        )
    pattern = keywords.get("pattern")
    if pattern and not _compiled(pattern).search(value):
        yield statuses.invalid_value(path, value, f"{path} in body should match '{pattern}'")
    check = _FORMATS.get(keywords.get("format") or "")
    if check is not None and not check(value):
        text = f"{path} in body must be of type {keywords['format']}: {statuses.quote(value)}"
        shown = f"Invalid value: {statuses.quote(value)}: {text}"
        yield statuses.FieldError("FieldValueTypeInvalid", path, shown)


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    # RE2's `\z` is Python's `\Z`. Other syntax that schemas use is the same in both.
    return re.compile(pattern.replace(r"\z", r"\Z"))


def _number_errors(
    value: float, keywords: Mapping[str, Any], path: str
) -> Iterator[statuses.FieldError]:
    least, most = keywords.get("minimum"), keywords.get("maximum")
    above, below = keywords.get("exclusiveMinimum"), keywords.get("exclusiveMaximum")
    if least is not None and (value <= least if above else value < least):
        word = "greater than" if above else "greater than or equal to"
        yield statuses.invalid_value(path, value, f"{path} in body should be {word} {least}")
    if most is not None and (value >= most if below else value > most):
        word = "less than" if below else "less than or equal to"
        yield statuses.invalid_value(path, value, f"{path} in body should be {word} {most}")
    factor = keywords.get("multipleOf")
    if factor and value % factor:
        yield statuses.invalid_value(
            path, value, f"{path} in body should be a multiple of {factor}"
        )


def _size_errors(
    count: int, keywords: Mapping[str, Any], path: str, keyword: str, noun: str
) -> Iterator[statuses.FieldError]:
    least, most = keywords.get(f"min{keyword}"), keywords.get(f"max{keyword}")
    if least is not None and count < least:
        yield statuses.invalid_value(
            path, count, f"{path} in body should have at least {least} {noun}"
        )
    if most is not None and count > most:
        text = f"Too many: {count}: must have at most {most} {noun}"
        yield statuses.FieldError("FieldValueTooMany", path, text)


def _combination_errors(
    value: objects.JsonValue, keywords: Mapping[str, Any], path: str
) -> Iterator[statuses.FieldError]:
    for part in keywords.get("allOf") or ():
        yield from _subschema_errors(value, part, path)
    anyof = keywords.get("anyOf")
    if (
        anyof
        and not keywords.get("x-kubernetes-int-or-string")
        and not _matching(value, anyof, path)
    ):
        yield _combination(path, "must validate at least one schema (anyOf)")
    oneof = keywords.get("oneOf")
    if oneof and (count := _matching(value, oneof, path)) != 1:
        found = "Found none valid" if not count else f"Found {count} valid alternatives"
        yield _combination(path, f"must validate one and only one schema (oneOf). {found}")
    negated = keywords.get("not")
    if negated is not None and not any(_subschema_errors(value, negated, path)):
        yield _combination(path, "must not validate the schema (not)")


def _combination(path: str, why: str) -> statuses.FieldError:
    field = path or "<nil>"
    return statuses.FieldError("FieldValueInvalid", field, f'Invalid value: "": "{path}" {why}')


def _matching(value: objects.JsonValue, parts: list[Any], path: str) -> int:
    return sum(not any(_subschema_errors(value, part, path)) for part in parts)


def _subschema_errors(
    value: objects.JsonValue, keywords: Mapping[str, Any], path: str
) -> Iterator[statuses.FieldError]:
    """Check a value by a nested schema, which has the form of an ordinary one."""
    yield from _check(value, schema_from_openapi(keywords), path)


def _accepts(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            parse(value)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


_FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "date-time": objects.is_rfc3339,
    "date": _accepts(date.fromisoformat),
    "uuid": _accepts(uuid.UUID),
    "ipv4": _accepts(ipaddress.IPv4Address),
    "ipv6": _accepts(ipaddress.IPv6Address),
    "cidr": _accepts(ipaddress.ip_network),
    "byte": _accepts(lambda value: base64.b64decode(value, validate=True)),
    "email": re.compile(r"[^@\s]+@[^@\s]+").fullmatch,  # type: ignore[dict-item]  # truthy match
    "duration": re.compile(r"(\d+(\.\d+)?(ns|us|µs|ms|s|m|h|d|w))+").fullmatch,  # type: ignore[dict-item]  # as above
}
