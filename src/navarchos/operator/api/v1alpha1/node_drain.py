"""NodeDrain: cordons one node and evicts its pods."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, assert_never

import msgspec
from msgspec import Meta

from navarchos.client import Resource
from navarchos.meta import Object, controller_of
from navarchos.operator.api.v1alpha1 import common, drain_spec
from navarchos.runtime.conditions import Condition

__all__ = [
    "NODE_DRAINS",
    "Blocker",
    "DrainPhase",
    "NodeDrain",
    "NodeDrainSpec",
    "NodeDrainStatus",
]


class DrainPhase(StrEnum):
    """The published summary of a drain."""

    PENDING = "Pending"
    PREPARING = "Preparing"
    DRAINING = "Draining"
    COMPLETED = "Completed"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        """Whether the drain has ended."""
        match self:
            case DrainPhase.COMPLETED | DrainPhase.FAILED:
                return True
            case DrainPhase.PENDING | DrainPhase.PREPARING | DrainPhase.DRAINING:
                return False
            case _:
                assert_never(self)


class NodeDrainSpec(drain_spec.DrainSpec, frozen=True, rename="camel", gc=False, kw_only=True):
    """Which node to drain, and how. Name and uid of the node never change."""

    node_name: Annotated[str, Meta(description="The node's name.", min_length=1, max_length=253)]
    node_uid: Annotated[
        str,
        Meta(
            description="The node's uid; filled in when absent. A node of another uid under the "
            "same name is left alone.",
            max_length=128,
        ),
    ] = msgspec.field(default="", name="nodeUID")
    uncordon_on_delete: Annotated[
        bool,
        Meta(
            description="Uncordon the node when this object is deleted, if this drain cordoned it."
        ),
    ] = True
    paused: Annotated[bool, Meta(description="No further pod is evicted.")] = False
    evict: Annotated[
        bool | None,
        Meta(
            description="If false, the node is prepared and cordoned, and no pod is evicted; the "
            "drain is then Completed. Pods with the annotation navarchos.pusher.com/drain-hook "
            "are waited for all the same."
        ),
    ] = None

    @property
    def evicts(self) -> bool:
        """Whether the pods of the node are evicted."""
        return self.evict is not False


class Blocker(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A pod that blocks the drain, and why."""

    namespace: str
    pod: str
    uid: str = ""
    reason: str = ""
    message: str = ""
    budget: str = ""
    first_seen: datetime | None = None
    next_action: str = ""


class NodeDrainStatus(
    msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True, omit_defaults=True
):
    """The progress of the drain. Pods are written `namespace/name`."""

    phase: DrainPhase | None = None
    reason: Annotated[str, Meta(description="Why the drain is in its phase, for programs.")] = ""
    message: str = ""
    observed_generation: int = 0
    start_timestamp: Annotated[
        datetime | None, Meta(description="Time of the first eviction; timeouts count from it.")
    ] = None
    prepare_timestamp: Annotated[
        datetime | None,
        Meta(description="Time at which the preparation began; its timeout counts from it."),
    ] = None
    completion_timestamp: datetime | None = None
    total: int = 0
    evicted: int = 0
    ignored: int = 0
    remaining: int = 0
    blocked: int = 0
    blockers: Annotated[
        tuple[Blocker, ...], Meta(description="At most 50; `blocked` counts them all.")
    ] = ()
    node_pods: tuple[str, ...] = ()
    evicted_pods: tuple[str, ...] = ()
    ignored_pods: tuple[common.PodNote, ...] = ()
    failed_pods: tuple[common.PodNote, ...] = ()
    evicted_owners: tuple[common.OwnerKey, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def is_final(self) -> bool:
        """Whether the drain has ended: nothing changes it any more."""
        return self.phase is not None and self.phase.is_final

    @property
    def has_begun(self) -> bool:
        """Whether the pods have been recorded, so that evictions may have been sent."""
        return self.start_timestamp is not None


class NodeDrain(Object, frozen=True):
    """Cordons one node and evicts its pods."""

    spec: Annotated[
        NodeDrainSpec,
        Meta(
            extra_json_schema={
                "x-kubernetes-validations": [
                    {
                        "rule": "self.nodeName == oldSelf.nodeName",
                        "message": "nodeName is immutable",
                    },
                    {
                        "rule": "!has(oldSelf.nodeUID) || size(oldSelf.nodeUID) == 0 || "
                        "(has(self.nodeUID) && self.nodeUID == oldSelf.nodeUID)",
                        "message": "nodeUID is immutable",
                    },
                ]
            }
        ),
    ]
    status: NodeDrainStatus = NodeDrainStatus()

    @property
    def is_reported(self) -> bool:
        """Whether the drain's replacement has copied the drain's report.

        The replacement marks that by `uncordonOnDelete: false`, so that the cordon stays. It
        writes the mark when it has read the report, and its own status right after it.
        """
        return controller_of(self.metadata) is not None and not self.spec.uncordon_on_delete


NODE_DRAINS = Resource(
    group=common.GROUP,
    version=common.VERSION,
    plural="nodedrains",
    kind="NodeDrain",
    namespaced=False,
    type=NodeDrain,
)
