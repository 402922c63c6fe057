"""Equal parts of cached objects, kept once.

The pods of one ReplicaSet have the same labels, owner, volumes and conditions, so of a
cache of pods four fifths are copies of what it already has.
"""

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect as types
from msgspec.structs import force_setattr

__all__ = ["Interner"]

_IDENTITY: Final = frozenset({"name", "uid", "resource_version"})
"""Fields of `metadata` that no two objects have in common."""

_FEW: Final = 256

_PLAIN: Final = (types.StrType, types.IntType, types.BoolType, types.DateTimeType, types.NoneType)


class Interner:
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
        self._parts = _Plan().parts_of(described) if isinstance(described, types.StructType) else ()

    def share(self, obj: object) -> None:
        """Replace the object's parts by equal ones that were there before."""
        _share(obj, self._parts)

    def end_list(self) -> None:
        """Forget what only one object of a whole list had: it is not going to be shared."""
        for pool in {id(pool): pool for pool in _pools(self._parts)}.values():
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


class _Part(msgspec.Struct, frozen=True):
    """A field. Without a pool it is no part itself, but has some."""

    name: str
    pool: _Pool | None
    is_mapping: bool = False
    parts: "tuple[_Part, ...]" = ()


def _share(obj: Any, parts: tuple[_Part, ...]) -> None:
    for part in parts:
        value: Any = getattr(obj, part.name, None)
        if not value and not part.is_mapping:
            continue  # nothing, which takes no room; an empty mapping does
        if part.pool is None:
            _share(value, part.parts)
            continue
        try:
            key = tuple(value.items()) if part.is_mapping else value
            found = part.pool.shared.get(key)
            if found is None:
                found = part.pool.find(key, value)
        except (AttributeError, TypeError):
            continue  # a transform has made something else of it
        if found is None:
            _share(value, part.parts)
        elif part.is_mapping and found != value:
            part.pool.forget(key)
        elif found is not value:
            force_setattr(obj, part.name, found)


class _Plan:
    """Finds the parts of a type. Texts of all fields have one pool, and so have mappings."""

    def __init__(self) -> None:
        self._texts = _Pool()
        self._mappings = _Pool()

    def parts_of(self, struct: types.StructType, above: tuple[type, ...] = ()) -> tuple[_Part, ...]:
        """Return the parts of a struct's fields.

        Args:
            struct: As `msgspec.inspect` sees it.
            above: The structs that it is in: one that contains itself has no end.
        """
        if struct.cls in above:
            return ()
        within = (*above, struct.cls)
        found = (self._part(each.name, _bare(each.type), within) for each in struct.fields)
        is_metadata = {each.name for each in struct.fields} >= _IDENTITY
        return tuple(
            part for part in found if part and not (is_metadata and part.name in _IDENTITY)
        )

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
                parts = self.parts_of(type_, above)
                return _Part(name, pool, parts=parts) if pool or parts else None
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


def _pools(parts: tuple[_Part, ...]) -> Iterator[_Pool]:
    for part in parts:
        if part.pool is not None:
            yield part.pool
        yield from _pools(part.parts)
