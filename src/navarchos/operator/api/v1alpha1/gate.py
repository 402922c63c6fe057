"""Gates of a rollout: what must be true of the cluster before the next node starts."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from navarchos.client.selectors import LabelSelectorSpec
from navarchos.operator.api.v1alpha1.common import Seconds

__all__ = [
    "AlertMatch",
    "AlertStates",
    "AlertsGate",
    "EvictedPodsGate",
    "Gate",
    "GateKind",
    "GateSpec",
    "GateState",
    "GateStatus",
    "NodesGate",
    "ObjectGate",
    "OnMissing",
]


class OnMissing(StrEnum):
    """What a gate decides when the object, or every selected object, does not exist."""

    BLOCK = "Block"
    PASS = "Pass"  # noqa: S105 - not a password


class AlertMatch(StrEnum):
    """What the alerts that a filter matches mean."""

    IGNORE = "Ignore"
    ONLY = "Only"


class AlertStates(StrEnum):
    """Which states of an alert block."""

    ANY = "Any"
    FIRING = "Firing"


class GateState(StrEnum):
    """Whether a gate lets nodes start."""

    OPEN = "Open"
    CLOSED = "Closed"
    PENDING = "Pending"


class GateKind(StrEnum):
    """The members of a gate. The values are the names of the fields."""

    OBJECT = "object"
    NODES = "nodes"
    EVICTED_PODS = "evicted_pods"
    ALERTS = "alerts"


class ObjectGate(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The objects that a gate observes: one by its name, or all that a selector selects."""

    api_version: Annotated[str, Meta(description="Such as apps/v1.", min_length=1, max_length=317)]
    kind: Annotated[str, Meta(description="Such as Deployment.", min_length=1, max_length=63)]
    namespace: Annotated[
        str,
        Meta(
            description="The namespace. Empty for kinds without a namespace; with a selector, "
            "empty means all namespaces.",
            max_length=63,
        ),
    ] = ""
    name: Annotated[str, Meta(description="The name of the object.", max_length=253)] = ""
    selector: Annotated[
        LabelSelectorSpec | None, Meta(description="All objects with these labels.")
    ] = None


class NodesGate(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The number of nodes that are not Ready."""

    max_unready: Annotated[
        int | str,
        Meta(
            description="The gate is open while not more nodes than this are not Ready. Nodes in "
            "flight, drained nodes and machines that join do not count. A percentage such as 10% "
            "is of all nodes, rounded down.",
            # Not a CEL rule: in a list, the estimated cost of a rule for such a value is too high.
            extra_json_schema={
                "x-kubernetes-int-or-string": True,
                "minimum": 0,
                "pattern": "^(100|[0-9]{1,2})%$",
            },
        ),
    ]


class EvictedPodsGate(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Every controller whose pods were evicted has its wanted number of Ready pods."""


class AlertsGate(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The active alerts of a Prometheus server."""

    url: Annotated[
        str,
        Meta(
            description="The address of Prometheus, http or https, without user and password.",
            max_length=2048,
            pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$",
        ),
    ]
    filter: Annotated[
        str,
        Meta(
            description="A regular expression (RE2) for names of alerts. It matches anywhere in "
            "the name; empty: no filter.",
            max_length=256,
            extra_json_schema={
                "x-kubernetes-validations": [
                    {
                        "rule": "''.matches(self) ? true : true",
                        "message": "must be a regular expression in the syntax of RE2",
                    }
                ]
            },
        ),
    ] = ""
    match: Annotated[
        AlertMatch,
        Meta(
            description="Alerts that the filter matches do not block (Ignore), or no other "
            "alerts block (Only)."
        ),
    ] = AlertMatch.IGNORE
    states: Annotated[
        AlertStates,
        Meta(description="Pending and firing alerts block (Any), or only firing ones (Firing)."),
    ] = AlertStates.ANY


_OBJECT_RULES: Final = {
    "x-kubernetes-validations": [
        {
            "rule": "(has(self.name) && self.name != '') != has(self.selector)",
            "message": "set either name or selector",
        }
    ]
}


class GateSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """What must be true of the cluster before a node starts. Exactly one member is set."""

    name: Annotated[
        str,
        Meta(
            description="The name in status and messages.",
            max_length=63,
            pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        ),
    ]
    object: Annotated[
        ObjectGate | None,
        Meta(
            description="Open while every one of these objects meets `for`.",
            extra_json_schema=_OBJECT_RULES,
        ),
    ] = None
    condition: Annotated[
        str,
        Meta(
            description="What the objects must meet, as in kubectl wait: condition=TYPE, "
            "condition=TYPE=STATUS, jsonpath={PATH} (there is a value) or jsonpath={PATH}=VALUE.",
            max_length=1024,
            pattern="^(condition|jsonpath)=.+$",
        ),
    ] = msgspec.field(default="", name="for")
    on_missing: Annotated[
        OnMissing,
        Meta(description="When no object exists, the gate is closed (Block) or open (Pass)."),
    ] = OnMissing.BLOCK
    nodes: Annotated[
        NodesGate | None, Meta(description="Open while few enough nodes are not Ready.")
    ] = None
    evicted_pods: Annotated[
        EvictedPodsGate | None,
        Meta(
            description="Open while every controller whose pods this rollout has evicted has its "
            "wanted number of Ready pods: ReplicaSets, which Deployments have, and StatefulSets."
        ),
    ] = None
    alerts: Annotated[
        AlertsGate | None, Meta(description="Open while Prometheus has no such alert.")
    ] = None
    stable_seconds: Annotated[
        Seconds, Meta(description="A node starts when the gate has been open for this long.")
    ] = 0
    timeout_seconds: Annotated[
        Seconds,
        Meta(
            description="The rollout is Halted when the gate has been closed for this long while "
            "a node could otherwise start; 0: never."
        ),
    ] = 1800
    after: Annotated[
        bool, Meta(description="The gate must also be open before a node counts as done.")
    ] = False

    @property
    def kind(self) -> GateKind | None:
        """The member that is set; `None` if none is, or more than one."""
        found = [kind for kind in GateKind if getattr(self, kind) is not None]
        return found[0] if len(found) == 1 else None


Gate = Annotated[
    GateSpec,
    Meta(
        extra_json_schema={
            "x-kubernetes-validations": [
                {
                    "rule": "(has(self.object) ? 1 : 0) + (has(self.nodes) ? 1 : 0) + "
                    "(has(self.evictedPods) ? 1 : 0) + (has(self.alerts) ? 1 : 0) == 1",
                    "message": "set exactly one of object, nodes, evictedPods and alerts",
                },
                {
                    "rule": "has(self.object) == (has(self.__for__) && self.__for__ != '')",
                    "message": "object and for belong together",
                },
            ]
        },
    ),
]
"""The type of an entry of `spec.gates`."""


class GateStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The state of a gate, as it was when it changed last."""

    name: str
    state: Annotated[
        GateState, Meta(description="Pending until the objects have been read for the first time.")
    ] = GateState.PENDING
    since: Annotated[
        datetime | None,
        Meta(description="Since when the gate is in this state, at the earliest the last resume."),
    ] = None
    message: Annotated[
        str, Meta(description="What blocks: the object, and its value at that time.")
    ] = ""
