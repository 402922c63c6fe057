"""Structural schemas from msgspec types.

A custom resource needs a *structural* schema: it has no references, every value has one type,
and the server uses it for pruning, defaults and validation. It is narrower than JSON Schema (the
only union is a number or a string), so `msgspec.json.schema` cannot be used.

Upstream: apiextensions-apiserver `pkg/apiserver/schema/structural.go`; controller-tools
`pkg/crd/schema.go`, which reads Go types.
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

import msgspec
from msgspec import inspect as types

from navarchos.errors import NavarchosError

__all__ = [
    "Schema",
    "SchemaError",
    "default_of",
    "described",
    "kind_schema",
    "scalar_schema",
    "sizes",
    "type_schema",
]

Schema = dict[str, object]
"""A node of a structural schema, as JSON."""


class SchemaError(NavarchosError):
    """A type cannot be expressed as a structural schema.

    Attributes:
        path: The field, from the kind down (`Widget.spec.size`).
        why: The reason, and what to do instead.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"no schema for {self.path}: {self.why}"


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


_ORDER: Final = (
    "description",
    "type",
    "format",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "nullable",
    "enum",
    "default",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "properties",
    "additionalProperties",
    "items",
)
"""Short keywords before long ones, so that the type of a field can be seen first."""

_ENVELOPE: Final[Mapping[str, Schema]] = {
    "apiVersion": {
        "description": "The API group and version of this object.",
        "type": "string",
    },
    "kind": {"description": "The kind of this object.", "type": "string"},
    "metadata": {"type": "object"},
}

_Sequence = types.ListType | types.VarTupleType | types.SetType | types.FrozenSetType


def kind_schema(type_: type) -> Schema:
    """Return the schema of a kind: apiVersion, kind, metadata, and its other fields.

    Fields under `status` get no defaults: users do not write them, and a default value would
    look like an observation.

    Args:
        type_: A `msgspec.Struct`, usually a `navarchos.meta.Object`.

    Raises:
        SchemaError: The type, or a type that it uses, has no structural schema.
    """
    info = types.type_info(type_)
    if not isinstance(info, types.StructType):
        raise SchemaError(
            type_.__name__, "a kind must be a msgspec.Struct, with fields such as spec and status"
        )
    fields = [field for field in info.fields if field.encode_name not in _ENVELOPE]
    properties = {name: dict(schema) for name, schema in _ENVELOPE.items()}
    for field in fields:
        place = _Place(type_.__name__, (type_,), defaults=field.encode_name != "status")
        properties[field.encode_name] = _field_schema(field, place)
    return _object_schema(type_, fields, properties)


def type_schema(type_: object, *, defaults: bool = True) -> Schema:
    """Return the schema of any type that a field can have.

    Args:
        type_: Any valid annotation: a struct, an enum, `int | str`, ...
        defaults: Whether the defaults of structs become defaults in the schema.

    Raises:
        SchemaError: The type has no structural schema.
    """
    name = getattr(type_, "__name__", str(type_))
    return _schema(types.type_info(type_), _Place(name, (), defaults=defaults))


@dataclass(frozen=True, slots=True)
class _Place:
    """The current field of the walk, for errors, and its parents, to detect cycles."""

    path: str
    parents: tuple[type, ...]
    defaults: bool

    def at(self, step: str) -> "_Place":
        return _Place(self.path + step, self.parents, self.defaults)

    def inside(self, cls: type) -> "_Place":
        if cls in self.parents:
            raise SchemaError(
                self.path,
                f"{cls.__name__} contains itself, and a structural schema has no references; "
                "refer to the other object by its name",
            )
        return _Place(self.path, (*self.parents, cls), self.defaults)


def _schema(type_: types.Type, place: _Place) -> Schema:
    match type_:
        case types.Metadata():
            inner = _schema(type_.type, place)
            return _ordered(inner | (type_.extra_json_schema or {}))
        case types.StructType():
            return _struct_schema(type_, place.inside(type_.cls))
        case types.UnionType():
            return _union_schema(type_, place)
        case types.ListType() | types.VarTupleType() | types.SetType() | types.FrozenSetType():
            return _sequence_schema(type_, place)
        case types.DictType():
            return _mapping_schema(type_, place)
    return scalar_schema(type_, place.path)


