"""The parts that tables are put together from."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from navarchos.testing.apiserver.objects import JsonObject, JsonValue, dig, meta

__all__ = [
    "AGE",
    "NAME",
    "Cell",
    "Column",
    "Printer",
    "age_since",
    "cell_age",
    "cell_name",
    "field_cell",
    "human_duration",
    "selector_text",
    "wide",
]

Cell = Callable[[JsonObject], JsonValue]

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
_UNITS: Final = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}
_STEPS: Final = (  # below the first number: the unit, and the smaller one beside it
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `priority` above 0 is shown by `-o wide` only."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""

    def to_json(self) -> JsonObject:
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
    """How a kind is shown: columns, and one function per column."""

    columns: tuple[Column, ...]
    cells: tuple[Cell, ...]


NAME: Final = Column(
    "Name",
    format="name",
    description="Name must be unique within a namespace.",
)
AGE: Final = Column(
    "Age", description="CreationTimestamp is the time when this object was created."
)


def wide(name: str, kind: str = "string") -> Column:
    """Return a column that only `-o wide` shows."""
    return Column(name, kind, priority=1)


def cell_name(obj: JsonObject) -> JsonValue:
    """Return the name."""
    return meta(obj).get("name", "")


def cell_age(obj: JsonObject) -> JsonValue:
    """Return the time since creation."""
    return age_since(meta(obj).get("creationTimestamp"))


def age_since(stamp: str | None) -> str:
    """Return the time since a timestamp in kubectl's short form."""
    if not stamp:
        return "<unknown>"
    return human_duration((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds())


def human_duration(seconds: float) -> str:
    """Write a duration as apimachinery's `HumanDuration`: about two or three digits."""
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


def selector_text(selector: JsonValue) -> str:
    """Write a label selector as kubectl shows it."""
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


def field_cell(*path: str, default: JsonValue = "<none>") -> Cell:
    """Return a function that reads one field."""
    return lambda obj: dig(obj, *path, default=default)
