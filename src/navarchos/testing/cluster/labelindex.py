"""Where selectors and labels meet, without trying every selector on every object.

A selector that asks for a label with one value can only match objects that have it.
So both are filed under that label: the selector once, an object under each of its
labels. What asks for no such label is filed under the namespace alone, and so is
every object.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from navarchos.client.selectors import Operator, Selector

__all__ = ["Anchor", "anchor_of", "anchors_of"]


class Anchor(NamedTuple):
    """A label in a namespace; without a key, the namespace as a whole."""

    namespace: str
    key: str = ""
    value: str = ""


def anchor_of(namespace: str, selector: Selector) -> Anchor:
    """Return where a selector is filed: under one label that it asks for, if any."""
    for requirement in selector.requirements:
        if requirement.operator is Operator.IN and len(requirement.values) == 1:
            return Anchor(namespace, requirement.key, requirement.values[0])
    return Anchor(namespace)


def anchors_of(namespace: str, labels: Mapping[str, str]) -> Iterator[Anchor]:
    """Return where an object is filed. The selectors that match it are at one of these."""
    yield Anchor(namespace)
    for key, value in labels.items():
        yield Anchor(namespace, key, value)
