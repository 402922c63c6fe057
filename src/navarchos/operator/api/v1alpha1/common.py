"""Types that more than one kind uses."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from navarchos.client.bodies import merge_diff
from navarchos.client.selectors import LabelSelectorSpec
from navarchos.errors import ConfigError
from navarchos.operator.windows import DAY_PATTERN, TIME_PATTERN

__all__ = [
    "GROUP",
    "VERSION",
    "BlackoutPeriod",
    "ControlPlanePolicy",
    "DrainSpec",
    "EscalationAction",
    "EscalationStage",
    "IntOrPercent",
    "NodeAnnotation",
    "NodeFailurePolicy",
    "OwnerKey",
    "PendingPodsPolicy",
    "PodNote",
    "PrepareSpec",
    "PrepareTimeoutPolicy",
    "Replacement",
    "RolloutStrategy",
    "Seconds",
    "Strategy",
    "TimeWindow",
    "TimeoutPolicy",
    "TimestampWait",
    "Wave",
    "WindowEndPolicy",
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


class NodeFailurePolicy(StrEnum):
    """What happens to the operator's cordon when a node fails."""

    UNCORDON = "Uncordon"
    KEEP = "Keep"


class PendingPodsPolicy(StrEnum):
    """Which Pending pods delay the next node."""

    EVICTED = "Evicted"
    ANY = "Any"
    IGNORE = "Ignore"


class ControlPlanePolicy(StrEnum):
    """Whether a control-plane node waits until all other control-plane nodes are Ready."""

    GUARD = "Guard"
    IGNORE = "Ignore"


class TimeoutPolicy(StrEnum):
    """What a drain does when its timeout has passed."""

    FAIL = "Fail"
    HOLD = "Hold"


class EscalationAction(StrEnum):
    """What an escalation stage does to the pods that remain on the node."""

    DELETE_UNHEALTHY = "DeleteUnhealthy"
    DELETE = "Delete"


class Replacement(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """How a node is replaced."""

    priority: Annotated[
        int, Meta(description="Higher priorities start first.", ge=-2_147_483_648, le=2_147_483_647)
    ] = 0


class WindowEndPolicy(StrEnum):
    """What happens to nodes in flight that are not empty yet when the last window closes."""

    FINISH = "Finish"
    GIVE_BACK = "GiveBack"


class TimeWindow(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A weekly time in which nodes may start."""

    days: Annotated[
        tuple[Annotated[str, Meta(max_length=9, extra_json_schema={"pattern": DAY_PATTERN})], ...],
        Meta(
            description="The days on which the window starts: 0 (Sunday) to 6, or names in two "
            "or three letters or in full; every day if empty.",
            max_length=7,
        ),
    ] = ()
    start: Annotated[
        str,
        Meta(
            description="When it opens: 15:04, 15:04:05, 15, 03:04pm, 03pm or 3pm.",
            max_length=8,
            extra_json_schema={"pattern": TIME_PATTERN},
        ),
    ] = "0:00"
    end: Annotated[
        str,
        Meta(
            description="The last second in which it is open. If it is before start, the window "
            "ends on the next day.",
            max_length=8,
            extra_json_schema={"pattern": TIME_PATTERN},
        ),
    ] = "23:59:59"
    time_zone: Annotated[
        str,
        Meta(
            description="An IANA time zone such as Europe/Berlin.",
            max_length=64,
            extra_json_schema={
                "pattern": "^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$",
                "x-kubernetes-validations": [
                    {
                        "rule": "self != 'Local' && "
                        "timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0",
                        "message": "must be an IANA time zone such as Europe/Berlin",
                    }
                ],
            },
        ),
    ] = "UTC"


class BlackoutPeriod(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A period in which no node starts."""

    start: Annotated[datetime, Meta(description="The first moment of the period.", tz=True)] = (
        msgspec.field(name="from")
    )
    end: Annotated[
        datetime, Meta(description="The moment at which nodes may start again.", tz=True)
    ] = msgspec.field(name="to")


_Window = Annotated[
    TimeWindow,
    Meta(
        extra_json_schema={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.start) || !has(self.end) || self.start != self.end",
                    "message": "start and end must differ",
                }
            ]
        }
    ),
]

_Blackout = Annotated[
    BlackoutPeriod,
    Meta(
        extra_json_schema={
            "x-kubernetes-validations": [
                {"rule": "self.from < self.to", "message": "from must be before to"}
            ]
        }
    ),
]


