"""The functions that Kubernetes adds to CEL, as far as rules use them.

They are described in "CEL in Kubernetes": the libraries for strings, lists, regular expressions,
quantities, URLs and addresses, and the methods of optional values.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from celpy import celtypes

__all__ = ["FUNCTIONS", "Optional"]


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
