"""Validation rules in the Common Expression Language: `x-kubernetes-validations`.

cel-python evaluates them. `celfunctions` has the functions that Kubernetes adds to the language. A
CustomResourceDefinition with a rule that does not compile is refused.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from navarchos.testing.apiserver.objects import JsonValue, is_rfc3339
from navarchos.testing.apiserver.schema import Schema
from navarchos.testing.apiserver.status import FieldError, quote

__all__ = ["ABSENT", "compile_error", "correlate", "rule_errors", "uses_old_self"]

_MISSING: Final = re.compile(r"no such member in mapping: '([^']*)'")
_OLD: Final = re.compile(r"\boldSelf\b")
_RESERVED: Final = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
    "if", "import", "let", "loop", "package", "namespace", "return",
})  # fmt: skip
_NAMES: Final = frozenset({"name", "generateName"})
ABSENT: Final = object()
"""The old value of a value that did not exist before."""

_Evaluate = Callable[[Mapping[str, Any]], Any]


def rule_errors(value: JsonValue, schema: Schema, old: JsonValue = ABSENT) -> list[FieldError]:
    """Return the errors of the rules that `value` breaks.

    Args:
        value: The object, already valid for the schema otherwise.
        schema: The schema of the object.
        old: The object before the change. Without it, rules with `oldSelf` are skipped. With it,
            other rules are skipped for values that have not changed.
    """
    return list(_visit(_visible(value), schema, _visible(old), ""))


def _visible(obj: JsonValue) -> JsonValue:
    """Return an object as its rules see it: of the metadata they see only the names."""
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        return obj
    names = {key: value for key, value in obj["metadata"].items() if key in _NAMES}
    return {**obj, "metadata": names}


def _visit(value: JsonValue, schema: Schema, old: JsonValue, path: str) -> Iterator[FieldError]:
    if value is None or not schema.has_rules:
        return
    for rule in schema.rules:
        yield from _evaluate(rule, value, schema, old, path)
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.child(key)
            if child is not None:
                before = old.get(key, ABSENT) if isinstance(old, dict) else ABSENT
                at = _join(path, key, mapped=key not in schema.properties)
                yield from _visit(item, child, before, at)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            before = correlate(item, schema, old)
            at = f"{path}[{index}]"
            yield from _visit(item, schema.items, before, at)


def _join(path: str, key: str, *, mapped: bool) -> str:
    if mapped:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def correlate(item: JsonValue, schema: Schema, old: JsonValue) -> JsonValue:
    """Return the old item of a `map` list with the same keys; items of other lists have none."""
    if schema.list_type != "map" or not isinstance(old, list) or not isinstance(item, dict):
        return ABSENT
    for before in old:
        if all(before.get(key) == item.get(key) for key in schema.list_keys):
            return before
    return ABSENT


def _evaluate(
    rule: Mapping[str, Any],
    value: JsonValue,
    schema: Schema,
    old: JsonValue,
    path: str,
) -> Iterator[FieldError]:
    text = rule["rule"]
    if uses_old_self(text) and old is ABSENT and not rule.get("optionalOldSelf"):
        return
    if not uses_old_self(text) and old is not ABSENT and value == old:
        return
    context = {"self": _to_cel(value, schema)}
    if rule.get("optionalOldSelf"):
        context["oldSelf"] = _optional(None if old is ABSENT else _to_cel(old, schema))
    elif uses_old_self(text):
        context["oldSelf"] = _to_cel(old, schema)
    try:
        holds = bool(_program(text)(context))
        why = "" if holds else _message(rule, context)
    except Exception as error:  # noqa: BLE001 - any error of an expression is the result of its rule
        why = f"{_error_text(error)} evaluating rule: {rule.get('message') or text}"
        yield FieldError(
            "FieldValueInvalid", path or "<nil>", f"Invalid value: {quote(schema.type)}: {why}"
        )
        return
    if not holds:
        yield _error(rule, value, path, why)


def _error_text(error: Exception) -> str:
    """Return the message of an error, in upstream's words where they are known."""
    missing = _MISSING.search(str(error))
    return f"no such key: {missing[1]}" if missing else str(error)


def _error(rule: Mapping[str, Any], value: JsonValue, path: str, why: str) -> FieldError:
    reason = rule.get("reason") or "FieldValueInvalid"
    field = (path + (rule.get("fieldPath") or "")).lstrip(".") or "<nil>"
    if reason == "FieldValueForbidden":
        return FieldError(reason, field, f"Forbidden: {why}")
    if reason == "FieldValueRequired":
        return FieldError(reason, field, f"Required value: {why}")
    plain = not isinstance(value, (dict, list))  # upstream does not show objects and lists
    if reason == "FieldValueDuplicate":
        return FieldError(reason, field, "Duplicate value" + (f": {quote(value)}" if plain else ""))
    shown = f"{quote(value)}: " if plain else ""
    return FieldError("FieldValueInvalid", field, f"Invalid value: {shown}{why}")


def _message(rule: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    expression = rule.get("messageExpression")
    if expression:
        try:
            found = str(_program(expression)(context)).strip()
        except Exception:  # noqa: BLE001 - upstream falls back to the fixed message
            found = ""
        if found and "\n" not in found:
            return found
    return rule.get("message") or f"failed rule: {rule['rule']}"


def uses_old_self(expression: str) -> bool:
    """Return whether an expression uses `oldSelf`."""
    return bool(_OLD.search(expression))


def compile_error(expression: str) -> str:
    """Return the reason why an expression does not compile; empty if it compiles."""
    try:
        _program(expression)
    except Exception as error:  # noqa: BLE001 - parsers raise many kinds
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


@lru_cache(maxsize=1024)
def _program(expression: str) -> _Evaluate:
    import celpy

    from navarchos.testing.apiserver.celfunctions import FUNCTIONS

    environment = celpy.Environment()
    program = environment.program(environment.compile(expression), functions=dict(FUNCTIONS))
    evaluate: _Evaluate = program.evaluate
    return evaluate


def _optional(value: Any) -> Any:
    """Return an optional value for the functions in `celfunctions`."""
    from navarchos.testing.apiserver.celfunctions import Optional

    return Optional([] if value is None else [value])


def _to_cel(value: JsonValue, schema: Schema | None) -> Any:
    """Convert JSON for cel-python, and escape field names as upstream does."""
    from celpy import celtypes
    from celpy.adapter import json_to_cel

    if isinstance(value, dict):
        return celtypes.MapType(
            {
                celtypes.StringType(_escaped(key, schema)): _to_cel(
                    item, schema and schema.child(key)
                )
                for key, item in value.items()
            }
        )
    if isinstance(value, list):
        items = schema.items if schema else None
        return celtypes.ListType([_to_cel(item, items) for item in value])
    if (
        isinstance(value, str)
        and schema is not None
        and schema.format == "date-time"
        and is_rfc3339(value)
    ):
        return celtypes.TimestampType(value)
    if isinstance(value, str) and schema is not None and schema.format == "duration":
        return celtypes.DurationType(value)
    if isinstance(value, int) and schema is not None and schema.type == "number":
        return celtypes.DoubleType(value)
    return json_to_cel(value)


def _escaped(key: str, schema: Schema | None) -> str:
    if schema is None or key not in schema.properties:
        return key
    if key in _RESERVED:
        return f"__{key}__"
    for char, name in (("__", "underscores"), (".", "dot"), ("-", "dash"), ("/", "slash")):
        key = key.replace(char, f"__{name}__")
    return key
