"""Rules about a pod and one node: cordon, taints, node selector, node affinity, resources.

Pure. They follow the scheduler plugins nodeunschedulable, tainttoleration, nodeaffinity
and noderesources (`Fit`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from navarchos.client.selectors import LabelSelectorRequirement, Operator, Requirement
from navarchos.client.taints import Taint, Toleration, is_tolerated
from navarchos.errors import ConfigError
from navarchos.placement import kinds
from navarchos.quantities import parse_quantity

__all__ = [
    "DAEMON_TOLERATIONS",
    "NodeAffinityRule",
    "NodeSelectorRule",
    "ResourceAmounts",
    "amounts_of",
    "insufficient",
    "is_cordoned_for",
    "requests_of",
    "reservation_of",
    "tolerates_cordon",
    "untolerated_taints",
]

ResourceAmounts = Mapping[str, int]
"""Amounts by resource name, in thousandths of its unit. `pods` counts as a resource."""

_ONE_POD: Final = 1000
_NAME_FIELD: Final = "metadata.name"
DAEMON_TOLERATIONS: Final = tuple(
    Toleration(f"node.kubernetes.io/{taint}", "Exists", effect=effect)
    for taint, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
"""The tolerations that the DaemonSet controller adds to each pod."""

_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")

_Term = tuple[tuple[Requirement, ...], tuple[Requirement, ...]]


def is_cordoned_for(node: kinds.SchedulableNode, tolerations: tuple[Toleration, ...]) -> bool:
    """Return whether the node is cordoned and the pod does not tolerate the cordon's taint."""
    return node.spec.unschedulable and not tolerates_cordon(tolerations)


def tolerates_cordon(tolerations: tuple[Toleration, ...]) -> bool:
    """Return whether a pod with these tolerations can run on cordoned nodes."""
    return is_tolerated(_UNSCHEDULABLE, tolerations)


def untolerated_taints(
    taints: Iterable[Taint], tolerations: tuple[Toleration, ...], *, soft: bool = False
) -> Iterator[Taint]:
    """Yield the taints that keep a pod with these tolerations off a node.

    Args:
        taints: The taints of a node.
        tolerations: The tolerations of a pod.
        soft: Look at `PreferNoSchedule` taints only; by default at all others.
    """
    for taint in taints:
        if (taint.effect == "PreferNoSchedule") is soft and not is_tolerated(taint, tolerations):
            yield taint


class NodeSelectorRule:
    """A `NodeSelector`, compiled: of a pod's node affinity or of a volume.

    A requirement that this module cannot read, such as an operator of a newer
    Kubernetes, excludes no node.
    """

    def __init__(self, selector: kinds.NodeSelector | None) -> None:
        self._terms: tuple[_Term, ...] | None = None
        if selector is not None:
            self._terms = tuple(
                (_requirements(term.match_expressions), _requirements(term.match_fields))
                for term in selector.node_selector_terms
                # An empty term matches no node.
                if term.match_expressions or term.match_fields
            )

    def matches(self, node: kinds.LabelledNode) -> bool:
        """Return whether the node matches one of the terms. No selector matches every node."""
        if self._terms is None:
            return True
        labels, fields = node.metadata.labels, {_NAME_FIELD: node.metadata.name}
        return any(
            all(each.matches(labels) for each in of_labels)
            and all(each.matches(fields) for each in of_fields)
            for of_labels, of_fields in self._terms
        )


def _requirements(entries: Iterable[LabelSelectorRequirement]) -> tuple[Requirement, ...]:
    found = (_requirement(entry) for entry in entries)
    return tuple(each for each in found if each is not None)


def _requirement(entry: LabelSelectorRequirement) -> Requirement | None:
    try:
        return Requirement(entry.key, Operator(entry.operator), entry.values)
    except (ConfigError, ValueError):
        return None


class NodeAffinityRule:
    """The node selector and the required node affinity of a pod."""

    def __init__(self, node_selector: Mapping[str, str], affinity: kinds.Affinity | None) -> None:
        of_nodes = affinity.node_affinity if affinity is not None else None
        self._labels = node_selector
        self._selector = NodeSelectorRule(of_nodes.required if of_nodes is not None else None)

    def why_not(self, node: kinds.LabelledNode) -> str:
        """Return why the pod cannot run on the node; an empty string if it can."""
        labels = node.metadata.labels
        if any(labels.get(key) != value for key, value in self._labels.items()):
            return "the node does not match the pod's node selector"
        if not self._selector.matches(node):
            return "the node does not match the pod's node affinity"
        return ""


def requests_of(pod: kinds.SchedulablePod) -> Counter[str]:
    """Return the requests of a pod, by resource.

    The larger of two sums counts: all containers with all sidecars, or one init container
    with the sidecars that start before it. The overhead of the pod's runtime class is
    added (`PodRequests` of upstream's resource helpers).
    """
    spec = pod.spec
    total: Counter[str] = Counter()
    for container in spec.containers:
        for name, quantity in container.resources.requests.items():
            total[name] += parse_quantity(quantity)
    if spec.init_containers:
        total = _with_init_containers(total, spec.init_containers)
    for name, quantity in spec.overhead.items():
        total[name] += parse_quantity(quantity)
    return total


def _with_init_containers(
    running: Counter[str], containers: Iterable[kinds.Container]
) -> Counter[str]:
    sidecars: Counter[str] = Counter()
    starting: Counter[str] = Counter()
    for container in containers:
        own = amounts_of(container.resources.requests)
        if container.restart_policy == "Always":
            sidecars += own
            starting |= sidecars
        else:
            starting |= own + sidecars
    return (running + sidecars) | starting


def reservation_of(pod: kinds.SchedulablePod) -> Counter[str]:
    """Return the amounts that the scheduler reserves for a pod: its requests, and one pod."""
    reserved = requests_of(pod)
    reserved["pods"] = _ONE_POD
    return reserved


def amounts_of(quantities: Mapping[str, str | int]) -> Counter[str]:
    """Return the amounts of quantities, for example of `status.allocatable`."""
    return Counter({name: parse_quantity(quantity) for name, quantity in quantities.items()})


def insufficient(
    wanted: ResourceAmounts, available: ResourceAmounts, used: ResourceAmounts
) -> tuple[str, ...]:
    """Return the resources of which a node has too little left, sorted.

    Every kubelet reports cpu, memory and pods, so such a resource that is not in `available`
    is not limited yet. An extended resource (`example.com/gpu`) that is not in `available`
    does not exist on the node.
    """
    return tuple(
        sorted(
            name
            for name, amount in wanted.items()
            if amount > 0
            and (amount + used.get(name, 0) > available[name] if name in available else "/" in name)
        )
    )
