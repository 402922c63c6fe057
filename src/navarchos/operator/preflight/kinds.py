"""The kinds that a plan reads, with the fields that it needs."""

from collections.abc import Mapping
from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.client.taints import Taint, Toleration
from navarchos.drain import Pod
from navarchos.drain.pods import PodSpec, Volume
from navarchos.meta import Object
from navarchos.operator.nodes import Node, NodeSpec, NodeStatus
from navarchos.placement.kinds import Affinity, Container, NodeSelector

__all__ = [
    "MUTATING_WEBHOOKS",
    "NAMESPACES",
    "PERSISTENT_VOLUMES",
    "PLAN_NODES",
    "PLAN_PODS",
    "VALIDATING_WEBHOOKS",
    "VOLUME_CLAIMS",
    "ClaimSource",
    "PersistentVolume",
    "PersistentVolumeSpec",
    "PlanNode",
    "PlanNodeSpec",
    "PlanNodeStatus",
    "PlanPod",
    "PlanPodSpec",
    "PlanReadinessGate",
    "PlanVolume",
    "VolumeClaim",
    "VolumeClaimSpec",
    "VolumeNodeAffinity",
    "Webhook",
    "WebhookConfiguration",
    "WebhookRule",
]


class ClaimSource(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The claim of a volume."""

    claim_name: str = ""


class PlanVolume(Volume, frozen=True, rename="camel", gc=False):
    """A volume of a pod, and its claim if it has one."""

    persistent_volume_claim: ClaimSource | None = None


class PlanReadinessGate(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A condition that must be true before the pod is Ready."""

    condition_type: str = ""


class PlanPodSpec(PodSpec, frozen=True, rename="camel", gc=False, kw_only=True):
    """The fields of a pod that decide where it can run, and its readiness gates."""

    readiness_gates: tuple[PlanReadinessGate, ...] = ()
    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, str | int] = {}
    volumes: tuple[PlanVolume, ...] = ()


class PlanPod(Pod, frozen=True):
    """A pod, with the fields that decide where it can run. Read-only."""

    spec: PlanPodSpec = PlanPodSpec()


class PlanNodeSpec(NodeSpec, frozen=True, rename="camel", gc=False, kw_only=True):
    """The cordon and the taints of a node."""

    taints: tuple[Taint, ...] = ()


class PlanNodeStatus(NodeStatus, frozen=True, gc=False):
    """The conditions and the capacity of a node."""

    allocatable: Mapping[str, str | int] = {}


class PlanNode(Node, frozen=True):
    """A node, with its taints and its capacity. Read-only."""

    spec: PlanNodeSpec = PlanNodeSpec()
    status: PlanNodeStatus = PlanNodeStatus()


class VolumeClaimSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The volume to which a claim is bound."""

    volume_name: str = ""


class VolumeClaim(Object, frozen=True):
    """A PersistentVolumeClaim."""

    spec: VolumeClaimSpec = VolumeClaimSpec()


class VolumeNodeAffinity(msgspec.Struct, frozen=True, gc=False):
    """The nodes that can attach a volume; `None` means all nodes."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The node affinity of a volume."""

    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()


class PersistentVolume(Object, frozen=True):
    """A PersistentVolume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class WebhookRule(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The requests that a webhook matches."""

    api_groups: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


class Webhook(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An admission webhook."""

    rules: tuple[WebhookRule, ...] = ()


class WebhookConfiguration(Object, frozen=True):
    """A configuration of validating or mutating admission webhooks."""

    webhooks: tuple[Webhook, ...] = ()

    @property
    def matches_evictions(self) -> bool:
        """Whether one of the webhooks is called for an eviction.

        `*` matches every resource and no subresource; `pods/*` and `*/*` match both.
        """
        return any(
            {"", "*"} & set(rule.api_groups)
            and {"CREATE", "*"} & set(rule.operations)
            and {"pods/eviction", "pods/*", "*/eviction", "*/*"} & set(rule.resources)
            for webhook in self.webhooks
            for rule in webhook.rules
        )


PLAN_PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True, type=PlanPod)
PLAN_NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False, type=PlanNode)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False, type=Object)
VOLUME_CLAIMS: Final = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True, type=VolumeClaim
)
PERSISTENT_VOLUMES: Final = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, type=PersistentVolume
)
_REGISTRATION: Final = "admissionregistration.k8s.io"
VALIDATING_WEBHOOKS: Final = Resource(
    _REGISTRATION,
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
    type=WebhookConfiguration,
)
MUTATING_WEBHOOKS: Final = Resource(
    _REGISTRATION,
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
    type=WebhookConfiguration,
)
