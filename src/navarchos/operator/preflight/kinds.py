"""The kinds that a plan reads, as far as it needs them: above all where pods may run."""

from collections.abc import Mapping
from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.client.taints import Taint, Toleration
from navarchos.drain import Pod
from navarchos.drain.pods import PodSpec, Volume
from navarchos.meta import Object
from navarchos.operator.nodes import Node, NodeSpec, NodeStatus
from navarchos.placement import Affinity, Container, NodeSelector

__all__ = [
    "MUTATING_WEBHOOKS",
    "NAMESPACES",
    "PERSISTENT_VOLUMES",
    "PLAN_NODES",
    "PLAN_PODS",
    "VALIDATING_WEBHOOKS",
    "VOLUME_CLAIMS",
    "PersistentVolume",
    "PlanNode",
    "PlanPod",
    "VolumeClaim",
    "WebhookConfiguration",
]


class ClaimSource(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The claim that a volume comes from."""

    claim_name: str = ""


class PlanVolume(Volume, frozen=True, rename="camel", gc=False):
    """A volume, and its claim if it has one."""

    persistent_volume_claim: ClaimSource | None = None


class PlanPodSpec(PodSpec, frozen=True, rename="camel", gc=False, kw_only=True):
    """What decides where a pod may run."""

    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, str | int] = {}
    volumes: tuple[PlanVolume, ...] = ()


class PlanPod(Pod, frozen=True):
    """A pod, and what decides where it may run. Read-only."""

    spec: PlanPodSpec = PlanPodSpec()


class PlanNodeSpec(NodeSpec, frozen=True, rename="camel", gc=False, kw_only=True):
    """What keeps pods off a node."""

    taints: tuple[Taint, ...] = ()


class PlanNodeStatus(NodeStatus, frozen=True, gc=False):
    """How a node is, and what room it has."""

    allocatable: Mapping[str, str | int] = {}


class PlanNode(Node, frozen=True):
    """A node, with its taints and its room. Read-only."""

    spec: PlanNodeSpec = PlanNodeSpec()
    status: PlanNodeStatus = PlanNodeStatus()


class VolumeClaimSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The volume that a claim is bound to."""

    volume_name: str = ""


class VolumeClaim(Object, frozen=True):
    """A PersistentVolumeClaim."""

    spec: VolumeClaimSpec = VolumeClaimSpec()


class VolumeNodeAffinity(msgspec.Struct, frozen=True, gc=False):
    """The nodes that can reach a volume; all when absent."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """From where a volume can be reached."""

    node_affinity: VolumeNodeAffinity = VolumeNodeAffinity()


class PersistentVolume(Object, frozen=True):
    """A PersistentVolume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class WebhookRule(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Which requests a webhook is asked about."""

    api_groups: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


class Webhook(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An admission webhook."""

    rules: tuple[WebhookRule, ...] = ()


class WebhookConfiguration(Object, frozen=True):
    """Admission webhooks of either kind."""

    webhooks: tuple[Webhook, ...] = ()

    @property
    def judges_evictions(self) -> bool:
        """Whether one of them is asked before a pod is evicted.

        `*` is every resource and no subresource; `pods/*` and `*/*` are both.
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