def _struct_schema(struct: types.StructType, place: _Place) -> Schema:
    if struct.array_like or struct.tag is not None:
        raise SchemaError(
            place.path, "tagged and array-like structs are not supported; use a plain struct"
        )
    properties = {field.encode_name: _field_schema(field, place) for field in struct.fields}
    return _object_schema(struct.cls, struct.fields, properties)


def _object_schema(
    cls: type, fields: Iterable[types.Field], properties: Mapping[str, Schema]
) -> Schema:
    required = [field.encode_name for field in fields if _is_required(field)]
    return _ordered(
        {
            **described(cls),
            "type": "object",
            **({"required": required} if required else {}),
            "properties": dict(properties),
        }
    )


def _field_schema(field: types.Field, place: _Place) -> Schema:
    schema = _schema(field.type, place.at(f".{field.encode_name}"))
    default = default_of(field) if place.defaults else None
    if default is None:
        return schema
    return _ordered(schema | {"default": default})


def _is_required(field: types.Field) -> bool:
    """Tell whether a field is required.

    A nullable field is not: servers drop nulls wherever the schema does not say `nullable`, also
    in maps, so an object that a client copies would be refused.
    """
    return field.required and not _is_optional(field.type)


def _is_optional(type_: types.Type) -> bool:
    if isinstance(type_, types.Metadata):
        return _is_optional(type_.type)
    return isinstance(type_, types.UnionType) and type_.includes_none


def _union_schema(union: types.UnionType, place: _Place) -> Schema:
    choices = [choice for choice in union.types if not isinstance(choice, types.NoneType)]
    if len(choices) == 1:
        return _schema(choices[0], place)
    if {type(choice) for choice in choices} == {types.IntType, types.StrType}:
        # Without a type: the marker stands for both types (structural.go).
        return {"x-kubernetes-int-or-string": True}
    raise SchemaError(
        place.path, "int | str is the only supported union; use a struct with optional fields"
    )


def _sequence_schema(sequence: _Sequence, place: _Place) -> Schema:
    is_set = isinstance(sequence, types.SetType | types.FrozenSetType)
    return _ordered(
        {
            "type": "array",
            **sizes(sequence, "Items"),
            **({"x-kubernetes-list-type": "set"} if is_set else {}),
            "items": _schema(sequence.item_type, place.at("[]")),
        }
    )


def _mapping_schema(mapping: types.DictType, place: _Place) -> Schema:
    key = (
        mapping.key_type.type if isinstance(mapping.key_type, types.Metadata) else mapping.key_type
    )
    if not isinstance(key, types.StrType | types.AnyType):
        raise SchemaError(place.path, "keys of an object must be strings; use a list of structs")
    schema: Schema = {"type": "object"} | sizes(mapping, "Properties")
    if isinstance(mapping.value_type, types.AnyType):
        return schema | {"x-kubernetes-preserve-unknown-fields": True}
    return schema | {"additionalProperties": _schema(mapping.value_type, place.at("{}"))}


def _ordered(schema: Schema) -> Schema:
    known = {name: schema[name] for name in _ORDER if name in schema}
    return known | {name: schema[name] for name in sorted(schema.keys() - known.keys())}


def default_of(field: types.Field) -> object | None:
    """Return the field's default as JSON, or `None`.

    Empty strings and empty collections give `None`: an absent field means the same, and the
    stored object stays short. The default of a struct is `{}` if all its fields have their
    default values, which the server fills in from the schemas of these fields.
    """
    if field.default is not msgspec.NODEFAULT:
        return _json(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return _json(field.default_factory())
    return None


def _json(value: object) -> object | None:
    if isinstance(value, msgspec.Struct):
        return _differences(value)
    if isinstance(value, Enum):
        return cast("object", value.value)
    if isinstance(value, str | bytes | Mapping | list | tuple | set | frozenset) and not value:
        return None
    return cast("object", msgspec.to_builtins(value))


def _differences(struct: msgspec.Struct) -> dict[str, object]:
    """Return the fields whose values differ from the defaults of their schemas."""
    info = types.type_info(type(struct))
    assert isinstance(info, types.StructType)
    found = {}
    for field in info.fields:
        value = _json(getattr(struct, field.name))
        if value is not None and value != default_of(field):
            found[field.encode_name] = value
    return found
