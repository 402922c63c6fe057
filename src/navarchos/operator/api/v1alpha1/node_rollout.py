"""NodeRollout: which nodes are replaced, in which order and within which limits."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from navarchos.client import Resource
from navarchos.client.selectors import LabelSelectorRequirement
from navarchos.meta import Object
from navarchos.operator.api.v1alpha1 import common, drain_spec, gate
from navarchos.operator.api.v1alpha1.action import Action
from navarchos.operator.api.v1alpha1.strategy import Replacement, RolloutStrategy
from navarchos.runtime.conditions import Condition
from navarchos.structs import prepare_decoding

__all__ = [
    "NODE_ROLLOUTS",
    "BlockedPod",
    "NodeNameEntry",
    "NodeRollout",
    "NodeRolloutSpec",
    "NodeRolloutStatus",
    "NodeSelectorEntry",
    "PlannedNode",
    "PriorityCount",
    "RolloutPhase",
    "WaveApproval",
    "WaveState",
    "WaveStatus",
]


class RolloutPhase(StrEnum):
    """The published summary of a rollout. The first three are as in 2019."""

    NEW = "New"
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    HALTED = "Halted"


class NodeSelectorEntry(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Selects nodes by label, and says how they are replaced."""

    match_labels: Annotated[
        dict[str, str], Meta(description="Labels that a node must have.", max_length=64)
    ] = {}
    match_expressions: Annotated[
        tuple[LabelSelectorRequirement, ...],
        Meta(description="Conditions that a node's labels must meet.", max_length=64),
    ] = ()
    match_all: Annotated[
        bool, Meta(description="Confirms that an entry without conditions selects every node.")
    ] = False
    replacement: Replacement = Replacement()


