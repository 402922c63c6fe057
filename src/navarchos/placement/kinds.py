"""The fields of pods and nodes that the scheduler reads.

The parts of a pod's spec are structs that every projection of a pod shares. A whole pod
or node is a protocol, because each user caches other fields of it.
"""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from navarchos.client.selectors import LabelSelectorRequirement, LabelSelectorSpec
from navarchos.client.taints import Taint, Toleration

__all__ = [
    "Affinity",
    "Container",
    "LabelledNode",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorTerm",
    "PodAffinity",
    "PodAffinityTerm",
    "ResourceRequirements",
    "SchedulableNode",
    "SchedulablePod",
    "TopologySpreadConstraint",
]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class ResourceRequirements(msgspec.Struct, frozen=True, gc=False):
    """Requests of a container, as quantities by resource name."""

    requests: Mapping[str, str | int] = {}


class Container(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A container. An init container with the restart policy `Always` is a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""


class NodeSelectorTerm(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Conditions on the labels and the name of a node. All of them must hold."""

    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_fields: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Nodes that match at least one of the terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The nodes on which a pod can run. Preferences are not decoded."""

    required: NodeSelector | None = msgspec.field(default=None, name=_REQUIRED)


class PodAffinityTerm(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A set of pods, and the node label whose value defines a domain."""

    label_selector: LabelSelectorSpec | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelectorSpec | None = None


class PodAffinity(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Pods that must be, or must not be, in the domain of a pod. Preferences are not decoded."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(default=(), name=_REQUIRED)


class Affinity(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The affinity of a pod to nodes and to other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """How unevenly matching pods can be spread over the domains of a node label."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelectorSpec | None = None


class _PodMetadata(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


class _PodSpec(Protocol):
    @property
    def node_selector(self) -> Mapping[str, str]: ...
    @property
    def affinity(self) -> Affinity | None: ...
    @property
    def tolerations(self) -> tuple[Toleration, ...]: ...
    @property
    def containers(self) -> tuple[Container, ...]: ...
    @property
    def init_containers(self) -> tuple[Container, ...]: ...
    @property
    def overhead(self) -> Mapping[str, str | int]: ...


class SchedulablePod(Protocol):
    """The fields of a pod that decide where it can run."""

    @property
    def metadata(self) -> _PodMetadata:
        """Its name, namespace, uid and labels."""
        ...

    @property
    def spec(self) -> _PodSpec:
        """Its requests and its constraints."""
        ...

    @property
    def is_terminating(self) -> bool:
        """Whether its deletion has been requested."""
        ...


class _NodeMetadata(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


class _NodeSpec(Protocol):
    @property
    def unschedulable(self) -> bool: ...
    @property
    def taints(self) -> tuple[Taint, ...]: ...


class _NodeStatus(Protocol):
    @property
    def allocatable(self) -> Mapping[str, str | int]: ...


class LabelledNode(Protocol):
    """The fields of a node that selectors of nodes compare."""

    @property
    def metadata(self) -> _NodeMetadata:
        """Its name and labels."""
        ...


class SchedulableNode(Protocol):
    """The fields of a node that decide which pods can run on it."""

    @property
    def metadata(self) -> _NodeMetadata:
        """Its name and labels."""
        ...

    @property
    def spec(self) -> _NodeSpec:
        """Its taints, and whether it is cordoned."""
        ...

    @property
    def status(self) -> _NodeStatus:
        """Its allocatable resources."""
        ...
