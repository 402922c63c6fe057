"""Whether an update changed anything that its projection shows."""

from collections.abc import Mapping
from typing import Final

import msgspec

from navarchos.meta import identity_of

__all__ = ["is_unchanged"]

_BOOKKEEPING: Final = frozenset({"resourceVersion", "managedFields"})


def is_unchanged(old: object, new: object) -> bool:
    """Tell whether two versions of an object differ in their resourceVersion alone.

    A projection hides most of an object, and so most of its changes: a kubelet's
    status updates change nothing of a node that is known by its labels. Two states
    of one version are a replay, not an update, and count as changed.
    """
    before, after = identity_of(old), identity_of(new)
    if before.resource_version == after.resource_version or before.uid != after.uid:
        return False
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _content(old) == _content(new)
    return _rest(old) == _rest(new) and _metadata(before) == _metadata(after)


def _content(obj: Mapping[str, object]) -> dict[str, object]:
    metadata = obj["metadata"]
    assert isinstance(metadata, Mapping)  # identity_of has read it
    shown = {key: value for key, value in metadata.items() if key not in _BOOKKEEPING}
    return {**obj, "metadata": shown}


def _rest(obj: object) -> list[object]:
    return [value for name, value in _fields(obj) if name != "metadata"]


def _metadata(metadata: object) -> list[object]:
    return [value for name, value in _fields(metadata) if name != "resource_version"]


def _fields(struct: object) -> list[tuple[str, object]]:
    assert isinstance(struct, msgspec.Struct)  # the only other form of objects
    return [(name, getattr(struct, name)) for name in struct.__struct_fields__]