class Strategy(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """How many nodes are replaced at once, in which order, and how failures are handled."""

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
            description="The rollout is Halted when more nodes than this have failed. Stalled "
            "nodes release their slot as long as stalled and failed nodes together are not more "
            "than this. A percentage is of the rollout's nodes, rounded down."
        ),
    ] = 0
    retries: Annotated[
        int,
        Meta(
            description="How many times a failed node is tried again, after all other nodes of "
            "its priority.",
            ge=0,
            le=100,
        ),
    ] = 1
    on_node_failure: Annotated[
        NodeFailurePolicy,
        Meta(
            description="What happens to the operator's cordon when a node fails: uncordon the "
            "node (Uncordon), or leave it cordoned (Keep)."
        ),
    ] = NodeFailurePolicy.UNCORDON
    settle_seconds: Annotated[Seconds, Meta(description="Seconds to wait after each node.")] = 0
    pending_pods: Annotated[
        PendingPodsPolicy,
        Meta(
            description="Which Pending pods delay the next node: pods that replace evicted pods "
            "(Evicted), all pods of the cluster (Any), or no pods (Ignore)."
        ),
    ] = PendingPodsPolicy.EVICTED
    pending_pods_timeout_seconds: Annotated[
        Seconds,
        Meta(description="The attempt fails when it has waited this long for Pending pods."),
    ] = 600
    control_plane: Annotated[
        ControlPlanePolicy,
        Meta(
            description="A node with the label node-role.kubernetes.io/control-plane starts only "
            "while all other nodes with that label are Ready and not in flight (Guard), or like "
            "any other node (Ignore)."
        ),
    ] = ControlPlanePolicy.GUARD
    taint_waiting_nodes: Annotated[
        bool,
        Meta(
            description="Unfinished nodes have the taint "
            "navarchos.pusher.com/to-be-replaced:PreferNoSchedule, so that the scheduler prefers "
            "other nodes for evicted pods and a pod is moved only once."
        ),
    ] = False

    windows: (
        Annotated[
            tuple[_Window, ...],
            Meta(
                description="Nodes start only in one of these; at any time if absent.",
                max_length=20,
            ),
        ]
        | None
    ) = None
    blackouts: (
        Annotated[
            tuple[_Blackout, ...],
            Meta(description="Periods in which no node starts.", max_length=20),
        ]
        | None
    ) = None
    on_window_end: Annotated[
        WindowEndPolicy | None,
        Meta(
            description="When the last window closes, nodes in flight that are not empty yet are "
            "drained to the end (Finish, the default), or uncordoned until the next window "
            "(GiveBack)."
        ),
    ] = None
    fit_window: Annotated[
        bool | None,
        Meta(
            description="A node starts only if nine of ten finished nodes of the rollout would "
            "have finished before the window closes. It holds once five nodes have finished."
        ),
    ] = None


