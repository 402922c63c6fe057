"""The form of a finding. Its JSON is part of the shape of `plan -o json`."""

from enum import StrEnum

import msgspec

__all__ = ["FindingReason", "PlanFinding", "Severity"]


class Severity(StrEnum):
    """What a finding means for the rollout."""

    BLOCKS = "Blocks"
    """The node will not be drained unless a person changes something."""
    DELAYS = "Delays"
    """The drain waits for something that may come by itself."""
    NOTE = "Note"
    """It goes on, at a price worth knowing."""


class FindingReason(StrEnum):
    """What was found, beside the drain library's own reasons."""

    MULTIPLE_BUDGETS = "MultipleBudgets"
    BUDGET_NEVER_ALLOWS = "BudgetNeverAllows"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    BUDGET_BYPASSED = "BudgetBypassed"
    BUDGET_NOT_OBSERVED = "BudgetNotObserved"
    UNHEALTHY_POD_HELD = "UnhealthyPodHeld"
    STUCK_TERMINATING = "StuckTerminating"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    WEBHOOK_DENIED = "WebhookDenied"
    LONG_GRACE_PERIOD = "LongGracePeriod"
    POD_FINALIZER = "PodFinalizer"
    DO_NOT_EVICT = "DoNotEvict"
    NO_OTHER_NODE = "NoOtherNode"
    VOLUME_BOUND = "VolumeBound"
    NO_CAPACITY = "NoCapacity"
    NODE_NOT_READY = "NodeNotReady"
    CORDONED_BEFORE = "CordonedBefore"
    NODE_BUSY = "NodeBusy"
    CONTROL_PLANE_ALONE = "ControlPlaneAlone"
    CONTROL_PLANE_NOT_READY = "ControlPlaneNotReady"
    NODE_NOT_FOUND = "NodeNotFound"
    NO_NODES_MATCHED = "NoNodesMatched"
    SELECTOR_MATCHES_NOTHING = "SelectorMatchesNothing"
    NOTHING_MAY_START = "NothingMayStart"
    FORBIDDEN = "Forbidden"
    NO_EVICTION_API = "NoEvictionApi"
    MANAGER_NOT_RUNNING = "ManagerNotRunning"
    NOT_CHECKED = "NotChecked"
    INVALID_SPEC = "InvalidSpec"


class PlanFinding(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Something that a person should know before the rollout begins.

    Attributes:
        severity: What it means for the rollout.
        reason: What was found, for programs.
        message: Why, for people.
        next_action: What a person does about it; empty when there is nothing to do.
        pod: Which, as `namespace/name`; empty when it is about no pod.
        budgets: Those in the way, as `namespace/name`.
    """

    severity: Severity
    reason: str
    message: str
    next_action: str = ""
    pod: str = ""
    budgets: tuple[str, ...] = ()
