"""Label selectors and field selectors, as queries spell them and as objects do."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from navarchos.testing.apiserver.kinds import Kind
from navarchos.testing.apiserver.names import validate_label_value, validate_qualified_name
from navarchos.testing.apiserver.objects import JsonObject, dig, meta
from navarchos.testing.apiserver.status import StatusError, bad_request

__all__ = [
    "Requirement",
    "Selection",
    "field_labels",
    "label_selector_matches",
    "parse_field_selector",
    "parse_label_selector",
]

_Labels: TypeAlias = Mapping[str, Any]

_SET: Final = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_COMPARE: Final = re.compile(r"^(?P<key>[^\s=!<>]+)\s*(?P<op>==|=|!=|<|>)\s*(?P<value>[^\s=!<>]*)$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term: the value of `key` and how it must relate to `values`."""

    key: str
    op: str
    values: tuple[str, ...] = ()

    def matches(self, labels: _Labels) -> bool:
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


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or watch is restricted to. `text` tells equal ones apart cheaply."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[tuple[Callable[[JsonObject], str], str, bool], ...] = ()
    text: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether everything is selected."""
        return not self.labels and not self.fields

    def matches(self, obj: JsonObject) -> bool:
        """Return whether a stored object is selected."""
        if self.labels:
            labels = meta(obj).get("labels") or {}
            if not all(term.matches(labels) for term in self.labels):
                return False
        return all((read(obj) == value) is equal for read, value, equal in self.fields)


def parse_label_selector(text: str) -> tuple[Requirement, ...]:
    """Parse `labelSelector`: equality, sets, existence and comparison.

    Raises:
        StatusError: 400, in the words of the API.
    """
    return tuple(_parse_term(term.strip()) for term in _split_terms(text) if term.strip())


def _split_terms(text: str) -> Iterable[str]:
    depth = 0
    start = 0
    for index, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def _parse_term(term: str) -> Requirement:
    if match := _SET.match(term):
        values = tuple(sorted(value.strip() for value in match["values"].split(",")))
        return _checked(Requirement(match["key"], match["op"], values), term)
    if match := _COMPARE.match(term):
        op = {"=": "in", "==": "in", "!=": "notin", "<": "lt", ">": "gt"}[match["op"]]
        return _checked(Requirement(match["key"], op, (match["value"],)), term)
    if term.startswith("!"):
        return _checked(Requirement(term[1:].strip(), "absent"), term)
    if re.fullmatch(r"[^\s=!<>(),]+", term):
        return _checked(Requirement(term, "exists"), term)
    raise _unparsable(term, f'couldn\'t parse the selector string "{term}"')


def _checked(found: Requirement, term: str) -> Requirement:
    if wrong := validate_qualified_name(found.key):
        raise _unparsable(term, f'key: Invalid value: "{found.key}": {"; ".join(wrong)}')
    for index, value in enumerate(found.values):
        if found.op in {"in", "notin"} and (wrong := validate_label_value(value)):
            raise _unparsable(
                term,
                f'values[{index}][{found.key}]: Invalid value: "{value}": {"; ".join(wrong)}',
            )
    return found


def _unparsable(_term: str, why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


def label_selector_matches(selector: JsonObject | None, labels: _Labels) -> bool:
    """Return whether a `LabelSelectorSpec` object selects the labels.

    Null selects nothing, an empty one everything.

    Raises:
        ValueError: The selector has an operator that does not exist.
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
        if not Requirement(term["key"], operators[term["operator"]], values).matches(labels):
            return False
    return True


_Reader: TypeAlias = Callable[[JsonObject], str]


def _reader(*path: str) -> _Reader:
    def read(obj: JsonObject) -> str:
        value = dig(obj, *path, default="")
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    return read


def _bool_reader(*path: str) -> _Reader:
    def read(obj: JsonObject) -> str:
        return "true" if dig(obj, *path, default=False) else "false"

    return read


def _source(obj: JsonObject) -> str:
    return str(dig(obj, "source", "component", default="") or obj.get("reportingComponent") or "")


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


def field_labels(kind: Kind) -> Mapping[str, _Reader]:
    """Return the fields that a kind can be selected by."""
    always: dict[str, _Reader] = {"metadata.name": _reader("metadata", "name")}
    if kind.namespaced or kind.custom is None:
        always["metadata.namespace"] = _reader("metadata", "namespace")
    if kind.custom is not None:
        paths = kind.custom.selectable
        return {**always, **{p.lstrip("."): _reader(*p.lstrip(".").split(".")) for p in paths}}
    return {**always, **_BUILT_IN.get((kind.plural, kind.group), {})}


def parse_field_selector(text: str, kind: Kind) -> tuple[tuple[_Reader, str, bool], ...]:
    """Parse `fieldSelector` for a kind.

    Raises:
        StatusError: 400, for an unknown field or a term that is none.
    """
    known = field_labels(kind)
    found = []
    for term in filter(None, (term.strip() for term in text.split(","))):
        match = re.match(r"^(?P<key>[^=!]+)(?P<op>!=|==|=)(?P<value>.*)$", term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        if match["key"] not in known:
            raise _unknown_field(kind, match["key"])
        found.append((known[match["key"]], match["value"], match["op"] != "!="))
    return tuple(found)


def _unknown_field(kind: Kind, key: str) -> StatusError:
    """Upstream words differ between conversions that are generated and written by hand."""
    if kind.custom is None and (kind.plural, kind.group) in _BUILT_IN and not kind.group:
        return bad_request(f"field label not supported: {key}")
    if kind.custom is None:
        shown = f'"{key}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        return bad_request(shown)
    return bad_request(f"field label not supported: {key}")
