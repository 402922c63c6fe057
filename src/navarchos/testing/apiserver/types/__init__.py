"""The field tables of the built-in kinds, in a small notation."""

from navarchos.testing.apiserver.types.notation import TypeTable, load_types

__all__ = ["TYPES", "TypeTable", "load_types"]

TYPES: TypeTable = load_types()
"""Every type that the server's built-in kinds are made of."""
