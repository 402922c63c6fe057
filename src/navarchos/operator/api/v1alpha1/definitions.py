"""CustomResourceDefinitions of the three kinds: names, columns, selectable fields.

The short names and the columns of rollouts and replacements were published in 2019, in this
order, and scripts read them. New columns come after them or have priority 1 (`-o wide`).
"""

from typing import Final

from navarchos.crd import Column, Definition, Manifest, Version, custom_resource_definition
from navarchos.operator.api.v1alpha1.node_drain import NODE_DRAINS
from navarchos.operator.api.v1alpha1.node_replacement import NODE_REPLACEMENTS
from navarchos.operator.api.v1alpha1.node_rollout import NODE_ROLLOUTS

__all__ = ["DEFINITIONS", "manifests"]

_CATEGORIES: Final = ("navarchos",)

_PHASE: Final = Column("Phase", ".status.phase")
_COMPLETED: Final = Column("Completed", ".status.completionTimestamp", "date")
_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")

_ROLLOUTS: Final = Definition(
    short_names=("nroll", "nrolls", "nr", "nrs"),
    categories=_CATEGORIES,
    versions=(
        Version(
            resource=NODE_ROLLOUTS,
            columns=(
                Column("Replacements created", ".status.replacementsCreatedCount", "integer"),
                Column("Replacements completed", ".status.replacementsCompletedCount", "integer"),
                Column("Failed", ".status.replacementsFailedCount", "integer", priority=1),
                Column("Cancelled", ".status.replacementsCancelledCount", "integer", priority=1),
                Column("In flight", ".status.inFlightCount", "integer", priority=1),
                Column("Blocked", ".status.blockedCount", "integer", priority=1),
                _PHASE,
                _COMPLETED,
                _AGE,
                Column("Wave", ".status.wave.number", "integer", priority=1),
                Column("Wave state", ".status.wave.state", priority=1),
            ),
        ),
    ),
)

_REPLACEMENTS: Final = Definition(
    short_names=("nrep", "nreps", "nrp", "nrps"),
    categories=_CATEGORIES,
    versions=(
        Version(
            resource=NODE_REPLACEMENTS,
            columns=(
                Column("Node Pods", ".status.nodePodsCount", "integer"),
                Column("Ignored Pods", ".status.ignoredPodsCount", "integer"),
                Column("Evicted Pods", ".status.evictedPodsCount", "integer"),
                Column("Failed Pods", ".status.failedPodsCount", "integer"),
                _PHASE,
                Column("Priority", ".spec.replacement.priority", "integer", priority=1),
                _COMPLETED,
                Column("Owners", ".metadata.ownerReferences[*].name", priority=1),
                _AGE,
                Column("Step", ".status.step.name", priority=1),
                Column("Reason", ".status.step.reason", priority=1),
            ),
            selectable_fields=(".spec.nodeName",),
            rules=(
                {
                    # An action that has begun is found again, and ended, by what the spec says.
                    "rule": "!has(oldSelf.status) || !has(oldSelf.status.phase) || "
                    "oldSelf.status.phase != 'InProgress' || (has(self.spec.action) ? "
                    "has(oldSelf.spec.action) && self.spec.action == oldSelf.spec.action : "
                    "!has(oldSelf.spec.action))",
                    "message": "action cannot be changed while the node is in flight",
                    "fieldPath": ".spec.action",
                },
            ),
        ),
    ),
)

_DRAINS: Final = Definition(
    short_names=("ndrain", "ndrains"),
    categories=_CATEGORIES,
    versions=(
        Version(
            resource=NODE_DRAINS,
            columns=(
                Column("Node", ".spec.nodeName"),
                Column("Total", ".status.total", "integer"),
                Column("Evicted", ".status.evicted", "integer"),
                Column("Remaining", ".status.remaining", "integer"),
                Column("Blocked", ".status.blocked", "integer"),
                _PHASE,
                Column("Ignored", ".status.ignored", "integer", priority=1),
                Column("Reason", ".status.reason", priority=1),
                _COMPLETED,
                _AGE,
            ),
            selectable_fields=(".spec.nodeName",),
        ),
    ),
)

DEFINITIONS: Final[tuple[Definition, ...]] = (_DRAINS, _REPLACEMENTS, _ROLLOUTS)
"""Every kind of this API, by name."""


def manifests() -> list[Manifest]:
    """Return the CustomResourceDefinitions of this API, ready to be applied."""
    return [custom_resource_definition(definition) for definition in DEFINITIONS]
