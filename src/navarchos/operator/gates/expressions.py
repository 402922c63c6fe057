"""The language of `kubectl wait --for`: conditions, and the JSONPath of kubectl. Pure.

The JSONPath of kubectl is a dialect: braces and the first dot can be left out, an absent field is
no error, and a filter compares with `==`. No library reads it, so its subset that selects values is
implemented here: fields, quoted keys, indexes, slices, wildcards, recursive descent and filters.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, assert_never

from navarchos.errors import ConfigError

__all__ = ["ConditionWait", "Expression", "Outcome", "PathWait", "evaluate", "parse"]

_MAX_VALUE: Final = 100
"""The largest number of characters of a value in a message."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether an object meets an expression, and the value that decides."""

    met: bool
    value: str


@dataclass(frozen=True, slots=True)
class ConditionWait:
    """`condition=TYPE[=STATUS]`; both are compared without regard to case, as in kubectl."""

    type: str
    status: str = "true"


@dataclass(frozen=True, slots=True)
class _Key:
    name: str


@dataclass(frozen=True, slots=True)
class _Items:
    """`[*]`, `[2]`, `[-1]`, `[1:3]` and `[0:4:2]`."""

    start: int | None
    stop: int | None
    step: int | None


@dataclass(frozen=True, slots=True)
class _Children:
    """`.*`: all values of an object or a list."""


@dataclass(frozen=True, slots=True)
class _Descendants:
    """`..`: the value and everything in it."""


@dataclass(frozen=True, slots=True)
class _Filter:
    """`[?(@.path)]` and `[?(@.path OPERATOR literal)]`."""

    path: tuple["_Step", ...]
    operator: str
    literal: object


_Step = _Key | _Items | _Children | _Descendants | _Filter


@dataclass(frozen=True, slots=True)
class PathWait:
    """`jsonpath={PATH}` or `jsonpath={PATH}=VALUE`; without a value, any value will do."""

    path: str
    steps: tuple[_Step, ...]
    value: str | None = None


Expression = ConditionWait | PathWait


@lru_cache(maxsize=512)
def parse(text: str) -> Expression:
    """Parse the text of `for`.

    Raises:
        ConfigError: It is not an expression of `kubectl wait`; says where.
    """
    form, equals, rest = text.strip().partition("=")
    if form == "condition" and equals and rest:
        type_, has_status, status = rest.partition("=")
        if not type_ or (has_status and not status):
            raise _error(text, "must be condition=TYPE or condition=TYPE=STATUS")
        return ConditionWait(type_, status or "true")
    if form == "jsonpath" and equals and rest:
        return _parse_path_wait(text, rest)
    raise _error(text, "must begin with condition= or jsonpath=")


def evaluate(expression: Expression, obj: Mapping[str, object]) -> Outcome:
    """Return whether an object meets an expression. Never raises."""
    match expression:
        case ConditionWait():
            return _evaluate_condition(expression, obj)
        case PathWait():
            return _evaluate_path(expression, obj)
        case _:
            assert_never(expression)


def _error(text: str, rule: str) -> ConfigError:
    return ConfigError("for", text, rule)


def _evaluate_condition(wait: ConditionWait, obj: Mapping[str, object]) -> Outcome:
    name = wait.type
    for condition in _list(_mapping(obj.get("status")).get("conditions")):
        found = _mapping(condition)
        if str(found.get("type", "")).casefold() != wait.type.casefold():
            continue
        name, status = str(found["type"]), str(found.get("status", ""))
        if _is_outdated(found, obj):
            return Outcome(False, f"{name}={status} of a former generation")
        return Outcome(status.casefold() == wait.status.casefold(), f"{name}={status}")
    return Outcome(False, f"no condition {name}")


def _is_outdated(condition: Mapping[str, object], obj: Mapping[str, object]) -> bool:
    """Return whether a condition describes a former spec, as kubectl decides it."""
    generation = _mapping(obj.get("metadata")).get("generation")
    observed = condition.get("observedGeneration")
    if observed is None:
        observed = _mapping(obj.get("status")).get("observedGeneration")
    return isinstance(generation, int) and isinstance(observed, int) and observed < generation


def _evaluate_path(wait: PathWait, obj: Mapping[str, object]) -> Outcome:
    found = [value for value in _follow(wait.steps, obj) if value is not None]
    if not found:
        return Outcome(False, f"{wait.path} has no value")
    if len(found) > 1:
        return Outcome(False, f"{wait.path} has {len(found)} values instead of one")
    (value,) = found
    if isinstance(value, Mapping | list):
        if wait.value is None:
            return Outcome(True, f"{wait.path} has a value")
        return Outcome(False, f"{wait.path} is an object or a list, which has no single value")
    text = _text(value)
    is_met = wait.value is None or text.strip() == wait.value.strip()
    return Outcome(is_met, f"{wait.path}={text[:_MAX_VALUE]}")


