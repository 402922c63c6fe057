"""What an informer asks of the server."""

from typing import Any

from navarchos.client import Resource
from navarchos.client.rights import Rule

__all__ = ["rights_to_cache"]


def rights_to_cache(*resources: Resource[Any]) -> tuple[Rule, ...]:
    """Return what informers on these kinds need: lists and watches, no single reads."""
    return tuple(Rule(resource, ("list", "watch")) for resource in resources)
