"""Sets of fields in the format of `managedFields` (FieldsV1).

A set is a tree of path elements: `f:name` is a field, `k:{"name":"x"}` an item of a list by its
keys, `v:"x"` an item by its value. A node belongs to the set if it has nothing below it, or if it
has the member `.`. The root does not belong to the set: `{}` is the empty set there.

The rules follow sigs.k8s.io/structured-merge-diff, fieldpath/set.go. Sets are immutable, and
share equal subtrees.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

from navarchos.testing.apiserver.objects import encode

__all__ = [
    "EMPTY",
    "LEAF",
    "FieldSet",
    "as_member",
    "difference",
    "field",
    "intersection",
    "is_member",
    "item_by_keys",
    "item_by_value",
    "name_of",
    "path_text",
    "paths",
    "union",
    "without",
]

FieldSet: TypeAlias = dict[str, Any]
"""A set of fields, or the part below one of its nodes. Read-only."""

Path: TypeAlias = tuple[str, ...]

EMPTY: Final[FieldSet] = {}
"""The empty set."""

LEAF: Final[FieldSet] = {}
"""A member with nothing below it. All sets share this one, because a cluster has millions."""

_MEMBER: Final = "."
_FIELD: Final = "f:"
_KEYS: Final = "k:"
_VALUE: Final = "v:"
_ORDER: Final = {_FIELD: 0, _KEYS: 1, _VALUE: 2}


def field(name: str) -> str:
    """Return the path element of a field."""
    return _FIELD + name


def item_by_keys(keys: dict[str, Any]) -> str:
    """Return the path element of an item with keys."""
    return _KEYS + encode(dict(sorted(keys.items()))).decode()


def item_by_value(value: object) -> str:
    """Return the path element of a value in a `set` list."""
    return _VALUE + encode(value).decode()


def name_of(element: str) -> str:
    """Return the field's name; empty for an item of a list."""
    return element[2:] if element.startswith(_FIELD) else ""


def as_member(node: FieldSet | None) -> FieldSet:
    """Return a node that belongs to its set, with the part below `node`."""
    if not node:
        return LEAF
    return node if _MEMBER in node else {_MEMBER: LEAF, **node}


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the fields that are in either set."""
    if not one or not other:
        return one or other
    result = dict(one)
    for key, node in other.items():
        result[key] = _united(result[key], node) if key in result else node
    return result


def _united(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one or not other:
        return as_member(one or other)
    return union(one, other)


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the fields of `one` that are not in `other`; fields below those stay."""
    if not one or not other:
        return one
    return _kept(
        one,
        {key: _subtracted(node, other[key]) if key in other else node for key, node in one.items()},
    )


def _subtracted(node: FieldSet, other: FieldSet) -> FieldSet | None:
    member = is_member(node) and not is_member(other)
    return _node(difference(_below(node), _below(other)), member=member)


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the fields that are in both sets."""
    found = {key: _shared(node, other[key]) for key, node in one.items() if key in other}
    return {key: node for key, node in found.items() if node is not None}


def _shared(node: FieldSet, other: FieldSet) -> FieldSet | None:
    member = is_member(node) and is_member(other)
    return _node(intersection(_below(node), _below(other)), member=member)


def without(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the fields of `one` that are neither in `other` nor below its members."""
    if not one or not other:
        return one
    return _kept(
        one, {key: _cut(node, other[key]) if key in other else node for key, node in one.items()}
    )


def _cut(node: FieldSet, other: FieldSet) -> FieldSet | None:
    if is_member(other):
        return None
    return _node(without(_below(node), other), member=is_member(node))


def _kept(before: FieldSet, after: dict[str, FieldSet | None]) -> FieldSet:
    found = {key: node for key, node in after.items() if node is not None}
    same = len(found) == len(before) and all(found[key] is before[key] for key in found)
    return before if same else found


def is_member(node: FieldSet) -> bool:
    """Return whether the node itself belongs to its set."""
    return not node or _MEMBER in node


def _below(node: FieldSet) -> FieldSet:
    if _MEMBER not in node:
        return node
    return {key: child for key, child in node.items() if key != _MEMBER}


def _node(below: FieldSet, *, member: bool) -> FieldSet | None:
    if member:
        return as_member(below)
    return below or None


def paths(fields: FieldSet) -> Iterator[Path]:
    """Iterate the members in upstream's order: all of one level, then those below it."""
    ordered = sorted((key for key in fields if key != _MEMBER), key=_rank)
    for key in ordered:
        if is_member(fields[key]):
            yield (key,)
    for key in ordered:
        for rest in paths(fields[key]):
            yield (key, *rest)


def _rank(element: str) -> tuple[int, str]:
    return _ORDER.get(element[:2], len(_ORDER)), element


def path_text(path: Path) -> str:
    """Return a path as errors write it: `.spec.containers[name="c"].image`."""
    return "".join(_element_text(element) for element in path)


def _element_text(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == _FIELD:
        return f".{text}"
    if kind == _VALUE:
        return f"[={text}]"
    keys = msgspec.json.decode(text.encode())
    return "[" + ",".join(f"{key}={encode(value).decode()}" for key, value in keys.items()) + "]"