class NodeNameEntry(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Selects one node by name, and says how it is replaced. Overrides selectors."""

    name: Annotated[str, Meta(description="The node's name.", min_length=1, max_length=253)]
    replacement: Replacement = Replacement()


SelectorEntry = Annotated[
    NodeSelectorEntry,
    Meta(
        extra_json_schema={
            "x-kubernetes-validations": [
                {
                    "rule": "self.matchAll || (has(self.matchLabels) && size(self.matchLabels) > 0)"
                    " || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
                    "message": "selects every node; set matchAll: true to confirm",
                }
            ]
        }
    ),
]


class NodeRolloutSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Which nodes to replace, and how."""

    node_selectors: Annotated[
        tuple[SelectorEntry, ...],
        Meta(description="Nodes by label. The highest priority wins.", max_length=100),
    ] = ()
    node_names: Annotated[
        tuple[NodeNameEntry, ...],
        Meta(description="Nodes by name; these override selectors.", max_length=5000),
    ] = ()
    strategy: RolloutStrategy = RolloutStrategy()
    drain: drain_spec.DrainSpec = drain_spec.DrainSpec()
    action: Action = None
    gates: Annotated[
        tuple[gate.Gate, ...],
        Meta(
            description="What must be true of the cluster before each node starts.",
            max_length=20,
            extra_json_schema={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        ),
    ] = ()
    paused: Annotated[
        bool, Meta(description="No further node starts and no further pod is evicted.")
    ] = False
    cancel: Annotated[
        bool | None,
        Meta(
            description="Nodes that have not started become Cancelled, nodes in flight finish "
            "their attempt, and the rollout completes. Nodes that are Cancelled stay so when "
            "this is unset."
        ),
    ] = None
    ttl_seconds_after_finished: Annotated[
        common.Seconds | None,
        Meta(description="Delete the rollout this long after completion; never when absent."),
    ] = None


class PlannedNode(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A node of the rollout. The set of nodes is fixed when the rollout starts."""

    name: str
    uid: str
    priority: int = 0


class PriorityCount(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The progress of the nodes of one priority."""

    priority: int
    total: int
    completed: int = 0
    failed: int = 0


class BlockedPod(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A pod that blocks the drain of a node of this rollout."""

    node: str
    pod: Annotated[str, Meta(description="namespace/name")]
    reason: str
    budget: str = ""
    since: datetime | None = None


class WaveState(StrEnum):
    """What a wave waits for before nodes beyond it start."""

    IN_PROGRESS = "InProgress"
    SOAKING = "Soaking"
    AWAITING_APPROVAL = "AwaitingApproval"
    COMPLETED = "Completed"


class WaveApproval(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A recorded approval of a wave. It holds only for a wave of the same number and size."""

    number: Annotated[int, Meta(description="The number of the wave, from 1.")]
    up_to: Annotated[int, Meta(description="The nodes up to the end of the wave.")]
    by: Annotated[str, Meta(description="Who approved it, as the API server knows the user.")] = ""
    at: Annotated[datetime, Meta(description="When the approval was recorded.")]


class WaveStatus(
    msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True, omit_defaults=True
):
    """The current wave."""

    number: Annotated[int, Meta(description="The current wave, from 1; the last one at the end.")]
    of: Annotated[int, Meta(description="The number of waves.")]
    up_to: Annotated[int, Meta(description="The nodes up to the end of the wave.")]
    state: Annotated[
        WaveState,
        Meta(
            description="Its nodes have not all finished (InProgress), soakSeconds have not "
            "passed (Soaking), a user must approve it (AwaitingApproval), or no wave holds nodes "
            "back any more (Completed)."
        ),
    ]
    since: Annotated[datetime | None, Meta(description="When the wave came into this state.")] = (
        None
    )
    until: Annotated[datetime | None, Meta(description="When it will have soaked.")] = None
    approvals: Annotated[
        tuple[WaveApproval, ...], Meta(description="Who approved which wave, and when.")
    ] = ()
    judged: Annotated[
        str,
        Meta(description="The approval annotation that was applied or refused last, shortened."),
    ] = ""


class NodeRolloutStatus(
    msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True, omit_defaults=True
):
    """The progress of the rollout. Names in lists are node names."""

    phase: RolloutPhase | None = None
    observed_generation: int = 0
    start_timestamp: datetime | None = None
    completion_timestamp: datetime | None = None
    estimated_completion: datetime | None = None
    nodes: Annotated[
        tuple[PlannedNode, ...], Meta(description="The nodes of the rollout, fixed at its start.")
    ] = ()
    nodes_not_found: Annotated[
        tuple[str, ...], Meta(description="Names in the spec that matched no node at the start.")
    ] = ()
    plan: tuple[PriorityCount, ...] = ()
    replacements_created: tuple[str, ...] = ()
    replacements_created_count: int = 0
    replacements_completed: tuple[str, ...] = ()
    replacements_completed_count: int = 0
    replacements_failed: tuple[str, ...] = ()
    replacements_failed_count: int = 0
    replacements_cancelled: tuple[str, ...] = ()
    replacements_cancelled_count: Annotated[
        int | None, Meta(description="Absent until a node has been cancelled.")
    ] = None
    in_flight: tuple[str, ...] = ()
    in_flight_count: int = 0
    stalled: Annotated[
        tuple[str, ...],
        Meta(description="Nodes whose drain is stalled. They do not occupy a slot."),
    ] = ()
    stalled_count: int = 0
    blocked: tuple[BlockedPod, ...] = ()
    blocked_count: int = 0
    gates: Annotated[
        tuple[gate.GateStatus, ...], Meta(description="The gates of spec.gates, in their order.")
    ] = ()
    halted_max_failures: Annotated[
        int | None,
        Meta(description="maxFailures when the rollout was halted; a higher value resumes it."),
    ] = None
    resumed: Annotated[
        str, Meta(description="The value of the resume annotation that was applied last.")
    ] = ""
    wave: Annotated[WaveStatus | None, Meta(description="Absent without strategy.waves.")] = None
    conditions: tuple[Condition, ...] = ()


@prepare_decoding
class NodeRollout(Object, frozen=True):
    """Replaces groups of nodes in order of priority, without supervision."""

    spec: NodeRolloutSpec = NodeRolloutSpec()
    status: NodeRolloutStatus = NodeRolloutStatus()


NODE_ROLLOUTS = Resource(
    group=common.GROUP,
    version=common.VERSION,
    plural="noderollouts",
    kind="NodeRollout",
    namespaced=False,
    type=NodeRollout,
)
