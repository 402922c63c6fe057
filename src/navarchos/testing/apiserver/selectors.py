"""Label selectors and field selectors, of queries and of objects.

The grammar of label selectors in queries follows apimachinery's package labels.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from navarchos.testing.apiserver import kinds, names, objects
from navarchos.testing.apiserver import status as statuses

__all__ = [
    "Selection",
    "SelectorRequirement",
    "field_labels",
    "label_selector_matches",
    "parse_field_selector",
    "parse_label_selector",
]

_WORD: Final = re.compile(r"\s*(?P<word>==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_SYMBOLS: Final = frozenset({"==", "!=", "=", "!", "<", ">", "(", ")", ","})
_OPERATORS: Final = {
    "in": "in", "notin": "notin", "=": "in", "==": "in", "!=": "notin", ">": "gt", "<": "lt",
}  # fmt: skip
_END: Final = ""


@dataclass(frozen=True, slots=True)
class SelectorRequirement:
    """One term of a label selector: a key, and how its value must relate to `values`."""

    key: str
    op: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Return whether labels meet the term."""
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


def parse_label_selector(text: str) -> tuple[SelectorRequirement, ...]:
    """Parse `labelSelector`: equality, sets, existence, comparison.

    Raises:
        StatusError: 400.
    """
    return tuple(_SelectorParser(text).parse())


