"""Helpers for structs: prepare them for decoding, compare them, remove nulls.

msgspec computes the layout of a struct when the struct is decoded for the first time, and
stores it on the class before it is complete, because types may contain themselves. It runs
Python code meanwhile. If another thread decodes the same struct then, it follows a pointer
that is not set yet, and the process dies with SIGSEGV.

So each type that is decoded into is prepared here, one at a time.
"""

import threading
from typing import Any, TypeVar

import msgspec

__all__ = ["differs_only_in", "make_decoder", "prepare_decoding", "without_nulls"]

C = TypeVar("C", bound=type[msgspec.Struct])
S = TypeVar("S", bound=msgspec.Struct)

_preparing = threading.Lock()


def make_decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of a type; the type is prepared before other threads can use it.

    Threads: safe from any thread, as is the decoder.
    """
    with _preparing:
        return msgspec.json.Decoder(type_)


def prepare_decoding(struct: C) -> C:
    """Prepare a struct where it is defined; a decorator.

    For structs that `msgspec.convert`, or `msgspec.json.decode` with a type, decodes into:
    these have no decoder that was made beforehand.
    """
    make_decoder(struct)
    return struct


def differs_only_in(before: S, after: S, *fields: str) -> bool:
    """Return whether two structs of one type differ, and only in the named fields."""
    alike = {field: getattr(before, field) for field in fields}
    return before != after and before == msgspec.structs.replace(after, **alike)


def without_nulls(value: object) -> object:
    """Return decoded JSON without the null members of objects.

    Go servers write `null` for empty slices, maps and times. A null in an array stays, so
    that the other entries keep their places.
    """
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
