"""Equal parts of cached objects, kept once.

The pods of one ReplicaSet have the same labels, owner, volumes and conditions, so of a
cache of pods four fifths are copies of what it already has.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final

from msgspec import inspect as types
from msgspec.structs import force_setattr

__all__ = ["Sharing"]

_IDENTITY: Final = frozenset({"name", "uid", "resource_version"})
"""Fields of `metadata` that no two objects have in common."""

_FEW: Final = 256

_PLAIN: Final = (types.StrType, types.IntType, types.BoolType, types.DateTimeType, types.NoneType)


class Sharing:
    """Lets equal parts of objects of one kind be one and the same part.

    A part is a text, a mapping of texts, a tuple, or a frozen struct, as a field of the
    object or of a struct in it. What an object's identity consists of is none, and
    neither is anything that its type does not show to be hashable.

    Promises: an object stays equal to what it was. A part that somebody has changed in
    place is not handed on to objects that come later. Parts that no object has any more
    are let go, but for about as many as were in use at the last list.

    Does not promise: that every two equal parts are one.

    Threads: owned by one.
    """

    def __init__(self, type_: Any) -> None:
        described = _described(type_)
        self._fields = (
            _Plan().fields_of(described) if isinstance(described, types.StructType) else _NONE
        )

    def share(self, obj: object, former: object = None) -> None:
        """Replace the object's parts by equal ones that were there before.

        Args:
            obj: Of which nobody else knows yet.
            former: Its state before, if there is one: most of it is the same as a rule,
                and to compare two parts is cheaper than to look one up.
        """
        _share(obj, self._fields, former)

    def end_list(self) -> None:
        """Forget what only one object of a whole list had: it is not going to be shared."""
        for pool in {id(pool): pool for pool in _pools(self._fields)}.values():
            pool.end_list()


@cache
def _described(type_: Any) -> types.Type:
    """Take a type apart once: an informer for each node of a drain has the same."""
    return types.type_info(type_)


class _Pool:
    """Parts of one type. Those that a second object has had are kept apart."""

    def __init__(self) -> None:
        self.shared: dict[object, object] = {}
        self._seen: dict[object, object] = {}
        self._most = math.inf  # of each, once a list has shown how many there are

    def find(self, key: object, value: object) -> object | None:
        """Return the part that one object has had; remember this one if none has."""
        found = self._seen.pop(key, None)
        if found is None:
            if len(self._seen) >= self._most:
                self._seen.clear()
            self._seen[key] = value
            return None
        if len(self.shared) >= self._most:
            self.shared, self._seen = {}, self.shared  # each has to be had by two again
        self.shared[key] = found
        return found

    def forget(self, key: object) -> None:
        """Let go of a part."""
        self.shared.pop(key, None)

    def end_list(self) -> None:
        """Keep what is shared, and room for as much again."""
        self._seen.clear()
        self._most = _FEW + 2 * len(self.shared)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The parts of a struct, and what reads their values in one call."""

    parts: "tuple[_Part, ...]"
    values: Callable[[object], tuple[Any, ...]]


_NONE: Final = _Fields((), lambda _: ())


@dataclass(frozen=True, slots=True)
class _Part:
    """A field. Without a pool it is no part itself, but has some."""

    name: str
    pool: _Pool | None
    is_mapping: bool = False
    fields: _Fields = _NONE


def _share(obj: Any, fields: _Fields, former: object) -> None:
    for part, value in _parts_of(obj, fields, former):
        if not value and not part.is_mapping:
            continue  # nothing, which takes no room; an empty mapping does
        if part.pool is None:
            _share(value, part.fields, getattr(former, part.name, None))
            continue
        try:
            key = tuple(value.items()) if part.is_mapping else value
            found = part.pool.shared.get(key)
            if found is None:
                found = part.pool.find(key, value)
        except (AttributeError, TypeError):
            continue  # a transform has made something else of it
        if found is None:
            if part.fields is not _NONE:
                _share(value, part.fields, getattr(former, part.name, None))
        elif part.is_mapping and found != value:
            part.pool.forget(key)
        elif found is not value:
            force_setattr(obj, part.name, found)