class _SelectorParser:
    """Parses the words of a selector from left to right; an error names the first bad word."""

    def __init__(self, text: str) -> None:
        self._words = [match["word"] for match in _WORD.finditer(text)]
        self._at = 0

    def parse(self) -> list[SelectorRequirement]:
        found: list[SelectorRequirement] = []
        while (word := self._peek()) != _END:
            if word in _SYMBOLS - {"!"}:
                raise statuses.bad_request(
                    f"found '{word}', expected: !, identifier, or 'end of string'"
                )
            found.append(self._requirement())
            if (word := self._next()) == _END:
                break
            if word != ",":
                raise statuses.bad_request(f"found '{word}', expected: ',' or 'end of string'")
            if (word := self._peek()) == _END or word in _SYMBOLS - {"!"}:
                raise statuses.bad_request(f"found '{word}', expected: identifier after ','")
        return found

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else _END

    def _next(self) -> str:
        word = self._peek()
        self._at += 1
        return word

    def _requirement(self) -> SelectorRequirement:
        absent = self._peek() == "!"
        if absent:
            self._next()
        key = self._identifier("expected: identifier")
        if wrong := names.validate_qualified_name(key):
            raise _unparsable(f'<nil>: Invalid value: "{key}": {"; ".join(wrong)}')
        if absent:
            return SelectorRequirement(key, "absent")
        if self._peek() in {_END, ","}:
            return SelectorRequirement(key, "exists")
        operator = self._next()
        if operator not in _OPERATORS:
            raise _unparsable(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._set() if operator in {"in", "notin"} else (self._value(),)
        return _checked(SelectorRequirement(key, _OPERATORS[operator], values))

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


def _checked(found: SelectorRequirement) -> SelectorRequirement:
    for index, value in enumerate(found.values):
        field = f"values[{index}]"
        if found.op in {"gt", "lt"} and not re.fullmatch(r"[-+]?\d+", value):
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _unparsable(f'{field}: Invalid value: "{value}": {why}')
        if wrong := names.validate_label_value(value):
            raise _unparsable(f'{field}[{found.key}]: Invalid value: "{value}": {"; ".join(wrong)}')
    return found


def _unparsable(why: str) -> statuses.StatusError:
    return statuses.bad_request(f"unable to parse requirement: {why}")


_Labels: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Selection:
    """The labels and fields that a list or watch selects. `text` is equal for equal selections."""

    labels: tuple[SelectorRequirement, ...] = ()
    fields: tuple[tuple[Callable[[objects.JsonObject], str], str, bool], ...] = ()
    text: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether everything is selected."""
        return not self.labels and not self.fields

    def matches(self, obj: objects.JsonObject) -> bool:
        """Return whether a stored object is selected."""
        if self.labels:
            labels = objects.meta(obj).get("labels") or {}
            if not all(term.matches(labels) for term in self.labels):
                return False
        return all((read(obj) == value) is equal for read, value, equal in self.fields)


def label_selector_matches(selector: objects.JsonObject | None, labels: _Labels) -> bool:
    """Return whether a `LabelSelector` of an object selects the labels.

    Null selects nothing, an empty selector everything.

    Raises:
        ValueError: The selector has an unknown operator.
    """
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    for term in selector.get("matchExpressions") or []:
        if term.get("operator") not in operators:
            raise ValueError(f"{term.get('operator')!r} is not a valid label selector operator")
        values = tuple(term.get("values") or ())
        if not SelectorRequirement(term["key"], operators[term["operator"]], values).matches(
            labels
        ):
            return False
    return True


_Reader: TypeAlias = Callable[[objects.JsonObject], str]


def _reader(*path: str) -> _Reader:
    def read(obj: objects.JsonObject) -> str:
        value = objects.dig(obj, *path, default="")
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    return read


def _bool_reader(*path: str) -> _Reader:
    def read(obj: objects.JsonObject) -> str:
        return "true" if objects.dig(obj, *path, default=False) else "false"

    return read


def _source(obj: objects.JsonObject) -> str:
    return str(
        objects.dig(obj, "source", "component", default="") or obj.get("reportingComponent") or ""
    )


_INVOLVED: Final = {
    f"involvedObject.{name}": _reader("involvedObject", name)
    for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
}

_BUILT_IN: Final[Mapping[tuple[str, str], Mapping[str, _Reader]]] = {
    ("pods", ""): {
        "spec.nodeName": _reader("spec", "nodeName"),
        "spec.restartPolicy": _reader("spec", "restartPolicy"),
        "spec.schedulerName": _reader("spec", "schedulerName"),
        "spec.serviceAccountName": _reader("spec", "serviceAccountName"),
        "spec.hostNetwork": _bool_reader("spec", "hostNetwork"),
        "status.phase": _reader("status", "phase"),
        "status.podIP": _reader("status", "podIP"),
        "status.nominatedNodeName": _reader("status", "nominatedNodeName"),
    },
    ("nodes", ""): {"spec.unschedulable": _bool_reader("spec", "unschedulable")},
    ("events", ""): {
        **_INVOLVED,
        "reason": _reader("reason"),
        "reportingComponent": _reader("reportingComponent"),
        "source": _source,
        "type": _reader("type"),
    },
    ("events", "events.k8s.io"): {
        **{key.replace("involvedObject", "regarding"): read for key, read in _INVOLVED.items()},
        "reason": _reader("reason"),
        "reportingController": _reader("reportingComponent"),
        "type": _reader("type"),
    },
    ("namespaces", ""): {"status.phase": _reader("status", "phase")},
    ("secrets", ""): {"type": _reader("type")},
    ("services", ""): {
        "spec.clusterIP": _reader("spec", "clusterIP"),
        "spec.type": _reader("spec", "type"),
    },
    ("replicasets", "apps"): {"status.replicas": _reader("status", "replicas")},
    ("jobs", "batch"): {"status.successful": _reader("status", "succeeded")},
}


def field_labels(kind: kinds.Kind) -> Mapping[str, _Reader]:
    """Return the fields of a kind that selectors may use."""
    always: dict[str, _Reader] = {"metadata.name": _reader("metadata", "name")}
    if kind.namespaced or kind.custom is None:
        always["metadata.namespace"] = _reader("metadata", "namespace")
    if kind.custom is not None:
        paths = kind.custom.selectable
        return {**always, **{p.lstrip("."): _reader(*p.lstrip(".").split(".")) for p in paths}}
    return {**always, **_BUILT_IN.get((kind.plural, kind.group), {})}


def parse_field_selector(text: str, kind: kinds.Kind) -> tuple[tuple[_Reader, str, bool], ...]:
    """Parse `fieldSelector` for a kind.

    Raises:
        StatusError: 400 for an unknown field or an invalid term.
    """
    known = field_labels(kind)
    found = []
    for term in filter(None, (term.strip() for term in text.split(","))):
        match = re.match(r"^(?P<key>[^=!]+)(?P<op>!=|==|=)(?P<value>.*)$", term)
        if match is None:
            raise statuses.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        if match["key"] not in known:
            raise _unknown_field(kind, match["key"])
        found.append((known[match["key"]], match["value"], match["op"] != "!="))
    return tuple(found)


def _unknown_field(kind: kinds.Kind, key: str) -> statuses.StatusError:
    """Return the 400 for an unknown field; upstream has several texts for it."""
    if kind.custom is None and (kind.plural, kind.group) in _BUILT_IN and not kind.group:
        return statuses.bad_request(f"field label not supported: {key}")
    if kind.custom is None:
        shown = f'"{key}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        return statuses.bad_request(shown)
    return statuses.bad_request(f"field label not supported: {key}")
