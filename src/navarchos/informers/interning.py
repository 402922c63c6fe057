"""Interning: equal parts of cached objects are kept once.

The pods of one ReplicaSet have the same labels, owner, volumes and conditions, so four
fifths of a cache of pods would be copies of parts that it already has.
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
"""Fields of `metadata` that are different in each object."""

_MIN_LIMIT: Final = 256

_PLAIN: Final = (types.StrType, types.IntType, types.BoolType, types.DateTimeType, types.NoneType)


class Interner:
    """Replaces equal parts of objects of one kind by one shared part.

    A part is a string, a mapping of strings, a tuple or a frozen struct, in a field of the
    object or of a struct in it. The fields of an object's identity are left as they are,
    and so is any value that is not hashable according to its type.

    Promises: the value of an object does not change. A part that was changed in place is not
    shared with later objects. Parts that no object has any more are released, except for
    about as many as were in use at the last list.

    Does not promise: that two equal parts are always shared.

    Threads: owned by one thread.
    """

    def __init__(self, type_: Any) -> None:
        described = _described(type_)
        self._fields = (
            _FieldFinder().fields_of(described) if isinstance(described, types.StructType) else ()
        )

    def intern(self, obj: object) -> None:
        """Replace the object's parts by equal parts of earlier objects."""
        _intern(obj, self._fields)

    def end_list(self) -> None:
        """Forget parts that only one object of a whole list had; they will not be shared."""
        for pool in {id(pool): pool for pool in _pools(self._fields)}.values():
            pool.end_list()


@cache
def _described(type_: Any) -> types.Type:
    """Describe a type once; the informers of all drains have the same type."""
    return types.type_info(type_)


class _Pool:
    """The parts of one type. Parts that a second object had are kept in `shared`."""

    def __init__(self) -> None:
        self.shared: dict[object, object] = {}
        self._seen: dict[object, object] = {}
        self._max = math.inf  # of each, once a list has shown how many there are

    def find(self, key: object, value: object) -> object | None:
        """Return the equal part of one earlier object, or remember this one and return `None`."""
        found = self._seen.pop(key, None)
        if found is None:
            if len(self._seen) >= self._max:
                self._seen.clear()
            self._seen[key] = value
            return None
        if len(self.shared) >= self._max:
            self.shared, self._seen = {}, self.shared  # each must occur again to be shared
        self.shared[key] = found
        return found

    def forget(self, key: object) -> None:
        """Release a part."""
        self.shared.pop(key, None)

    def end_list(self) -> None:
        """Keep the shared parts, and limit both maps to about twice their number."""
        self._seen.clear()
        self._max = _MIN_LIMIT + 2 * len(self.shared)


class _Field(msgspec.Struct, frozen=True):
    """A field of a struct. Without a pool it is not interned itself, but its fields are."""

    name: str
    pool: _Pool | None
    is_mapping: bool = False
    fields: "tuple[_Field, ...]" = ()


def _intern(obj: Any, fields: tuple[_Field, ...]) -> None:
    for field in fields:
        value: Any = getattr(obj, field.name, None)
        if not value and not field.is_mapping:
            continue  # an empty value needs no memory, except for an empty mapping
        if field.pool is None:
            _intern(value, field.fields)
            continue
        try:
            key = tuple(value.items()) if field.is_mapping else value
            found = field.pool.shared.get(key)
            if found is None:
                found = field.pool.find(key, value)
        except (AttributeError, TypeError):
            continue  # a transform has replaced the value by one of another type
        if found is None:
            _intern(value, field.fields)
        elif field.is_mapping and found != value:
            field.pool.forget(key)
        elif found is not value:
            force_setattr(obj, field.name, found)


class _FieldFinder:
    """Finds the fields of a type that can be interned.

    The strings of all fields share one pool, and so do the mappings.
    """

    def __init__(self) -> None:
        self._strings = _Pool()
        self._mappings = _Pool()

    def fields_of(
        self, struct: types.StructType, above: tuple[type, ...] = ()
    ) -> tuple[_Field, ...]:
        """Return the fields of a struct that can be interned.

        Args:
            struct: As `msgspec.inspect` describes it.
            above: The structs that contain it; needed to stop at a struct that contains
                itself.
        """
        if struct.cls in above:
            return ()
        within = (*above, struct.cls)
        found = (self._field(each.name, _bare(each.type), within) for each in struct.fields)
        is_metadata = {each.name for each in struct.fields} >= _IDENTITY
        return tuple(
            field for field in found if field and not (is_metadata and field.name in _IDENTITY)
        )

    def _field(self, name: str, type_: types.Type, above: tuple[type, ...]) -> _Field | None:
        match type_:
            case types.StrType():
                return _Field(name, self._strings)
            case types.DictType(key_type=types.StrType(), value_type=types.StrType()):
                return _Field(name, self._mappings, is_mapping=True)
            case types.VarTupleType() | types.TupleType() if _is_value(type_, above):
                return _Field(name, _Pool())
            case types.StructType():
                pool = _Pool() if name != "metadata" and _is_value(type_, above) else None
                fields = self.fields_of(type_, above)
                return _Field(name, pool, fields=fields) if pool or fields else None
            case _:
                return None


def _is_value(type_: types.Type, above: tuple[type, ...]) -> bool:
    """Return whether values of a type are hashable, and equal only if they are the same.

    `1` and `True` are equal, so a union is only accepted if its other member is null.
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
    """Return a type without annotations, and without null if it is optional."""
    if isinstance(type_, types.Metadata):
        return _bare(type_.type)
    if not isinstance(type_, types.UnionType):
        return type_
    others = [each for each in type_.types if not isinstance(each, types.NoneType)]
    return _bare(others[0]) if len(others) == 1 else type_


def _pools(fields: tuple[_Field, ...]) -> Iterator[_Pool]:
    for field in fields:
        if field.pool is not None:
            yield field.pool
        yield from _pools(field.fields)
