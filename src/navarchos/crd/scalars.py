"""Schemas of scalar values, and the keywords of limits."""

import inspect
from collections.abc import Mapping
from typing import Final

from msgspec import inspect as types

from navarchos.crd.errors import SchemaError

__all__ = ["Schema", "described", "scalar_schema", "sizes"]

Schema = dict[str, object]
"""A node of a structural schema, as JSON."""

_INT32: Final = range(-(2**31), 2**31)

_PLAIN: Final[Mapping[type[types.Type], Schema]] = {
    types.AnyType: {"x-kubernetes-preserve-unknown-fields": True},
    types.RawType: {"x-kubernetes-preserve-unknown-fields": True},
    types.BoolType: {"type": "boolean"},
    types.DateTimeType: {"type": "string", "format": "date-time"},
    types.DateType: {"type": "string", "format": "date"},
    types.UUIDType: {"type": "string", "format": "uuid"},
    types.BytesType: {"type": "string", "format": "byte"},
}

_Sized = (
    types.StrType
    | types.ListType
    | types.VarTupleType
    | types.SetType
    | types.FrozenSetType
    | types.DictType
)


def scalar_schema(type_: types.Type, path: str) -> Schema:
    """Return the schema of a string, number, boolean, time or enumeration.

    Args:
        type_: The type, from `msgspec.inspect`.
        path: The field, for errors.

    Raises:
        SchemaError: The type has no counterpart in a schema.
    """
    match type_:
        case types.EnumType():
            return described(type_.cls) | _enum_schema([member.value for member in type_.cls])
        case types.LiteralType():
            return _enum_schema(list(type_.values))
        case types.IntType():
            return {"type": "integer", "format": _int_format(type_)} | _bounds(type_)
        case types.FloatType():
            return {"type": "number", "format": "double"} | _bounds(type_)
        case types.StrType():
            pattern = {"pattern": type_.pattern} if type_.pattern else {}
            return {"type": "string"} | sizes(type_, "Length") | pattern
    if type(type_) not in _PLAIN:
        what = type(type_).__name__.removesuffix("Type")
        raise SchemaError(
            path, f"{what} has no counterpart in a schema; use a struct, a string or a number"
        )
    return dict(_PLAIN[type(type_)])


def sizes(sized: _Sized, unit: str) -> Schema:
    """Return the limits of a length, such as `minItems` and `maxItems`."""
    limits = {f"min{unit}": sized.min_length, f"max{unit}": sized.max_length}
    return {name: limit for name, limit in limits.items() if limit is not None}


def described(cls: type) -> Schema:
    """Return the first paragraph of the type's docstring as description."""
    # Not `cls.__doc__`, which may be inherited from a base class with another meaning.
    doc = inspect.cleandoc(cls.__dict__.get("__doc__") or "").split("\n\n")[0]
    return {"description": " ".join(doc.split())} if doc else {}


def _enum_schema(values: list[object]) -> Schema:
    kind = "integer" if all(isinstance(value, int) for value in values) else "string"
    return {"type": kind, "enum": values}


def _int_format(integer: types.IntType) -> str:
    bounds = [
        bound
        for inclusive, exclusive in ((integer.ge, integer.gt), (integer.le, integer.lt))
        if (bound := inclusive if inclusive is not None else exclusive) is not None
    ]
    return "int32" if len(bounds) == 2 and all(bound in _INT32 for bound in bounds) else "int64"


def _bounds(number: types.IntType | types.FloatType) -> Schema:
    bounds: Schema = {}
    for name, inclusive, exclusive in (
        ("minimum", number.ge, number.gt),
        ("maximum", number.le, number.lt),
    ):
        if inclusive is not None:
            bounds[name] = inclusive
        elif exclusive is not None:
            # OpenAPI 3.0: the limit and a flag, not a separate limit.
            bounds |= {name: exclusive, f"exclusive{name.capitalize()}": True}
    return bounds if number.multiple_of is None else bounds | {"multipleOf": number.multiple_of}
