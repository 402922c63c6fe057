"""NodeReplacement: one node on its way through the pipeline."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from navarchos.client import Resource
from navarchos.meta import Object
from navarchos.operator.api.v1alpha1.common import (
    GROUP,
    VERSION,
    DrainSpec,
    OwnerKey,
    PodNote,
    Replacement,
    Strategy,
)
from navarchos.runtime.conditions import Condition
from navarchos.structs import prepare_decoding

__all__ = [
    "NODE_REPLACEMENTS",
    "AttemptFailure",
    "NodeReplacement",
    "NodeReplacementSpec",
    "NodeReplacementStatus",
    "ReplacementPhase",
    "Step",
    "StepStatus",
]


class ReplacementPhase(StrEnum):
    """The published summary of a step. The first three are as in 2019."""

    NEW = "New"
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"


class Step(StrEnum):
    """Where a node is in the pipeline."""

    WAITING = "Waiting"
    RESERVED = "Reserved"
    CORDONED = "Cordoned"
    DRAINING = "Draining"
    RELEASING = "Releasing"
    DONE = "Done"
    FAILED = "Failed"

    @property
    def phase(self) -> ReplacementPhase:
        """The published phase of this step."""
        match self:
            case Step.WAITING:
                return ReplacementPhase.NEW
            case Step.DONE:
                return ReplacementPhase.COMPLETED
            case Step.FAILED:
                return ReplacementPhase.FAILED
            case _:
                return ReplacementPhase.IN_PROGRESS

    @property
    def in_flight(self) -> bool:
        """Whether something is done to a node in this step."""
        return not (self is Step.WAITING or self.is_finished)

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is done to the node, unless a person asks for it."""
        return self is Step.DONE or self is Step.FAILED


class StepStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The present step, since when, and until when at the latest."""

    name: Step
    started_at: datetime | None = None
    deadline: datetime | None = None
    reason: str = ""


class AttemptFailure(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """An attempt that failed, when, and why."""

    attempt: Annotated[int, Meta(description="Counted from 1.")]
    at: datetime
    reason: str = ""
    message: str = ""


class NodeReplacementSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Which node, and how. Name and uid of the node never change."""

    node_name: Annotated[str, Meta(description="The node's name.", min_length=1, max_length=253)]
    node_uid: Annotated[
        str,
        msgspec.Meta(
            description="The node's uid; filled in when absent. A node of another uid under the "
            "same name counts as replaced.",
            max_length=128,
        ),
    ] = msgspec.field(default="", name="nodeUID")
    replacement: Replacement = Replacement()
    strategy: Strategy = Strategy()
    drain: DrainSpec = DrainSpec()
    paused: Annotated[bool, Meta(description="Does not start, and sends no further eviction.")] = (
        False
    )


class NodeReplacementStatus(
    msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True, omit_defaults=True
):
    """How far the node is. Pods are written `namespace/name`."""

    phase: ReplacementPhase | None = None
    observed_generation: int = 0
    step: StepStatus | None = None
    stalled_since: Annotated[
        datetime | None,
        Meta(
            description="Since when its pods do not go and it takes no slot: other nodes start "
            "meanwhile, and it goes on."
        ),
    ] = None
    attempts: Annotated[int, Meta(description="Attempts that have failed.")] = 0
    reset_attempts: Annotated[
        int, Meta(description="Attempts that a person forgave; they no longer count.")
    ] = 0
    resumed: Annotated[
        str, Meta(description="The value of the resume annotation that was obeyed last.")
    ] = ""
    failures: Annotated[
        tuple[AttemptFailure, ...],
        Meta(description="The failed attempts that have not been forgiven, oldest first."),
    ] = ()
    node_pods: tuple[str, ...] = ()
    node_pods_count: int = 0
    evicted_pods: tuple[str, ...] = ()
    evicted_pods_count: int = 0
    ignored_pods: tuple[PodNote, ...] = ()
    ignored_pods_count: int = 0
    failed_pods: tuple[PodNote, ...] = ()
    failed_pods_count: int = 0
    evicted_owners: Annotated[
        tuple[OwnerKey, ...],
        Meta(description="Controllers whose pods were evicted; their Pending pods are waited for."),
    ] = ()
    start_timestamp: datetime | None = None
    completion_timestamp: datetime | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def current(self) -> Step:
        """The present step; a replacement nobody has looked at yet waits."""
        return self.step.name if self.step is not None else Step.WAITING

    @property
    def occupies_slot(self) -> bool:
        """Whether the node counts towards `maxConcurrent`."""
        return self.current.in_flight and self.stalled_since is None

    @property
    def is_stalled(self) -> bool:
        """Whether something is done to the node, and others start beside it."""
        return self.current.in_flight and self.stalled_since is not None

    @property
    def counted_attempts(self) -> int:
        """The failed attempts that have not been forgiven."""
        return self.attempts - self.reset_attempts


@prepare_decoding
class NodeReplacement(Object, frozen=True):
    """Takes one node out of service and lets it be replaced."""

    spec: Annotated[
        NodeReplacementSpec,
        Meta(
            extra_json_schema={
                "x-kubernetes-validations": [
                    {
                        "rule": "self.nodeName == oldSelf.nodeName",
                        "message": "nodeName is immutable",
                        "fieldPath": ".nodeName",
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
    status: NodeReplacementStatus = NodeReplacementStatus()


NODE_REPLACEMENTS = Resource(
    group=GROUP,
    version=VERSION,
    plural="nodereplacements",
    kind="NodeReplacement",
    namespaced=False,
    type=NodeReplacement,
)
