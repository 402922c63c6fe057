"""NodeReplacement: one node on its way through the pipeline."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, assert_never

import msgspec
from msgspec import Meta

from navarchos.client import Resource
from navarchos.meta import Object
from navarchos.operator.api.v1alpha1 import common, drain_spec
from navarchos.operator.api.v1alpha1.action import Action
from navarchos.operator.api.v1alpha1.strategy import Replacement, Strategy
from navarchos.runtime.conditions import Condition
from navarchos.structs import prepare_decoding

__all__ = [
    "NODE_REPLACEMENTS",
    "WINDOW_CLOSED",
    "AttemptFailure",
    "Heir",
    "NodeReplacement",
    "NodeReplacementSpec",
    "NodeReplacementStatus",
    "ReplacementPhase",
    "Step",
    "StepStatus",
]


WINDOW_CLOSED: Final = "WindowClosed"
"""The reason of the step Releasing when no attempt has failed."""


class ReplacementPhase(StrEnum):
    """The published summary of a step. The first three are as in 2019.

    `Cancelled` is a separate phase, because users and tools terminate the machine of a
    replacement that is Completed, and count those that Failed.
    """

    NEW = "New"
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class Step(StrEnum):
    """A step of the node pipeline."""

    WAITING = "Waiting"
    RESERVED = "Reserved"
    PREPARING = "Preparing"
    CORDONED = "Cordoned"
    DRAINING = "Draining"
    ACTING = "Acting"
    TERMINATING = "Terminating"
    AWAITING_REPLACEMENT = "AwaitingReplacement"
    VERIFYING = "Verifying"
    RETURNING = "Returning"
    RELEASING = "Releasing"
    DONE = "Done"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def phase(self) -> ReplacementPhase:
        """The published phase of this step."""
        match self:
            case Step.WAITING:
                return ReplacementPhase.NEW
            case (
                Step.RESERVED
                | Step.PREPARING
                | Step.CORDONED
                | Step.DRAINING
                | Step.ACTING
                | Step.TERMINATING
                | Step.AWAITING_REPLACEMENT
                | Step.VERIFYING
                | Step.RETURNING
                | Step.RELEASING
            ):
                return ReplacementPhase.IN_PROGRESS
            case Step.DONE:
                return ReplacementPhase.COMPLETED
            case Step.FAILED:
                return ReplacementPhase.FAILED
            case Step.CANCELLED:
                return ReplacementPhase.CANCELLED
            case _:
                assert_never(self)

    @property
    def in_flight(self) -> bool:
        """Whether the operator works on the node in this step."""
        return self.phase is ReplacementPhase.IN_PROGRESS

    @property
    def is_finished(self) -> bool:
        """Whether the replacement has ended; `navarchos resume` restarts one that has failed."""
        return self.phase in {
            ReplacementPhase.COMPLETED,
            ReplacementPhase.FAILED,
            ReplacementPhase.CANCELLED,
        }


class StepStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The current step, when it started, and its deadline."""

    name: Step
    started_at: datetime | None = None
    deadline: datetime | None = None
    reason: str = ""


class AttemptFailure(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A failed attempt: when it failed, and why."""

    attempt: Annotated[int, Meta(description="Counted from 1.")]
    at: datetime
    reason: str = ""
    message: str = ""


class NodeReplacementSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Which node to replace, and how. Name and uid of the node never change."""

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
    drain: drain_spec.DrainSpec = drain_spec.DrainSpec()
    action: Action = None
    paused: Annotated[
        bool, Meta(description="The node does not start; no further pod is evicted.")
    ] = False
    cancel: Annotated[
        bool | None,
        Meta(
            description="If the node has not started, it never starts: the replacement becomes "
            "Cancelled, which cannot be undone. A node in flight finishes its attempt."
        ),
    ] = None


class Heir(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The node that took the place of a node whose machine was replaced."""

    node_name: str
    node_uid: str = msgspec.field(default="", name="nodeUID")


class NodeReplacementStatus(
    msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True, omit_defaults=True
):
    """The progress of the node. Pods are written `namespace/name`."""

    phase: ReplacementPhase | None = None
    observed_generation: int = 0
    step: StepStatus | None = None
    stalled_since: Annotated[
        datetime | None,
        Meta(
            description="Time at which the drain was considered stalled and released its slot. "
            "The drain continues."
        ),
    ] = None
    attempts: Annotated[int, Meta(description="Attempts that have failed.")] = 0
    reset_attempts: Annotated[
        int,
        Meta(description="Failed attempts that navarchos resume has reset; they do not count."),
    ] = 0
    resumed: Annotated[
        str, Meta(description="The value of the resume annotation that was applied last.")
    ] = ""
    failures: Annotated[
        tuple[AttemptFailure, ...],
        Meta(description="The failed attempts that have not been reset, oldest first."),
    ] = ()
    node_pods: tuple[str, ...] = ()
    node_pods_count: int = 0
    evicted_pods: tuple[str, ...] = ()
    evicted_pods_count: int = 0
    ignored_pods: tuple[common.PodNote, ...] = ()
    ignored_pods_count: int = 0
    failed_pods: tuple[common.PodNote, ...] = ()
    failed_pods_count: int = 0
    evicted_owners: Annotated[
        tuple[common.OwnerKey, ...],
        Meta(description="Controllers of evicted pods. Their Pending pods delay the next node."),
    ] = ()
    boot_id: Annotated[
        str,
        Meta(
            description="The boot id of the node when its action began, if action.verify must "
            "show that the node has booted since."
        ),
    ] = msgspec.field(default="", name="bootID")
    heir: Heir | None = None
    start_timestamp: datetime | None = None
    completion_timestamp: datetime | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def current(self) -> Step:
        """The current step; `Waiting` before the first reconcile."""
        return self.step.name if self.step is not None else Step.WAITING

    @property
    def occupies_slot(self) -> bool:
        """Whether the node counts towards `maxConcurrent`."""
        return self.current.in_flight and self.stalled_since is None

    @property
    def is_stalled(self) -> bool:
        """Whether the node is in flight without a slot, so that other nodes start meanwhile."""
        return self.current.in_flight and self.stalled_since is not None

    @property
    def current_attempt(self) -> int:
        """The number of the current attempt, from 1; while it is released, of the failed one."""
        # A failed attempt is counted when its release begins.
        is_failed = self.current is Step.RELEASING and not self.is_given_back
        return self.attempts if is_failed else self.attempts + 1

    @property
    def is_given_back(self) -> bool:
        """Whether the node is released because its window has closed, without a failure."""
        return (
            self.step is not None
            and self.step.name is Step.RELEASING
            and self.step.reason == WINDOW_CLOSED
        )

    @property
    def counted_attempts(self) -> int:
        """The number of failed attempts that have not been reset."""
        return self.attempts - self.reset_attempts


@prepare_decoding
class NodeReplacement(Object, frozen=True):
    """Drains one node, so that its machine can be replaced."""

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
    group=common.GROUP,
    version=common.VERSION,
    plural="nodereplacements",
    kind="NodeReplacement",
    namespaced=False,
    type=NodeReplacement,
)