def _parts_of(obj: object, fields: _Fields, former: object) -> Iterable[tuple[_Part, Any]]:
    """Return the parts of an object that are not those of its former state."""
    try:
        pairs = zip(fields.parts, fields.values(obj), strict=True)
        return pairs if former is None else _take_over(obj, pairs, fields.values(former))
    except AttributeError:
        return ()  # a transform has made something else of it


def _take_over(
    obj: Any, pairs: Iterable[tuple[_Part, Any]], former: tuple[Any, ...]
) -> list[tuple[_Part, Any]]:
    """Give the object what of its former state is equal; return the other parts."""
    others = []
    for (part, value), known in zip(pairs, former, strict=True):
        if part.pool is None or value != known:
            others.append((part, value))
        elif value is not known:
            force_setattr(obj, part.name, known)
    return others


class _Plan:
    """Finds the parts of a type. Texts of all fields have one pool, and so have mappings."""

    def __init__(self) -> None:
        self._texts = _Pool()
        self._mappings = _Pool()

    def fields_of(self, struct: types.StructType, above: tuple[type, ...] = ()) -> _Fields:
        """Return the parts among a struct's fields.

        Args:
            struct: As `msgspec.inspect` sees it.
            above: The structs that it is in: one that contains itself has no end.
        """
        if struct.cls in above:
            return _NONE
        within = (*above, struct.cls)
        found = (self._part(each.name, _bare(each.type), within) for each in struct.fields)
        is_metadata = {each.name for each in struct.fields} >= _IDENTITY
        parts = tuple(
            part for part in found if part and not (is_metadata and part.name in _IDENTITY)
        )
        return _Fields(parts, _reader(*(part.name for part in parts))) if parts else _NONE

    def _part(self, name: str, type_: types.Type, above: tuple[type, ...]) -> _Part | None:
        match type_:
            case types.StrType():
                return _Part(name, self._texts)
            case types.DictType(key_type=types.StrType(), value_type=types.StrType()):
                return _Part(name, self._mappings, is_mapping=True)
            case types.VarTupleType() | types.TupleType() if _is_value(type_, above):
                return _Part(name, _Pool())
            case types.StructType():
                pool = _Pool() if name != "metadata" and _is_value(type_, above) else None
                fields = self.fields_of(type_, above)
                return _Part(name, pool, fields=fields) if pool or fields.parts else None
            case _:
                return None


def _is_value(type_: types.Type, above: tuple[type, ...]) -> bool:
    """Tell whether what is of this type is hashable, and equal only to what is the same.

    `1` and `True` are equal, so no union but that with null is taken.
    """
    match type_:
        case types.VarTupleType(item_type=item):
            return _is_value(item, above)
        case types.TupleType(item_types=items):
            return all(_is_value(item, above) for item in items)
        case types.UnionType() | types.Metadata():
            inner = _bare(type_)
            return inner is not type_ and _is_value(inner, above)
        case types.StructType(cls=cls, fields=fields):
            config = cls.__struct_config__
            within = (*above, cls)
            return (
                cls not in above
                and config.frozen
                and config.eq
                and all(_is_value(each.type, within) for each in fields)
            )
        case _:
            return isinstance(type_, _PLAIN)


def _bare(type_: types.Type) -> types.Type:
    """Return a type without its annotations, and what an optional one is when it is there."""
    if isinstance(type_, types.Metadata):
        return _bare(type_.type)
    if not isinstance(type_, types.UnionType):
        return type_
    others = [each for each in type_.types if not isinstance(each, types.NoneType)]
    return _bare(others[0]) if len(others) == 1 else type_


def _reader(*names: str) -> Callable[[object], tuple[Any, ...]]:
    """Return what reads these attributes. `attrgetter` returns no tuple for a single one."""
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda obj: (read(obj),)


def _pools(fields: _Fields) -> Iterator[_Pool]:
    for part in fields.parts:
        if part.pool is not None:
            yield part.pool
        yield from _pools(part.fields)
