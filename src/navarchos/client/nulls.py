"""Null counts as absent."""

__all__ = ["without_nulls"]


def without_nulls(value: object) -> object:
    """Return decoded JSON without the members of objects that are null.

    Go servers write `null` for empty slices, maps and times. Entries of arrays
    keep their places, so a null among them stays.
    """
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
