"""Types for decoding, worked out before threads need them.

msgspec works a struct out when it is decoded for the first time, and hangs the result
on the class before it is complete, for the sake of types that contain themselves. It
runs Python code meanwhile. Another thread that gets its turn then and decodes the same
struct follows a pointer that is not there yet, and the process dies of it.

So every type is worked out here, one at a time.
"""

import threading
from typing import Any, TypeVar

import msgspec

__all__ = ["differs_only_in", "make_decoder", "prepare_decoding"]

C = TypeVar("C", bound=type[msgspec.Struct])
S = TypeVar("S", bound=msgspec.Struct)

_one_at_a_time = threading.Lock()


def make_decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder; the type and those in it are worked out before others see them.

    Threads: safe from any thread, as is the decoder.
    """
    with _one_at_a_time:
        return msgspec.json.Decoder(type_)


def prepare_decoding(struct: C) -> C:
    """Work a struct out where it is defined: a decorator for those that are decoded into.

    For `msgspec.convert`, and `decode` with a type, which have no decoder that is made
    beforehand.
    """
    make_decoder(struct)
    return struct


def differs_only_in(before: S, after: S, *fields: str) -> bool:
    """Return whether two structs of one type differ, and only in the named fields."""
    alike = {field: getattr(before, field) for field in fields}
    return before != after and before == msgspec.structs.replace(after, **alike)
