"""Types that more than one kind uses."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from navarchos.client.bodies import merge_diff
from navarchos.errors import ConfigError

__all__ = [
    "GROUP",
    "VERSION",
    "IntOrPercent",
    "OwnerKey",
    "PodNote",
    "Seconds",
    "resolve_count",
    "status_diff",
]

GROUP: Final = "navarchos.pusher.com"

VERSION: Final = "v1alpha1"

IntOrPercent = Annotated[
    int | str,
    Meta(
        description="A number, or a percentage of all nodes such as 10%.",
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            # The API server estimates the cost of the rule from the length of the text.
            "maxLength": 4,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? self >= 0 : self.matches('^(100|[0-9]{1,2})%$')",
                    "message": "must be a number from 0, or a percentage from 0% to 100%",
                }
            ],
        },
    ),
]

Seconds = Annotated[int, Meta(ge=0, le=31_536_000)]
"""Whole seconds, up to a year."""


class PodNote(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A pod, and why it is in this list."""

    name: Annotated[str, Meta(description="namespace/name")]
    reason: str = ""


class OwnerKey(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The controller of an evicted pod."""

    namespace: str
    kind: str
    name: str
    uid: str


def resolve_count(value: int | str, total: int, *, round_up: bool) -> int:
    """Turn a number or a percentage of `total` into a number.

    Raises:
        ConfigError: `value` is a text but not a percentage.
    """
    if isinstance(value, int):
        return value
    share = value.removesuffix("%")
    if not (value.endswith("%") and share.isascii() and share.isdigit()):
        raise ConfigError("count", value, "it must be a number or a percentage such as 10%")
    return -(-int(share) * total // 100) if round_up else int(share) * total // 100


def status_diff(before: msgspec.Struct, after: msgspec.Struct) -> dict[str, object]:
    """Return the merge patch between two states of a status; empty if they are equal."""
    return {} if before == after else merge_diff(_plain_status(before), _plain_status(after))


def _plain_status(status: msgspec.Struct) -> dict[str, object]:
    """Return a status as JSON data, including counts of 0.

    Other default values are left out. Counts are kept, so that the columns of kubectl show 0
    instead of nothing. A status without a phase was never written: it has no counts, so that
    the first patch contains all of them.
    """
    plain: dict[str, object] = msgspec.to_builtins(status)
    if "phase" in plain:
        for field in msgspec.structs.fields(status):
            if type(field.default) is int:
                plain.setdefault(field.encode_name, field.default)
    return plain
