"""The hard rules of kube-scheduler: on which nodes a pod can run.

The preflight checks of the operator use these rules to predict whether evicted pods
find another node. The simulated scheduler of the test kit uses them to place pods.
Both get the same answer for the same pod, because the rules exist only here.

Preferences (scoring), host ports, `namespaceSelector`, `matchLabelKeys` and dynamic
resource allocation are not part of these rules. Each module names the scheduler plugins
in `pkg/scheduler/framework/plugins` that it follows.
"""

from navarchos.placement.kinds import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    ResourceRequirements,
    SchedulableNode,
    SchedulablePod,
    TopologySpreadConstraint,
)
from navarchos.placement.node_rules import (
    NodeAffinityRule,
    NodeSelectorRule,
    ResourceAmounts,
    amounts_of,
    insufficient,
    is_cordoned_for,
    requests_of,
    reservation_of,
    tolerates_cordon,
    untolerated_taints,
)
from navarchos.placement.pod_rules import (
    LabelAnchor,
    PodAffinityRule,
    PodIndex,
    TopologySpreadRule,
    anchor_of,
    anchors_of,
)

__all__ = [
    "Affinity",
    "Container",
    "LabelAnchor",
    "NodeAffinity",
    "NodeAffinityRule",
    "NodeSelector",
    "NodeSelectorRule",
    "NodeSelectorTerm",
    "PodAffinity",
    "PodAffinityRule",
    "PodAffinityTerm",
    "PodIndex",
    "ResourceAmounts",
    "ResourceRequirements",
    "SchedulableNode",
    "SchedulablePod",
    "TopologySpreadConstraint",
    "TopologySpreadRule",
    "amounts_of",
    "anchor_of",
    "anchors_of",
    "insufficient",
    "is_cordoned_for",
    "requests_of",
    "reservation_of",
    "tolerates_cordon",
    "untolerated_taints",
]
