"""How the nodes of a rollout are replaced: how many at once, when, and in which parts."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from navarchos.operator.api.v1alpha1.common import IntOrPercent, Seconds
from navarchos.operator.windows import DAY_PATTERN, TIME_PATTERN

__all__ = [
    "BlackoutPeriod",
    "ControlPlanePolicy",
    "NodeFailurePolicy",
    "PendingPodsPolicy",
    "Replacement",
    "RolloutStrategy",
    "Strategy",
    "TimeWindow",
    "Wave",
    "WindowEndPolicy",
]


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

    start: Annotated[
        datetime, Meta(description="The first moment, such as 2026-12-20T00:00:00Z.", tz=True)
    ] = msgspec.field(name="from")
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
        Seconds,
        Meta(
            description="Seconds to wait after the last node of the wave has finished, with all "
            "gates open. A gate that closes begins them again."
        ),
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
