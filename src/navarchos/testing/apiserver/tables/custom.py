"""Custom kinds: `additionalPrinterColumns`, read by JSONPath."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from navarchos.testing.apiserver.kinds import Column as CustomColumn
from navarchos.testing.apiserver.kinds import Custom
from navarchos.testing.apiserver.objects import JsonObject, JsonValue
from navarchos.testing.apiserver.status import quote
from navarchos.testing.apiserver.tables.cells import AGE, NAME, age_since, cell_age, cell_name

__all__ = ["custom_cells", "custom_columns", "find_path"]

_STEP: Final = re.compile(
    r"\.(?P<field>(?:\\.|[^.\[\]\\])+)"
    r"|\[\?\(@\.(?P<key>[\w.-]+)\s*==\s*(?P<q>['\"])(?P<equals>.*?)(?P=q)\)\]"
    r"|\[(?P<q2>['\"])(?P<name>.*?)(?P=q2)\]"
    r"|\[(?P<index>-?\d+|\*|)\]"
)


def custom_columns(custom: Custom) -> list[JsonObject]:
    """Return the column definitions; `Age` alone where none are declared."""
    if not custom.columns:
        return [NAME.to_json(), {**AGE.to_json(), "type": "date"}]
    return [NAME.to_json(), *(_definition(column) for column in custom.columns)]


def _definition(column: CustomColumn) -> JsonObject:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description
        or f"Custom resource definition column (in JSONPath format): {column.json_path}",
        "priority": column.priority,
    }


def custom_cells(custom: Custom, obj: JsonObject) -> list[JsonValue]:
    """Return the cells of one object."""
    if not custom.columns:
        return [cell_name(obj), cell_age(obj)]
    return [cell_name(obj), *(_cell(column, obj) for column in custom.columns)]


def _cell(column: CustomColumn, obj: JsonObject) -> JsonValue:
    found = [value for value in find_path(obj, column.json_path) if value is not None]
    if not found:
        return None
    value = found[0]
    if column.type in {"integer", "number"}:
        return value if isinstance(value, (int, float)) else None
    if column.type == "boolean":
        return value if isinstance(value, bool) else None
    if column.type == "date":
        return _date(value)
    # Several matches show like Go prints them, separated by blanks.
    return " ".join(_text(item) for item in found) if len(found) > 1 else _text(value)


def _date(value: JsonValue) -> str:
    try:
        return age_since(value)
    except (TypeError, ValueError):
        return "<invalid>"


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else quote(value)


def find_path(obj: JsonValue, path: str) -> list[JsonValue]:
    """Return the values that a JSONPath selects: fields, indexes, `[*]`, equality filters."""
    values = [obj]
    for step in _steps(path):
        values = [found for value in values for found in _follow(value, step)]
    return values


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[tuple[str, str, str], ...]:
    path = path.strip().strip("{}")
    path = path if path.startswith((".", "[")) else f".{path}"
    found = []
    for match in _STEP.finditer(path):
        field = match["field"] or match["name"]
        if field is not None:
            found.append(("field", field.replace("\\.", "."), ""))
        elif match["key"] is not None:
            found.append(("filter", match["key"], match["equals"]))
        else:
            found.append(("index", match["index"] or "*", ""))
    return tuple(found)


def _follow(value: JsonValue, step: tuple[str, str, str]) -> Iterator[JsonValue]:
    kind, key, wanted = step
    if kind == "field":
        if isinstance(value, dict) and key in value:
            yield value[key]
        elif key == "*" and isinstance(value, dict):
            yield from value.values()
    elif isinstance(value, list) and kind == "filter":
        yield from (item for item in value if wanted in map(str, find_path(item, key)))
    elif isinstance(value, list) and key == "*":
        yield from value
    elif isinstance(value, list) and -len(value) <= int(key) < len(value):
        yield value[int(key)]
