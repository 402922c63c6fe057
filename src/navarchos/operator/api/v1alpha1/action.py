"""What a rollout does on each node after it has taken the node out of service."""

from enum import StrEnum
from typing import Annotated, Any, assert_never

import msgspec
from msgspec import Meta

from navarchos.operator.api.v1alpha1.common import Seconds

__all__ = [
    "ActionKind",
    "ActionSpec",
    "Afterwards",
    "JobAction",
    "NodeState",
    "PlanAction",
    "RebootAction",
    "RemoveAction",
    "ReplaceAction",
    "VerifySpec",
]


class ActionKind(StrEnum):
    """A member of `spec.action`."""

    JOB = "job"
    PLAN = "plan"
    REBOOT = "reboot"
    REPLACE = "replace"
    REMOVE = "remove"

    @property
    def controller(self) -> str:
        """The controller that carries out the action, as `--controllers` names it."""
        match self:
            case ActionKind.JOB:
                return "rollouts"
            case ActionKind.PLAN:
                return "upgrades"
            case ActionKind.REBOOT:
                return "reboots"
            case ActionKind.REPLACE | ActionKind.REMOVE:
                return "machines"
            case _:
                assert_never(self)

    @property
    def ends_machine(self) -> bool:
        """Whether the node's machine is terminated, so that the node cannot return."""
        match self:
            case ActionKind.REPLACE | ActionKind.REMOVE:
                return True
            case ActionKind.JOB | ActionKind.PLAN | ActionKind.REBOOT:
                return False
            case _:
                assert_never(self)


class NodeState(StrEnum):
    """The state in which a node must be while its action runs."""

    DRAINED = "Drained"
    CORDONED = "Cordoned"
    IN_SERVICE = "InService"


class Afterwards(StrEnum):
    """What happens to a node after its action."""

    RETURN = "Return"
    KEEP = "Keep"


class JobAction(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Runs a Job on each node."""

    namespace: Annotated[
        str, Meta(description="The namespace of the Jobs.", min_length=1, max_length=63)
    ]
    template: Annotated[
        dict[str, Any],
        Meta(
            description="A JobTemplateSpec of batch/v1: metadata and spec of the Job. The API "
            "server validates it when the first Job is created. Node, tolerations of the cordon "
            "and environment variables are added; ttlSecondsAfterFinished is ignored."
        ),
    ]


class PlanAction(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Runs the Job of an upgrade Plan on each node."""

    namespace: Annotated[
        str, Meta(description="The namespace of the Plan.", min_length=1, max_length=63)
    ]
    name: Annotated[str, Meta(description="The name of the Plan.", min_length=1, max_length=253)]
    hash: Annotated[
        str, Meta(description="Only this version of the Plan; any if empty.", max_length=64)
    ] = ""


class RebootAction(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Reboots each node."""


class ReplaceAction(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Terminates the machine of each node; another machine takes its place."""


class RemoveAction(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Terminates the machine of each node; no other machine takes its place."""


class VerifySpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """What must be true of a node after its action, before the node counts as done."""

    ready_seconds: Annotated[
        Seconds, Meta(description="The node has been Ready without a break for this long.")
    ] = 30
    timeout_seconds: Annotated[
        Seconds, Meta(description="The attempt fails when the node is not well after this time.")
    ] = 600
    daemon_sets: Annotated[
        bool, Meta(description="Every DaemonSet that selects the node has a Ready pod on it.")
    ] = False
    kubelet_version: Annotated[
        str, Meta(description="The kubelet has this version; any if empty.", max_length=128)
    ] = ""
    rebooted: Annotated[
        bool, Meta(description="The node has booted since its action began (another boot id).")
    ] = False


class ActionSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """What is done on each node, in which state of the node, and what happens to it afterwards."""

    job: Annotated[JobAction | None, Meta(description="Run a Job on each node.")] = None
    plan: Annotated[
        PlanAction | None, Meta(description="Run the Job of an upgrade Plan on each node.")
    ] = None
    reboot: Annotated[RebootAction | None, Meta(description="Reboot each node.")] = None
    replace: Annotated[
        ReplaceAction | None,
        Meta(
            description="Replace the machine of each node. The node is always drained, and "
            "afterwards does not apply."
        ),
    ] = None
    remove: Annotated[
        RemoveAction | None,
        Meta(
            description="Terminate the machine of each node. The node is always drained, and "
            "afterwards does not apply."
        ),
    ] = None
    node: Annotated[
        NodeState,
        Meta(
            description="Before the action, drain the node (Drained), only cordon it (Cordoned), "
            "or leave it in service (InService)."
        ),
    ] = NodeState.DRAINED
    afterwards: Annotated[
        Afterwards,
        Meta(
            description="After the action, return the node to service (Return), or leave it "
            "cordoned (Keep). A drained node that stays cordoned gets the label "
            "navarchos.pusher.com/drain-completed."
        ),
    ] = Afterwards.RETURN
    verify: Annotated[
        VerifySpec | None,
        Meta(
            description="What must be true of the node, or of the node that takes its place, after "
            "the action. When absent, a node is not verified after a Job, and other actions have "
            "defaults of their own."
        ),
    ] = None

    @property
    def kind(self) -> ActionKind | None:
        """The member that is set; `None` if nothing runs on the node."""
        return next((kind for kind in ActionKind if getattr(self, kind) is not None), None)

    @property
    def verification(self) -> VerifySpec | None:
        """What is verified after the action; `None` if nothing is.

        Without `verify`, the kind of the action decides. A node whose machine was removed has
        nothing left to verify.
        """
        match self.kind:
            case ActionKind.REMOVE:
                return None
            case ActionKind.JOB | None:
                return self.verify
            case ActionKind.PLAN:
                return self.verify or VerifySpec()
            case ActionKind.REBOOT:
                return self.verify or VerifySpec(rebooted=True)
            case ActionKind.REPLACE:
                return self.verify or VerifySpec(ready_seconds=10, daemon_sets=True)
            case kind:
                assert_never(kind)

    @property
    def returns(self) -> bool:
        """Whether the node is uncordoned at the end."""
        kind = self.kind
        keeps = self.afterwards is Afterwards.KEEP or self.node is NodeState.IN_SERVICE
        return not keeps and not (kind is not None and kind.ends_machine)


Action = Annotated[
    ActionSpec | None,
    Meta(
        description="What is done on each node. When absent, nodes are drained, labelled and "
        "stay cordoned.",
        extra_json_schema={
            "x-kubernetes-validations": [
                {
                    "rule": "(has(self.job) ? 1 : 0) + (has(self.plan) ? 1 : 0) + "
                    "(has(self.reboot) ? 1 : 0) + (has(self.replace) ? 1 : 0) + "
                    "(has(self.remove) ? 1 : 0) <= 1",
                    "message": "set at most one of job, plan, reboot, replace and remove",
                },
                {
                    "rule": "self.node == 'Drained' || (!has(self.replace) && !has(self.remove))",
                    "message": "replace and remove always drain the node: leave out node",
                },
                {
                    "rule": "self.node != 'InService' || self.afterwards != 'Keep'",
                    "message": "a node that stays in service has no cordon to keep",
                },
            ]
        },
    ),
]
"""The type of `spec.action`."""
