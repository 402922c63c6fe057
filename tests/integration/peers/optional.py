"""Optional values of the official client's classes."""

from typing import TypeVar

__all__ = ["present"]

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return a value that the server must have set."""
    assert value is not None
    return value
