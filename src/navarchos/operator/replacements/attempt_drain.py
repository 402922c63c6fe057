"""The NodeDrain of an attempt: its name, its manifest and its owner. Pure."""

import msgspec

from navarchos.client.owners import owner_reference
from navarchos.client.selectors import LabelSelectorRequirement, LabelSelectorSpec
from navarchos.meta import controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.names import ACTION_LABELS, DRAIN_FINALIZER, child_name
from navarchos.operator.reasons import ConditionType
from navarchos.runtime.conditions import is_true
from navarchos.structs import without_nulls

__all__ = [
    "belongs_to",
    "drain_manifest",
    "drain_name",
    "drain_spec",
    "earlier_drain_names",
    "evicts",
    "is_cordoned",
]


def drain_name(replacement: api.NodeReplacement) -> str:
    """Return the name of the current attempt's drain: the same in every process.

    Each attempt has a separate drain, so that a drain which was kept after a failure is not
    mistaken for the next one. The word "attempt" before the number keeps the second drain of
    node `worker` apart from the first drain of node `worker-2`.
    """
    return _name_of_attempt(replacement, replacement.status.current_attempt)


def earlier_drain_names(replacement: api.NodeReplacement) -> list[str]:
    """Return the names of the drains of the failed attempts.

    Such a drain exists only while it keeps a cordon.
    """
    return [
        _name_of_attempt(replacement, attempt)
        for attempt in range(1, replacement.status.attempts + 1)
    ]


def _name_of_attempt(replacement: api.NodeReplacement, attempt: int) -> str:
    name = replacement.metadata.name
    return child_name(name) if attempt <= 1 else child_name(name, f"attempt{attempt}")


def drain_manifest(replacement: api.NodeReplacement) -> dict[str, object]:
    """Return the drain to create. Its only owner is the replacement.

    It has its finalizer from the start, which saves the request that would add it.
    """
    owner = owner_reference(replacement, api.NODE_REPLACEMENTS, controller=True)
    spec = msgspec.to_builtins(drain_spec(replacement.spec.drain, replacement.spec.action)) | {
        "nodeName": replacement.spec.node_name,
        "nodeUID": replacement.spec.node_uid,
        "uncordonOnDelete": True,
        "paused": replacement.spec.paused,
        "evict": None if evicts(replacement.spec) else False,
    }
    return {
        "metadata": {
            "name": drain_name(replacement),
            "ownerReferences": [msgspec.to_builtins(owner)],
            "finalizers": [DRAIN_FINALIZER],
        },
        "spec": without_nulls(spec),
    }


def drain_spec(drain: api.DrainSpec, action: api.ActionSpec | None) -> api.DrainSpec:
    """Return how a node is drained: pods of actions are never evicted (UP-71)."""
    if action is None:
        return drain
    selector = drain.pod_selector or LabelSelectorSpec()
    kept = tuple(
        LabelSelectorRequirement(key=key, operator="DoesNotExist") for key in ACTION_LABELS
    )
    selector = msgspec.structs.replace(
        selector, match_expressions=(*selector.match_expressions, *kept)
    )
    return msgspec.structs.replace(drain, pod_selector=selector)


def evicts(spec: api.NodeReplacementSpec | api.NodeRolloutSpec) -> bool:
    """Return whether the node's pods are evicted, so that it is drained at the end."""
    # mutant: action-beside-pods
    return spec.action is None or spec.action.node is api.NodeState.DRAINED


def belongs_to(drain: api.NodeDrain, replacement: api.NodeReplacement) -> bool:
    """Return whether the replacement is the drain's controller, by uid."""
    owner = controller_of(drain.metadata)
    return owner is not None and owner.uid == replacement.metadata.uid


def is_cordoned(drain: api.NodeDrain) -> bool:
    """Return whether the drain reports that its node is cordoned."""
    return is_true(drain.status.conditions, ConditionType.NODE_CORDONED)
