"""Custom kinds, for the length of some tests."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from navarchos.client import Client, Resource
from navarchos.testing.definitions import install_definitions, uninstall_definitions

__all__ = ["defined"]


@contextmanager
def defined(
    client: Client, definitions: Mapping[Resource[Any], Mapping[str, object]]
) -> Iterator[None]:
    """Let the server serve kinds for the length of a `with` block."""
    install_definitions(client, *definitions.values())
    try:
        yield
    finally:
        uninstall_definitions(client, *definitions.values())
