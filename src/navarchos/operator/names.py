"""Names that the operator puts on objects."""

import hashlib
from typing import Final

__all__ = [
    "CORDONED_BY_ANNOTATION",
    "DRAIN_COMPLETED_LABEL",
    "DRAIN_FINALIZER",
    "FIELD_MANAGER",
    "MAX_NAME_LENGTH",
    "RESUME_ANNOTATION",
    "TO_BE_REPLACED_TAINT",
    "child_name",
]

DRAIN_COMPLETED_LABEL: Final = "navarchos.pusher.com/drain-completed"
"""On a node: when it was drained, as `2006-01-02T15h04m05s` in UTC. As published."""

CORDONED_BY_ANNOTATION: Final = "navarchos.pusher.com/cordoned-by"
"""On a node: the cordon is ours, set by the drain `<name>/<uid>`."""

DRAIN_FINALIZER: Final = "navarchos.pusher.com/drain"
"""On a NodeDrain: its cordon may have to be undone first."""

FIELD_MANAGER: Final = "navarchos-manager"
"""In a node's `managedFields`: who has set `spec.unschedulable`."""

RESUME_ANNOTATION: Final = "navarchos.pusher.com/resume"
"""On a NodeRollout: a person forgives the attempts that failed so far."""

TO_BE_REPLACED_TAINT: Final = "navarchos.pusher.com/to-be-replaced"
"""The key of a node's taint: it will be replaced, so pods had better go elsewhere."""


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
