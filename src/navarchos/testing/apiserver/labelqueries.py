"""Label selectors as queries spell them: the grammar of apimachinery's `labels`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from navarchos.testing.apiserver.names import validate_label_value, validate_qualified_name
from navarchos.testing.apiserver.status import StatusError, bad_request

__all__ = ["Requirement", "parse_label_selector"]

_WORD: Final = re.compile(r"\s*(?P<word>==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_SYMBOLS: Final = frozenset({"==", "!=", "=", "!", "<", ">", "(", ")", ","})
_OPERATORS: Final = {
    "in": "in", "notin": "notin", "=": "in", "==": "in", "!=": "notin", ">": "gt", "<": "lt",
}  # fmt: skip
_END: Final = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term: the value of `key` and how it must relate to `values`."""

    key: str
    op: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Return whether a set of labels meets the term."""
        value = labels.get(self.key)
        if self.op == "in":
            return value in self.values
        if self.op == "notin":
            return value not in self.values
        if self.op == "exists":
            return value is not None
        if self.op == "absent":
            return value is None
        return _compare(value, self.op, self.values[0])


def _compare(value: str | None, op: str, bound: str) -> bool:
    try:
        left, right = int(value or ""), int(bound)
    except ValueError:
        return False
    return left > right if op == "gt" else left < right


def parse_label_selector(text: str) -> tuple[Requirement, ...]:
    """Parse `labelSelector`: equality, sets, existence and comparison.

    Raises:
        StatusError: 400, in the words of the API.
    """
    return tuple(_Parser(text).parse())


class _Parser:
    """Reads the words from left to right; the first that does not fit is named."""

    def __init__(self, text: str) -> None:
        self._words = [match["word"] for match in _WORD.finditer(text)]
        self._at = 0

    def parse(self) -> list[Requirement]:
        found: list[Requirement] = []
        while (word := self._peek()) != _END:
            if word in _SYMBOLS - {"!"}:
                raise bad_request(f"found '{word}', expected: !, identifier, or 'end of string'")
            found.append(self._requirement())
            if (word := self._next()) == _END:
                break
            if word != ",":
                raise bad_request(f"found '{word}', expected: ',' or 'end of string'")
            if (word := self._peek()) == _END or word in _SYMBOLS - {"!"}:
                raise bad_request(f"found '{word}', expected: identifier after ','")
        return found

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else _END

    def _next(self) -> str:
        word = self._peek()
        self._at += 1
        return word

    def _requirement(self) -> Requirement:
        absent = self._peek() == "!"
        if absent:
            self._next()
        key = self._identifier("expected: identifier")
        if wrong := validate_qualified_name(key):
            raise _unparsable(f'<nil>: Invalid value: "{key}": {"; ".join(wrong)}')
        if absent:
            return Requirement(key, "absent")
        if self._peek() in {_END, ","}:
            return Requirement(key, "exists")
        operator = self._next()
        if operator not in _OPERATORS:
            raise _unparsable(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._set() if operator in {"in", "notin"} else (self._value(),)
        return _checked(Requirement(key, _OPERATORS[operator], values))

    def _identifier(self, expected: str) -> str:
        word = self._next()
        if word == _END or word in _SYMBOLS:
            raise _unparsable(f"found '{word}', {expected}")
        return word

    def _value(self) -> str:
        if self._peek() in {_END, ","}:
            return ""
        return self._identifier("expected: identifier")

    def _set(self) -> tuple[str, ...]:
        if (word := self._next()) != "(":
            raise _unparsable(f"found '{word}' expected: '('")
        found = {self._value_in_set()}
        while (word := self._next()) == ",":
            found.add(self._value_in_set())
        if word != ")":
            raise _unparsable(f"found '{word}', expected: ',' or ')'")
        return tuple(sorted(found))

    def _value_in_set(self) -> str:
        if self._peek() in {",", ")"}:
            return ""
        return self._identifier("expected: ',', ')' or identifier")


def _checked(found: Requirement) -> Requirement:
    for index, value in enumerate(found.values):
        field = f"values[{index}]"
        if found.op in {"gt", "lt"} and not re.fullmatch(r"[-+]?\d+", value):
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _unparsable(f'{field}: Invalid value: "{value}": {why}')
        if wrong := validate_label_value(value):
            raise _unparsable(f'{field}[{found.key}]: Invalid value: "{value}": {"; ".join(wrong)}')
    return found


def _unparsable(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")