class Wave(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The first nodes of a rollout, which must be well before further nodes start."""

    up_to: Annotated[
        IntOrPercent,
        Meta(
            description="How many nodes may have started, with those of earlier waves. A "
            "percentage is of the rollout's nodes, rounded up.",
        ),
    ]
    soak_seconds: Annotated[
        Seconds, Meta(description="Seconds to wait after the last node of the wave has finished.")
    ] = 0
    approval: Annotated[
        bool,
        Meta(description="Further nodes start only after a user has run navarchos approve."),
    ] = False


class RolloutStrategy(Strategy, frozen=True, rename="camel", gc=False, kw_only=True):
    """The strategy of a rollout: of its nodes, and of the rollout as a whole."""

    waves: (
        Annotated[
            tuple[Wave, ...],
            Meta(
                description="Parts of the rollout that begin one after the other. Nodes beyond the "
                "last wave start when it is over.",
                max_length=20,
                extra_json_schema={
                    "x-kubernetes-validations": [
                        {
                            "rule": "self.all(a, type(a.upTo) == int ? a.upTo > 0 "
                            ": a.upTo != '0%')",
                            "message": "upTo must be at least 1, or 1%",
                        },
                        {
                            # The operator compares percentages of the same length: a rule with
                            # their values would cost too much.
                            "rule": "self.filter(a, type(a.upTo) == int).map(a, int(a.upTo))"
                            ".isSorted() && self.filter(a, type(a.upTo) == string)"
                            ".map(a, size(a.upTo)).isSorted()",
                            "message": "upTo must not fall from wave to wave",
                        },
                    ]
                },
            ),
        ]
        | None
    ) = None


class EscalationStage(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A stage deletes pods that could not be evicted in time."""

    after_seconds: Annotated[
        Seconds, Meta(description="Counted from the first eviction on the node.")
    ]
    action: Annotated[
        EscalationAction,
        Meta(description="Delete pods that are not ready (DeleteUnhealthy), or all (Delete)."),
    ]
    namespaces: Annotated[
        tuple[Annotated[str, Meta(max_length=63)], ...],
        Meta(description="Only pods of these namespaces; of all when empty.", max_length=100),
    ] = ()
    pod_selector: Annotated[
        LabelSelectorSpec | None, Meta(description="Only pods with these labels.")
    ] = None


class PrepareTimeoutPolicy(StrEnum):
    """What a drain does when its node is not prepared in time."""

    FAIL = "Fail"
    PROCEED = "Proceed"


AnnotationKey = Annotated[
    str,
    Meta(
        description="A key such as example.com/name.",
        min_length=1,
        max_length=317,
        extra_json_schema={
            "x-kubernetes-validations": [
                {
                    "rule": "self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?"
                    "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",
                    "message": "must be the key of an annotation, such as example.com/name",
                },
                {
                    "rule": "!self.matches('^([a-z0-9.-]*[.])?(navarchos[.]pusher[.]com|"
                    "kubernetes[.]io|k8s[.]io)/')",
                    "message": "must not belong to Kubernetes or to Navarchos",
                },
            ]
        },
    ),
]


class NodeAnnotation(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """An annotation that the node has while it is out of service."""

    key: AnnotationKey
    value: Annotated[str, Meta(description="The value of the annotation.", max_length=1024)] = ""


class TimestampWait(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """An annotation in which another program writes when it has detached the node."""

    key: Annotated[
        str,
        Meta(description="The key; the value is a time in RFC 3339.", min_length=1, max_length=317),
    ]
    grace_period_seconds: Annotated[
        Seconds, Meta(description="Seconds to wait after that time.")
    ] = 10


class PrepareSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """What happens to a node before it is cordoned. By default nothing."""

    exclude_from_external_load_balancers: Annotated[
        bool,
        Meta(
            description="Set the label node.kubernetes.io/exclude-from-external-load-balancers, "
            "which service controllers obey."
        ),
    ] = False
    annotate_node: Annotated[
        NodeAnnotation | None,
        Meta(description="Set an annotation that makes another program detach the node."),
    ] = None
    wait_for_timestamp: Annotated[
        TimestampWait | None,
        Meta(description="Wait until another program has recorded that it has detached the node."),
    ] = None
    settle_seconds: Annotated[
        Seconds,
        Meta(description="Seconds to wait after the label and the annotation have been set."),
    ] = 0
    hooks: Annotated[
        tuple[
            Annotated[
                str,
                Meta(
                    min_length=1,
                    max_length=63,
                    pattern="^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
                ),
            ],
            ...,
        ],
        Meta(
            description="Hooks to wait for, besides the hooks of pods. A hook answers with the "
            "annotation hook.navarchos.pusher.com/NAME of the NodeDrain: Done, or Waiting: TEXT.",
            max_length=20,
        ),
    ] = ()
    timeout_seconds: Annotated[
        Seconds,
        Meta(description="Timeout of the preparation, counted from its beginning; 0: no timeout."),
    ] = 300
    on_timeout: Annotated[
        PrepareTimeoutPolicy,
        Meta(
            description="After the timeout, fail the drain (Fail), or drain the node all the same "
            "(Proceed)."
        ),
    ] = PrepareTimeoutPolicy.FAIL


class DrainSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """How a node is drained: the options of `kubectl drain`, timeouts and escalation."""

    grace_period_seconds: Annotated[
        int,
        Meta(description="Seconds to terminate; -1: as in the pod.", ge=-1, le=31_536_000),
    ] = -1
    timeout_seconds: Annotated[
        Seconds,
        Meta(description="Timeout of the drain, counted from the first eviction; 0: no timeout."),
    ] = 900
    on_timeout: Annotated[
        TimeoutPolicy,
        Meta(description="After the timeout, fail the drain (Fail) or keep trying (Hold)."),
    ] = TimeoutPolicy.FAIL
    force: Annotated[
        bool, Meta(description="Also remove pods that no controller would recreate.")
    ] = False
    delete_empty_dir_data: Annotated[
        bool, Meta(description="Also remove pods that have emptyDir volumes; their data is lost.")
    ] = True
    ignore_daemon_sets: Annotated[
        bool,
        Meta(description="Ignore the pods of DaemonSets; otherwise they make the drain fail."),
    ] = True
    disable_eviction: Annotated[
        bool,
        Meta(description="Delete pods instead of evicting them; this bypasses their budgets."),
    ] = False
    pod_selector: Annotated[
        LabelSelectorSpec | None, Meta(description="Only pods with these labels are removed.")
    ] = None
    skip_wait_for_delete_timeout_seconds: Annotated[
        Seconds,
        Meta(
            description="Do not wait for pods that have been terminating for longer than this; "
            "0: always wait."
        ),
    ] = 0
    eviction_retry_seconds: Annotated[
        int, Meta(description="Seconds before a refused eviction is tried again.", ge=1, le=3600)
    ] = 5
    escalation: Annotated[
        tuple[EscalationStage, ...],
        Meta(description="Stages that delete pods which were not evicted in time.", max_length=10),
    ] = ()
    prepare: Annotated[
        PrepareSpec | None,
        Meta(
            description="What happens before the node is cordoned: take it out of load balancers, "
            "wait for hooks. If absent, hooks of pods are waited for after the cordon.",
            extra_json_schema={
                "x-kubernetes-validations": [
                    {
                        "rule": "!has(self.waitForTimestamp) || has(self.annotateNode)",
                        "message": "waitForTimestamp requires annotateNode",
                    }
                ]
            },
        ),
    ] = None


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