def _text(value: object) -> str:
    """Return a value as Go prints it with `%v`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


# Parser


_RELAXED: Final = re.compile(r"\{(?P<braced>.*)\}|(?P<bare>.*)", re.DOTALL)
_NAME: Final = re.compile(r"(?:\\.|[^.\[\]{}\s\\])+")
_QUOTED: Final = re.compile(
    r"\[\s*(?P<quote>['\"])(?P<key>(?:\\.|(?!(?P=quote)).)*)(?P=quote)\s*\]"
)
_RANGE: Final = re.compile(
    r"\[\s*(?:\*|(?P<index>-?\d+)|(?P<start>-?\d*):(?P<stop>-?\d*)(?::(?P<step>\d*))?)\s*\]"
)
_FILTER: Final = re.compile(
    r"\[\s*\?\(\s*@(?P<path>(?:[^=!<>()'\"\s]|\[['\"][^'\"]*['\"]\])*)\s*"
    r"(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<literal>'[^']*'|\"[^\"]*\"|[^)\s]+)\s*)?\)\s*\]"
)

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _parse_path_wait(text: str, rest: str) -> PathWait:
    """Split at the first equals sign outside of `==`, `!=`, `<=`, `>=`, quotes and braces."""
    path, value = _split(rest)
    if value is not None and not (value := value.strip("'\"")):
        raise _error(text, "there must be a value after the equals sign")
    path = path.strip().strip("'\"")
    match = _RELAXED.fullmatch(path)
    body = match and (match["braced"] if match["braced"] is not None else match["bare"])
    if not body or not body.strip(". "):
        raise _error(text, "there must be a path, such as jsonpath={.status.phase}")
    body = body.strip()
    steps = _parse_steps(body if body.startswith((".", "[")) else f".{body}", text)
    return PathWait(f"{{{body}}}", steps, value)


def _split(rest: str) -> tuple[str, str | None]:
    depth, quote = 0, ""
    for n, char in enumerate(rest):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and depth:
            quote = char
        elif char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "=" and not depth:
            return rest[:n], rest[n + 1 :]
    return rest, None


def _parse_steps(path: str, text: str) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        step, at = _parse_step(path, at, text)
        steps += step
    return tuple(steps)


def _parse_step(path: str, at: int, text: str) -> tuple[Sequence[_Step], int]:
    if path.startswith("..", at):
        inner, end = _parse_step(path, at + 1 + path.startswith("..[", at), text)
        return [_Descendants(), *inner], end
    if path.startswith(".[", at):
        at += 1
    step: _Step
    if path.startswith(".*", at):
        return [_Children()], at + 2
    if path[at] == "." and (match := _NAME.match(path, at + 1)):
        step = _Key(_unescaped(match[0]))
    elif match := _QUOTED.match(path, at):
        step = _Key(_unescaped(match["key"]))
    elif match := _RANGE.match(path, at):
        step = _items(match)
    elif match := _FILTER.match(path, at):
        step = _filter(match, text)
    else:
        raise _error(text, f"the path cannot be read from {path[at:]!r}")
    return [step], match.end()


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _items(match: re.Match[str]) -> _Items:
    if match["index"] is not None:
        index = int(match["index"])
        return _Items(index, index + 1 or None, None)
    start, stop, step = (int(match[part]) if match[part] else None for part in _PARTS)
    return _Items(start, stop, step or None)


_PARTS: Final = ("start", "stop", "step")


def _filter(match: re.Match[str], text: str) -> _Filter:
    path = match["path"]
    steps = _parse_steps(path if not path or path[0] in ".[" else f".{path}", text)
    return _Filter(steps, match["operator"] or "", _literal(match["literal"] or ""))


def _literal(text: str) -> object:
    if text[:1] in {"'", '"'}:
        return text[1:-1]
    if text in {"true", "false"}:
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


# Evaluation


def _follow(steps: Sequence[_Step], value: object) -> Iterator[object]:
    if not steps:
        yield value
        return
    for found in _apply(steps[0], value):
        yield from _follow(steps[1:], found)


def _apply(step: _Step, value: object) -> Iterator[object]:
    match step:
        case _Key():
            if isinstance(value, Mapping) and step.name in value:
                yield value[step.name]
        case _Items():
            if isinstance(value, list):
                yield from value[step.start : step.stop : step.step]
        case _Children():
            yield from _children(value)
        case _Descendants():
            yield value
            for child in _children(value):
                yield from _apply(step, child)
        case _Filter():
            yield from (item for item in _list(value) if _passes(step, item))
        case _:
            assert_never(step)


def _children(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        yield from value.values()
    else:
        yield from _list(value)


def _passes(filter_: _Filter, item: object) -> bool:
    found = list(_follow(filter_.path, item))
    if not filter_.operator:
        return bool(found)
    return any(_compares(filter_.operator, value, filter_.literal) for value in found)


def _compares(name: str, left: object, right: object) -> bool:
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    # In Python, True equals 1.
    if isinstance(left, bool) is not isinstance(right, bool):
        return name == "!="
    if not numbers and not (isinstance(left, str) and isinstance(right, str)):
        return name == "!="
    return _OPERATORS[name](left, right)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
