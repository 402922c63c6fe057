"""Deletions that were only noticed afterwards."""

from typing import Generic, TypeVar

import msgspec

from navarchos.meta import key_of

__all__ = ["Tombstone", "deletion_key"]

T = TypeVar("T")


class Tombstone(msgspec.Struct, Generic[T], frozen=True):
    """Stands for an object whose deletion was inferred, not watched (SI-15).

    A relist found the object gone. Its final state is unknown.

    Attributes:
        key: `namespace/name`, or the name alone.
        obj: The last state known here, possibly stale; `None` if there is none.
    """

    key: str
    obj: T | None = None


def deletion_key(deleted: object) -> str:
    """Return the key of what a delete notification carries (ST-03).

    Args:
        deleted: An object, a tombstone, or a key, which is returned as it is.

    Raises:
        KeyFailed: An object without metadata or name.
    """
    if isinstance(deleted, str):
        return deleted
    return deleted.key if isinstance(deleted, Tombstone) else key_of(deleted)
