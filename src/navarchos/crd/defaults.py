"""From a struct's defaults to what the server fills in."""

from collections.abc import Mapping
from enum import Enum
from typing import cast

import msgspec
from msgspec import inspect as types

__all__ = ["default_of"]


def default_of(field: types.Field) -> object | None:
    """Return the JSON that stands for the field's default; `None` for none.

    Empty text and empty collections are none: absent says the same, and the
    stored object stays short. A struct is `{}` where all its fields have their
    own defaults, which the server then fills in by their own schemas.
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
    """The fields whose value is not the one that the server would fill in."""
    info = types.type_info(type(struct))
    assert isinstance(info, types.StructType)
    found = {}
    for field in info.fields:
        value = _json(getattr(struct, field.name))
        if value is not None and value != default_of(field):
            found[field.encode_name] = value
    return found
