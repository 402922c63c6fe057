"""Names of children: the same parts give the same name, in every process."""

import hashlib
from typing import Final

__all__ = ["MAX_NAME_LENGTH", "child_name"]

MAX_NAME_LENGTH: Final = 253
"""The longest name of an object (RFC 1123 subdomain)."""

_HASH_LENGTH: Final = 10


def child_name(parent: str, *parts: str) -> str:
    """Join the parts with hyphens; a name that is too long ends in a hash.

    The parts are names of objects, so that the result is a valid name as well.
    A name that was cut keeps its readable beginning, and its end tells it from
    every other name that was cut at the same place.
    """
    name = "-".join((parent, *parts))
    if len(name) <= MAX_NAME_LENGTH:
        return name
    # Hashed with a separator that no name contains: ("a-b", "c") is not ("a", "b-c").
    digest = hashlib.sha256("/".join((parent, *parts)).encode()).hexdigest()[:_HASH_LENGTH]
    kept = name[: MAX_NAME_LENGTH - _HASH_LENGTH - 1].rstrip("-.")
    return f"{kept}-{digest}"
