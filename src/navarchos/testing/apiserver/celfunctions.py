"""The functions that Kubernetes adds to CEL, as far as rules use them.

See "CEL in Kubernetes": the string, list, regex and `quantity` libraries.
"""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

from celpy import celtypes

__all__ = ["FUNCTIONS"]


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
}
"""By name; methods get the receiver as their first argument."""
