"""Columns and cells, and the `additionalPrinterColumns` of custom kinds."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from navarchos.testing.apiserver import kinds, objects
from navarchos.testing.apiserver import status as statuses

__all__ = [
    "AGE",
    "NAME",
    "Cell",
    "Printer",
    "TableColumn",
    "age_since",
    "cell_age",
    "cell_name",
    "custom_cells",
    "custom_columns",
    "field_cell",
    "find_path",
    "human_duration",
    "selector_text",
    "wide",
]

Cell = Callable[[objects.JsonObject], objects.JsonValue]

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
_UNITS: Final = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}
_STEPS: Final = (  # for durations below the first number: the unit, and the smaller unit after it
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)
_STEP: Final = re.compile(
    r"\.(?P<field>(?:\\.|[^.\[\]\\])+)"
    r"|\[\?\(@\.(?P<key>[\w.-]+)\s*==\s*(?P<q>['\"])(?P<equals>.*?)(?P=q)\)\]"
    r"|\[(?P<q2>['\"])(?P<name>.*?)(?P=q2)\]"
    r"|\[(?P<index>-?\d+|\*|)\]"
)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column; `-o wide` alone shows columns with a `priority` above 0."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""

    def to_json(self) -> objects.JsonObject:
        """Return the `TableColumnDefinition`."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or f"{self.name}.",
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of a kind, with one function for the cells of each."""

    columns: tuple[TableColumn, ...]
    cells: tuple[Cell, ...]


NAME: Final = TableColumn(
    "Name",
    format="name",
    description="Name must be unique within a namespace.",
)
AGE: Final = TableColumn(
    "Age", description="CreationTimestamp is the time when this object was created."
)


def wide(name: str, kind: str = "string") -> TableColumn:
    """Return a column that only `-o wide` shows."""
    return TableColumn(name, kind, priority=1)


def cell_name(obj: objects.JsonObject) -> objects.JsonValue:
    """Return the name."""
    return objects.meta(obj).get("name", "")


def cell_age(obj: objects.JsonObject) -> objects.JsonValue:
    """Return the time since creation."""
    return age_since(objects.meta(obj).get("creationTimestamp"))


def age_since(stamp: str | None) -> str:
    """Return the time since a timestamp in kubectl's short form."""
    if not stamp:
        return "<unknown>"
    return human_duration((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds())


def human_duration(seconds: float) -> str:
    """Return a duration as apimachinery's `HumanDuration` prints it: two or three digits."""
    left = int(seconds)
    if left < 0:
        return "0s" if left == -1 else "<invalid>"
    for limit, large, small in _STEPS:
        if left < limit:
            return _two(left, large, small)
    return f"{left // _YEAR}y"


def _two(seconds: int, large: int, small: int) -> str:
    shown = f"{seconds // large}{_UNITS[large]}"
    rest = seconds % large // small if small else 0
    return f"{shown}{rest}{_UNITS[small]}" if rest else shown


def selector_text(selector: objects.JsonValue) -> str:
    """Return a label selector as kubectl prints it."""
    if not isinstance(selector, dict):
        return "<none>"
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for term in selector.get("matchExpressions") or []:
        key, values = term.get("key"), ",".join(sorted(term.get("values") or []))
        terms.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": f"{key}",
                "DoesNotExist": f"!{key}",
            }.get(term.get("operator"), "")
        )
    return ",".join(terms) or "<none>"


def field_cell(*path: str, default: objects.JsonValue = "<none>") -> Cell:
    """Return a function that reads one field."""
    return lambda obj: objects.dig(obj, *path, default=default)


def custom_columns(custom: kinds.CustomKind) -> list[objects.JsonObject]:
    """Return the column definitions; name and age if the kind declares none."""
    if not custom.columns:
        return [NAME.to_json(), {**AGE.to_json(), "type": "date"}]
    return [NAME.to_json(), *(_definition(column) for column in custom.columns)]


def _definition(column: kinds.PrinterColumn) -> objects.JsonObject:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description
        or f"Custom resource definition column (in JSONPath format): {column.json_path}",
        "priority": column.priority,
    }


def custom_cells(custom: kinds.CustomKind, obj: objects.JsonObject) -> list[objects.JsonValue]:
    """Return the cells of one object."""
    if not custom.columns:
        return [cell_name(obj), cell_age(obj)]
    return [cell_name(obj), *(_cell(column, obj) for column in custom.columns)]


def _cell(column: kinds.PrinterColumn, obj: objects.JsonObject) -> objects.JsonValue:
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
    # Several matches are separated by blanks, as Go prints them.
    return " ".join(_text(item) for item in found) if len(found) > 1 else _text(value)


def _date(value: objects.JsonValue) -> str:
    try:
        return age_since(value)
    except (TypeError, ValueError):
        return "<invalid>"


def _text(value: objects.JsonValue) -> str:
    return value if isinstance(value, str) else statuses.quote(value)


def find_path(obj: objects.JsonValue, path: str) -> list[objects.JsonValue]:
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


def _follow(value: objects.JsonValue, step: tuple[str, str, str]) -> Iterator[objects.JsonValue]:
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
