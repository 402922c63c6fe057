"""Names that the operator puts on objects."""

from typing import Final

__all__ = [
    "CORDONED_BY_ANNOTATION",
    "DRAIN_COMPLETED_LABEL",
    "DRAIN_FINALIZER",
    "FIELD_MANAGER",
    "RESUME_ANNOTATION",
    "TO_BE_REPLACED_TAINT",
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
