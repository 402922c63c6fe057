"""The NodeDrain of an attempt: its name, its manifest, whose it is. Pure."""

import msgspec

from navarchos.client.owners import owner_reference
from navarchos.meta import controller_of
from navarchos.operator.api.v1alpha1 import (
    NODE_REPLACEMENTS,
    DrainCondition,
    NodeDrain,
    NodeReplacement,
    Step,
)
from navarchos.operator.names import DRAIN_FINALIZER, child_name
from navarchos.runtime.conditions import is_true
from navarchos.structs import without_nulls

__all__ = [
    "belongs_to",
    "drain_manifest",
    "drain_name",
    "earlier_drain_names",
    "is_cordoned",
]


def drain_name(replacement: NodeReplacement) -> str:
    """Return the name of the present attempt's drain: the same in every process.

    Each attempt has a drain of its own, so that one which was kept after a failure
    is never taken for the next. The word before the number keeps the second drain
    of node `worker` apart from the first of node `worker-2`.
    """
    failed = replacement.status.attempts
    # A failed attempt is counted when its release begins.
    attempt = failed if replacement.status.current is Step.RELEASING else failed + 1
    return _name_of_attempt(replacement, attempt)


def earlier_drain_names(replacement: NodeReplacement) -> list[str]:
    """Return the names of the drains that attempts had which have failed.

    They are there only as long as they keep a cordon.
    """
    return [
        _name_of_attempt(replacement, attempt)
        for attempt in range(1, replacement.status.attempts + 1)
    ]


def _name_of_attempt(replacement: NodeReplacement, attempt: int) -> str:
    name = replacement.metadata.name
    return child_name(name) if attempt <= 1 else child_name(name, f"attempt{attempt}")


def drain_manifest(replacement: NodeReplacement) -> dict[str, object]:
    """Return the drain as it is created: one owner, the replacement.

    It bears the finalizer from its first moment, which is a request less than to add it.
    """
    owner = owner_reference(replacement, NODE_REPLACEMENTS, controller=True)
    spec = msgspec.to_builtins(replacement.spec.drain) | {
        "nodeName": replacement.spec.node_name,
        "nodeUID": replacement.spec.node_uid,
        "uncordonOnDelete": True,
        "paused": replacement.spec.paused,
    }
    return {
        "metadata": {
            "name": drain_name(replacement),
            "ownerReferences": [msgspec.to_builtins(owner)],
            "finalizers": [DRAIN_FINALIZER],
        },
        "spec": without_nulls(spec),
    }


def belongs_to(drain: NodeDrain, replacement: NodeReplacement) -> bool:
    """Tell whether the replacement is the drain's controller, by uid."""
    owner = controller_of(drain.metadata)
    return owner is not None and owner.uid == replacement.metadata.uid


def is_cordoned(drain: NodeDrain) -> bool:
    """Tell whether the drain has closed its node to new pods."""
    return is_true(drain.status.conditions, DrainCondition.NODE_CORDONED)
