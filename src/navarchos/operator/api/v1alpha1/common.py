"""Types that more than one kind uses."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from navarchos.client.bodies import merge_diff
from navarchos.client.selectors import LabelSelectorSpec
from navarchos.errors import ConfigError

__all__ = [
    "GROUP",
    "VERSION",
    "ControlPlanePolicy",
    "DrainSpec",
    "EscalationAction",
    "EscalationStage",
    "IntOrPercent",
    "NodeFailurePolicy",
    "OwnerKey",
    "PendingPodsPolicy",
    "PodNote",
    "Replacement",
    "Seconds",
    "Strategy",
    "TimeoutPolicy",
    "resolve_count",
    "status_diff",
]

GROUP: Final = "navarchos.pusher.com"
VERSION: Final = "v1alpha1"

IntOrPercent = Annotated[
    int | str,
    Meta(
        description="A number, or a share of all nodes such as 10%.",
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
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


class NodeFailurePolicy(StrEnum):
    """What happens to the cordon that we set when a node fails."""

    UNCORDON = "Uncordon"
    KEEP = "Keep"


class PendingPodsPolicy(StrEnum):
    """Which Pending pods hold up the next node."""

    EVICTED = "Evicted"
    ANY = "Any"
    IGNORE = "Ignore"


class ControlPlanePolicy(StrEnum):
    """Whether nodes of the control plane wait until the others of them are well."""

    GUARD = "Guard"
    IGNORE = "Ignore"


class TimeoutPolicy(StrEnum):
    """What a drain does when its time is up."""

    FAIL = "Fail"
    HOLD = "Hold"


class EscalationAction(StrEnum):
    """What an escalation stage does to the pods that are still there."""

    DELETE_UNHEALTHY = "DeleteUnhealthy"
    DELETE = "Delete"


class Replacement(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """How a node is replaced."""

    priority: Annotated[
        int, Meta(description="Higher goes first.", ge=-2_147_483_648, le=2_147_483_647)
    ] = 0


class Strategy(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """How many nodes at once, in which order, and what a failure means."""

    max_concurrent: Annotated[
        IntOrPercent,
        Meta(
            description="A node starts only while fewer than this many are in flight in the "
            "whole cluster. A percentage is of the rollout's nodes, rounded up."
        ),
    ] = 1
    topology_key: Annotated[
        str,
        Meta(
            description="Nodes in flight share one value of this node label (zone by zone).",
            max_length=316,
        ),
    ] = ""
    max_failures: Annotated[
        IntOrPercent,
        Meta(
            description="More failed nodes than this and the rollout is Halted. As many, less "
            "those that failed, may be stalled while others start beside them. A percentage is of "
            "the rollout's nodes, rounded down."
        ),
    ] = 0
    retries: Annotated[
        int,
        Meta(
            description="A failed node is tried again this often, after all others of its "
            "priority.",
            ge=0,
            le=100,
        ),
    ] = 1
    on_node_failure: Annotated[
        NodeFailurePolicy,
        Meta(description="What happens to the cordon we set when a node fails."),
    ] = NodeFailurePolicy.UNCORDON
    settle_seconds: Annotated[Seconds, Meta(description="Pause after each node.")] = 0
    pending_pods: Annotated[
        PendingPodsPolicy,
        Meta(
            description="Wait before the next node while pods are Pending: those that replace "
            "pods we evicted (Evicted), any in the cluster (Any), or never (Ignore)."
        ),
    ] = PendingPodsPolicy.EVICTED
    pending_pods_timeout_seconds: Annotated[
        Seconds, Meta(description="After this long the wait for Pending pods fails the node.")
    ] = 600
    control_plane: Annotated[
        ControlPlanePolicy,
        Meta(
            description="A node with the label node-role.kubernetes.io/control-plane starts only "
            "while all others of them are Ready and none is in flight (Guard), or like any "
            "other node (Ignore)."
        ),
    ] = ControlPlanePolicy.GUARD
    taint_waiting_nodes: Annotated[
        bool,
        Meta(
            description="Nodes that are not finished bear the taint "
            "navarchos.pusher.com/to-be-replaced:PreferNoSchedule, so that evicted pods go to "
            "nodes that stay, where there is room, and are moved once."
        ),
    ] = False


class EscalationStage(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Past its time, a stage deletes pods that evictions could not move."""

    after_seconds: Annotated[
        Seconds, Meta(description="Counted from the first eviction on the node.")
    ]
    action: Annotated[
        EscalationAction,
        Meta(description="Delete pods that are not ready (DeleteUnhealthy), or all (Delete)."),
    ]
    namespaces: Annotated[
        tuple[Annotated[str, Meta(max_length=63)], ...],
        Meta(description="Only pods of these namespaces; all when empty.", max_length=100),
    ] = ()
    pod_selector: Annotated[
        LabelSelectorSpec | None, Meta(description="Only pods with these labels.")
    ] = None


class DrainSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """How a node is emptied: the options of `kubectl drain`, and an end."""

    grace_period_seconds: Annotated[
        int, Meta(description="Time to terminate; -1 is the pod's own.", ge=-1, le=31_536_000)
    ] = -1
    timeout_seconds: Annotated[
        Seconds,
        Meta(description="Longest drain, counted from the first eviction; 0 is no limit."),
    ] = 900
    on_timeout: Annotated[
        TimeoutPolicy, Meta(description="Give the node up (Fail), or keep trying (Hold).")
    ] = TimeoutPolicy.FAIL
    force: Annotated[
        bool, Meta(description="Also remove pods that no controller would bring back.")
    ] = False
    delete_empty_dir_data: Annotated[
        bool, Meta(description="Also remove pods whose emptyDir data is lost with them.")
    ] = True
    ignore_daemon_sets: Annotated[
        bool, Meta(description="Leave the pods of DaemonSets alone instead of refusing.")
    ] = True
    disable_eviction: Annotated[
        bool, Meta(description="Delete pods, which passes over their budgets.")
    ] = False
    pod_selector: Annotated[
        LabelSelectorSpec | None, Meta(description="Only pods with these labels are removed.")
    ] = None
    skip_wait_for_delete_timeout_seconds: Annotated[
        Seconds,
        Meta(description="Do not wait for pods that terminate for longer than this; 0 waits."),
    ] = 0
    eviction_retry_seconds: Annotated[
        int, Meta(description="Pause before a refused eviction is tried again.", ge=1, le=3600)
    ] = 5
    escalation: Annotated[
        tuple[EscalationStage, ...],
        Meta(description="Stages for pods that cannot be evicted in time.", max_length=10),
    ] = ()


class PodNote(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A pod and why it is listed."""

    name: Annotated[str, Meta(description="namespace/name")]
    reason: str = ""


class OwnerKey(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The controller of a pod that we evicted."""

    namespace: str
    kind: str
    name: str
    uid: str


def resolve_count(value: int | str, total: int, *, round_up: bool) -> int:
    """Turn a number or a percentage of `total` into a number.

    Raises:
        ConfigError: A text that is no percentage.
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
    """Return a status as it stands on the wire, counts of 0 included.

    Defaults are left out, but not those of counts, so that the columns of kubectl
    show 0 instead of nothing. A status without a phase has never been written and
    has none: so the first difference to it carries all counts.
    """
    plain: dict[str, object] = msgspec.to_builtins(status)
    if "phase" in plain:
        for field in msgspec.structs.fields(status):
            if type(field.default) is int:
                plain.setdefault(field.encode_name, field.default)
    return plain
