"""How a node is drained, and what happens to it before."""

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from navarchos.client.selectors import LabelSelectorSpec
from navarchos.operator.api.v1alpha1.common import Seconds

__all__ = [
    "DrainSpec",
    "EscalationAction",
    "EscalationStage",
    "NodeAnnotation",
    "PrepareSpec",
    "PrepareTimeoutPolicy",
    "ReplaceFirstPolicy",
    "TimeoutPolicy",
    "TimestampWait",
]


class TimeoutPolicy(StrEnum):
    """What a drain does when its timeout has passed."""

    FAIL = "Fail"
    HOLD = "Hold"


class EscalationAction(StrEnum):
    """What an escalation stage does to the pods that remain on the node."""

    DELETE_UNHEALTHY = "DeleteUnhealthy"
    DELETE = "Delete"


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
        Meta(
            description="The key of the node's annotation. Its value is a time in RFC 3339, not "
            "before the preparation.",
            min_length=1,
            max_length=317,
        ),
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
    readiness_gate: Annotated[
        str,
        Meta(
            description="A type navarchos.pusher.com/NAME of a condition. Pods of the node that "
            "have it among their readinessGates become unready, unless a PodDisruptionBudget "
            "covers them. The controllers readiness-gates of a manager do this.",
            pattern=r"^(navarchos\.pusher\.com/[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?)?$",
        ),
    ] = ""
    settle_seconds: Annotated[
        Seconds,
        Meta(
            description="Seconds to wait after the label and the annotation have been set, and "
            "after pods have become unready."
        ),
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


class ReplaceFirstPolicy(StrEnum):
    """Which pods are replaced before they leave the node."""

    NEVER = "Never"
    SINGLE_REPLICA = "SingleReplica"


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
    replace_first: Annotated[
        ReplaceFirstPolicy | None,
        Meta(
            description="Evict every pod (Never, the default), or let a Deployment with one "
            "replica, a rolling update and a surge start its new pod first (SingleReplica). After "
            "half of timeoutSeconds the pod is evicted. The manager needs further permissions."
        ),
    ] = None
