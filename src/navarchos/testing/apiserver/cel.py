"""Validation rules in the Common Expression Language: `x-kubernetes-validations`.

cel-python evaluates them. `celfunctions` has the functions that Kubernetes adds to the language. A
CustomResourceDefinition with a rule that does not compile is refused.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from celpy import celtypes

from navarchos.testing.apiserver import objects
from navarchos.testing.apiserver import status as statuses
from navarchos.testing.apiserver.schema import Schema

__all__ = [
    "ABSENT",
    "FUNCTIONS",
    "Optional",
    "compile_error",
    "correlate",
    "rule_errors",
    "uses_old_self",
]

_QUANTITY: Final = re.compile(
    r"([+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+)([a-zA-Z]{0,2}?)(?:[eE]([+-]?[0-9]+))?"
)
_UNITS: Final[Mapping[str, Decimal]] = {
    "": Decimal(1),
    **{f"{unit}i": Decimal(1024) ** step for step, unit in enumerate("KMGTPE", 1)},
    **{unit: Decimal(1000) ** step for step, unit in enumerate("kMGTPE", 1)},
    **{unit: Decimal(1000) ** -step for step, unit in enumerate("mun", 1)},
}


class Optional(celtypes.ListType):
    """An optional value: a list with one item or none. CEL's own syntax for it is not parsed."""


def _value(optional: Any) -> Any:
    if not len(optional):
        raise ValueError("optional.none() dereference")
    return optional[0]


def _string(change: Callable[[str], str]) -> Callable[[Any], Any]:
    return lambda text: celtypes.StringType(change(str(text)))


def _join(items: Any, separator: Any = "") -> Any:
    return celtypes.StringType(str(separator).join(str(item) for item in items))


def _split(text: Any, separator: Any, limit: Any = -1) -> Any:
    count = int(limit)
    parts = (
        str(text).split(str(separator)) if count < 0 else str(text).split(str(separator), count - 1)
    )
    return celtypes.ListType([celtypes.StringType(part) for part in parts])


def _replace(text: Any, old: Any, new: Any, limit: Any = -1) -> Any:
    return celtypes.StringType(str(text).replace(str(old), str(new), int(limit)))


def _substring(text: Any, start: Any, end: Any = None) -> Any:
    return celtypes.StringType(str(text)[int(start) : None if end is None else int(end)])


def _index_of(where: Any, what: Any) -> Any:
    if isinstance(where, str):
        return celtypes.IntType(where.find(str(what)))
    return celtypes.IntType(next((i for i, item in enumerate(where) if item == what), -1))


def _last_index_of(where: Any, what: Any) -> Any:
    if isinstance(where, str):
        return celtypes.IntType(where.rfind(str(what)))
    found = [i for i, item in enumerate(where) if item == what]
    return celtypes.IntType(found[-1] if found else -1)


def _is_sorted(items: Any) -> Any:
    return celtypes.BoolType(all(left <= right for left, right in pairwise(items)))


def _sum(items: Any) -> Any:
    total = celtypes.IntType(0)
    for item in items:
        total += item
    return total


def _find(text: Any, pattern: Any) -> Any:
    match = re.search(str(pattern), str(text))
    return celtypes.StringType(match.group(0) if match else "")


def _find_all(text: Any, pattern: Any) -> Any:
    found = re.finditer(str(pattern), str(text))
    return celtypes.ListType([celtypes.StringType(match.group(0)) for match in found])


def _accepts(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    def check(text: Any) -> Any:
        try:
            parse(str(text))
        except ValueError:
            return celtypes.BoolType(False)
        return celtypes.BoolType(True)

    return check


def _quantity(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"no quantity: {text}")
    return Decimal(match[1]) * _UNITS[match[2]] * Decimal(10) ** int(match[3] or 0)


def _url(text: str) -> SplitResult:
    found = urlsplit(text)
    if not found.scheme and not text.startswith("/"):
        raise ValueError(f"no URL: {text}")
    return found


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "lowerAscii": _string(str.lower),
    "upperAscii": _string(str.upper),
    "trim": _string(str.strip),
    "join": _join,
    "split": _split,
    "replace": _replace,
    "substring": _substring,
    "charAt": lambda text, at: celtypes.StringType(str(text)[int(at) : int(at) + 1]),
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "isSorted": _is_sorted,
    "sum": _sum,
    "min": min,
    "max": max,
    "find": _find,
    "findAll": _find_all,
    "isQuantity": _accepts(_quantity),
    "quantity": lambda text: _quantity(str(text)),
    "isLessThan": lambda one, other: celtypes.BoolType(one < other),
    "isGreaterThan": lambda one, other: celtypes.BoolType(one > other),
    "compareTo": lambda one, other: celtypes.IntType((one > other) - (one < other)),
    "isInteger": lambda one: celtypes.BoolType(one == one.to_integral_value()),
    "asInteger": lambda one: celtypes.IntType(int(one)),
    "asApproximateFloat": lambda one: celtypes.DoubleType(float(one)),
    "isURL": _accepts(_url),
    "url": lambda text: _url(str(text)),
    "getScheme": lambda url: celtypes.StringType(url.scheme),
    "getHost": lambda url: celtypes.StringType(url.netloc.rpartition("@")[2]),
    "getHostname": lambda url: celtypes.StringType(url.hostname or ""),
    "getPort": lambda url: celtypes.StringType(url.port or ""),
    "getEscapedPath": lambda url: celtypes.StringType(url.path),
    "isIP": _accepts(ipaddress.ip_address),
    "ip": lambda text: ipaddress.ip_address(str(text)),
    "family": lambda address: celtypes.IntType(address.version),
    "isLoopback": lambda address: celtypes.BoolType(address.is_loopback),
    "hasValue": lambda optional: celtypes.BoolType(len(optional) > 0),
    "value": _value,
    "orValue": lambda optional, other: optional[0] if len(optional) else other,
}
"""The functions by name. A method gets its receiver as the first argument."""


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


