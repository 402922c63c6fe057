"""Labels, annotations, taints and finalizers of the operator, and the names of its objects."""

import hashlib
from typing import Final

__all__ = [
    "ACTION_FINALIZER",
    "ACTION_LABEL",
    "ACTION_LABELS",
    "APPROVE_ANNOTATION",
    "CORDONED_BY_ANNOTATION",
    "DETACHING_ANNOTATION",
    "DRAIN_COMPLETED_LABEL",
    "DRAIN_FINALIZER",
    "DRAIN_HOOK_ANNOTATION",
    "FIELD_MANAGER",
    "HOOK_ANSWER_PREFIX",
    "JOINING_TAINT",
    "MARKS_ANNOTATION",
    "MAX_LABEL_LENGTH",
    "MAX_NAME_LENGTH",
    "MOVED_FOR_ANNOTATION",
    "RESUME_ANNOTATION",
    "TO_BE_REPLACED_TAINT",
    "UNREADY_ANNOTATION",
    "UNREADY_PREFIX",
    "child_name",
]

DRAIN_COMPLETED_LABEL: Final = "navarchos.pusher.com/drain-completed"
"""On a node: when it was drained, as `2006-01-02T15h04m05s` in UTC. As published in 2019."""

CORDONED_BY_ANNOTATION: Final = "navarchos.pusher.com/cordoned-by"
"""On a node: the drain `<name>/<uid>` set the cordon."""

DETACHING_ANNOTATION: Final = "node-detacher.variant.run/detaching"
"""On a node: node-detacher detaches it, if the value is `true`."""

ACTION_FINALIZER: Final = "navarchos.pusher.com/action"
"""On a NodeReplacement: its action may still affect the node, so it must be ended first."""

DRAIN_FINALIZER: Final = "navarchos.pusher.com/drain"
"""On a NodeDrain: before it is deleted, its node may have to be uncordoned."""

DRAIN_HOOK_ANNOTATION: Final = "navarchos.pusher.com/drain-hook"
"""On a pod: the hook after which the pod's controller removes it. It is never evicted."""

HOOK_ANSWER_PREFIX: Final = "hook.navarchos.pusher.com/"
"""On a NodeDrain, before the name of a hook: its answer, `Done` or `Waiting: TEXT`."""

UNREADY_ANNOTATION: Final = "navarchos.pusher.com/pods-unready"
"""On a NodeDrain: the time of the mark because of which pods have become unready."""

UNREADY_PREFIX: Final = "navarchos.pusher.com/unready."
"""On a node, before the name of a readiness gate: the gate's pods on the node must be unready."""

MOVED_FOR_ANNOTATION: Final = "navarchos.pusher.com/moved-for"
"""On the template of a Deployment: the uid of the drain for which its pod was replaced first."""

MARKS_ANNOTATION: Final = "navarchos.pusher.com/detached-for"
"""On a node: which marks it has for which objects, and what it had before (JSON)."""

FIELD_MANAGER: Final = "navarchos-manager"
"""In `managedFields` of a node: the operator has set `spec.unschedulable`."""

RESUME_ANNOTATION: Final = "navarchos.pusher.com/resume"
"""On a NodeRollout: the failed attempts so far are reset. Written by `navarchos resume`."""

APPROVE_ANNOTATION: Final = "navarchos.pusher.com/approve"
"""On a NodeRollout: the number of the wave that a user approves. Written by `navarchos approve`."""

TO_BE_REPLACED_TAINT: Final = "navarchos.pusher.com/to-be-replaced"
"""The key of the taint of a node that will be replaced: the scheduler prefers other nodes."""

JOINING_TAINT: Final = "navarchos.pusher.com/joining"
"""The key of the taint of a new machine that has not joined the cluster completely."""

ACTION_LABEL: Final = "navarchos.pusher.com/action"
"""On a Job of an action, and on its pods: the uid of the replacement."""

ACTION_LABELS: Final = (ACTION_LABEL, "upgrade.cattle.io/controller")
"""The labels of pods that change a node. A drain of a node with an action does not evict them."""

MAX_LABEL_LENGTH: Final = 63
"""The longest value of a label, and the longest name of a Job."""

MAX_NAME_LENGTH: Final = 253
"""The longest name of an object (RFC 1123 subdomain)."""

_HASH_LENGTH: Final = 10


def child_name(parent: str, *parts: str, limit: int = MAX_NAME_LENGTH) -> str:
    """Join the parts with hyphens; a name that is longer than the limit ends in a hash.

    A Job needs a limit of 63, because the name is a label of its pods; a DaemonSet needs 242,
    because the name of its revisions adds 11 characters.

    Promises: the same parts give the same name in every process, so that a child cannot be
    created twice. The parts are names of objects, so that the result is a valid name too. A
    shortened name keeps its readable beginning, and its hash makes it unique.
    """
    name = "-".join((parent, *parts))
    if len(name) <= limit:
        return name
    # Hashed with a separator that no name contains: ("a-b", "c") is not ("a", "b-c").
    digest = hashlib.sha256("/".join((parent, *parts)).encode()).hexdigest()[:_HASH_LENGTH]
    kept = name[: limit - _HASH_LENGTH - 1].rstrip("-.")
    return f"{kept}-{digest}"
