"""The findings of a plan. They are part of the documented JSON of `plan -o json`."""

from enum import StrEnum

import msgspec

__all__ = ["FindingReason", "PlanFinding", "Severity"]


class Severity(StrEnum):
    """The effect of a finding on the rollout."""

    BLOCKS = "Blocks"
    """The node will not be drained until the user changes something."""
    DELAYS = "Delays"
    """The drain waits for a change that may happen without the user."""
    NOTE = "Note"
    """The rollout continues, with a consequence that the user should know."""


class FindingReason(StrEnum):
    """Why there is a finding, beside the reasons of the drain library."""

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
    DRAIN_HOOK = "DrainHook"
    PREPARED = "NodePrepared"
    REPLACED_FIRST = "ReplacedFirst"
    MADE_UNREADY = "MadeUnready"
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
    OUTSIDE_WINDOW = "OutsideWindow"
    WAVES = "Waves"
    NOT_CHECKED = "NotChecked"
    INVALID_SPEC = "InvalidSpec"
    GATE_CLOSED = "GateClosed"
    NODE_ACTION = "NodeAction"
    ACTION_UNAVAILABLE = "ActionUnavailable"
    JOB_REFUSED = "JobRefused"
    JOB_WITHOUT_DEADLINE = "JobWithoutDeadline"


class PlanFinding(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A problem or consequence that the user should know before the rollout starts.

    Attributes:
        severity: The effect on the rollout.
        reason: The kind of the finding, for programs.
        message: The finding as a sentence.
        next_action: How to fix it; empty if nothing can be done.
        pod: The pod as `namespace/name`; empty if the finding concerns no pod.
        budgets: The blocking budgets as `namespace/name`.
    """

    severity: Severity
    reason: str
    message: str
    next_action: str = ""
    pod: str = ""
    budgets: tuple[str, ...] = ()