def rule_errors(
    value: objects.JsonValue, schema: Schema, old: objects.JsonValue = ABSENT
) -> list[statuses.FieldError]:
    """Return the errors of the rules that `value` breaks.

    Args:
        value: The object, already valid for the schema otherwise.
        schema: The schema of the object.
        old: The object before the change. Without it, rules with `oldSelf` are skipped. With it,
            other rules are skipped for values that have not changed.
    """
    return list(_visit(_visible(value), schema, _visible(old), ""))


def _visible(obj: objects.JsonValue) -> objects.JsonValue:
    """Return an object as its rules see it: of the metadata they see only the names."""
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        return obj
    names = {key: value for key, value in obj["metadata"].items() if key in _NAMES}
    return {**obj, "metadata": names}


def _visit(
    value: objects.JsonValue, schema: Schema, old: objects.JsonValue, path: str
) -> Iterator[statuses.FieldError]:
    if value is None or not schema.has_rules:
        return
    for rule in schema.rules:
        yield from _evaluate(rule, value, schema, old, path)
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.child(key)
            if child is not None:
                before = old.get(key, ABSENT) if isinstance(old, dict) else ABSENT
                at = _child_path(path, key, mapped=key not in schema.properties)
                yield from _visit(item, child, before, at)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            before = correlate(item, schema, old)
            at = f"{path}[{index}]"
            yield from _visit(item, schema.items, before, at)


def _child_path(path: str, key: str, *, mapped: bool) -> str:
    if mapped:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def correlate(item: objects.JsonValue, schema: Schema, old: objects.JsonValue) -> objects.JsonValue:
    """Return the old item of a `map` list with the same keys; items of other lists have none."""
    if schema.list_type != "map" or not isinstance(old, list) or not isinstance(item, dict):
        return ABSENT
    for before in old:
        if all(before.get(key) == item.get(key) for key in schema.list_keys):
            return before
    return ABSENT


def _evaluate(
    rule: Mapping[str, Any],
    value: objects.JsonValue,
    schema: Schema,
    old: objects.JsonValue,
    path: str,
) -> Iterator[statuses.FieldError]:
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
        yield statuses.FieldError(
            "FieldValueInvalid",
            path or "<nil>",
            f"Invalid value: {statuses.quote(schema.type)}: {why}",
        )
        return
    if not holds:
        yield _error(rule, value, path, why)


def _error_text(error: Exception) -> str:
    """Return the message of an error, in upstream's words where they are known."""
    missing = _MISSING.search(str(error))
    return f"no such key: {missing[1]}" if missing else str(error)


def _error(
    rule: Mapping[str, Any], value: objects.JsonValue, path: str, why: str
) -> statuses.FieldError:
    reason = rule.get("reason") or "FieldValueInvalid"
    field = (path + (rule.get("fieldPath") or "")).lstrip(".") or "<nil>"
    if reason == "FieldValueForbidden":
        return statuses.FieldError(reason, field, f"Forbidden: {why}")
    if reason == "FieldValueRequired":
        return statuses.FieldError(reason, field, f"Required value: {why}")
    plain = not isinstance(value, (dict, list))  # upstream does not show objects and lists
    if reason == "FieldValueDuplicate":
        return statuses.FieldError(
            reason, field, "Duplicate value" + (f": {statuses.quote(value)}" if plain else "")
        )
    shown = f"{statuses.quote(value)}: " if plain else ""
    return statuses.FieldError("FieldValueInvalid", field, f"Invalid value: {shown}{why}")


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

    from navarchos.testing.apiserver.cel import FUNCTIONS

    environment = celpy.Environment()
    program = environment.program(environment.compile(expression), functions=dict(FUNCTIONS))
    evaluate: _Evaluate = program.evaluate
    return evaluate


def _optional(value: Any) -> Any:
    """Return an optional value for the functions in `celfunctions`."""
    from navarchos.testing.apiserver.cel import Optional

    return Optional([] if value is None else [value])


def _to_cel(value: objects.JsonValue, schema: Schema | None) -> Any:
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
        and objects.is_rfc3339(value)
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
