"""The kinds that the simulator's controllers read, as slim projections.

Only what a decision needs is declared: a cache of 30,000 pods stays small.
Templates are kept as decoded JSON, since pods are made from all of their fields.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.client.selectors import LabelSelectorSpec
from navarchos.client.taints import Taint, Toleration
from navarchos.meta import Object, OwnerReference, ResourceVersion
from navarchos.placement.kinds import Affinity, Container, TopologySpreadConstraint
from navarchos.structs import prepare_decoding

__all__ = [
    "DAEMON_SETS",
    "DEPLOYMENTS",
    "DISRUPTION_BUDGETS",
    "JOBS",
    "NODES",
    "PODS",
    "REPLICA_SETS",
    "STATEFUL_SETS",
    "Budget",
    "BudgetSpec",
    "BudgetStatus",
    "DaemonSet",
    "DaemonSetStatus",
    "Deployment",
    "DeploymentSpec",
    "DeploymentStrategy",
    "Job",
    "JobSpec",
    "JobStatus",
    "Node",
    "NodeAddress",
    "NodeSpec",
    "NodeStatus",
    "Pod",
    "PodMeta",
    "PodSpec",
    "PodStatus",
    "ReplicaSet",
    "RollingUpdate",
    "StatefulSet",
    "StatusCondition",
    "Template",
    "WorkloadSpec",
    "WorkloadStatus",
]

Template = Mapping[str, object]
"""A PodTemplateSpec as decoded JSON. Read-only."""


class StatusCondition(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The fields of a condition that decisions read."""

    type: str
    status: str = ""
    reason: str = ""


class PodMeta(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The metadata of a pod that the framework and the controllers need."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: ResourceVersion = ResourceVersion("")
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class _ReadinessGate(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A condition that another program sets, and that the pod needs to be ready."""

    condition_type: str = ""


@prepare_decoding
class PodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The spec of a pod: its constraints and its node."""

    node_name: str = ""
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, str | int] = {}
    termination_grace_period_seconds: int = 30
    readiness_gates: tuple[_ReadinessGate, ...] = ()


class PodStatus(msgspec.Struct, frozen=True, gc=False):
    """The status of a pod."""

    phase: str = "Pending"
    conditions: tuple[StatusCondition, ...] = ()


class Pod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_finished(self) -> bool:
        """Whether the pod has succeeded or failed."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def is_active(self) -> bool:
        """Whether the pod counts for its controller: neither finished nor terminating."""
        return not self.is_terminating and not self.is_finished

    @property
    def is_ready(self) -> bool:
        """Whether its `Ready` condition is true."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def closed_gates(self) -> tuple[str, ...]:
        """Why its readiness gates keep it from being ready, in the kubelet's words."""
        found = {condition.type: condition.status for condition in self.status.conditions}
        texts = []
        for gate in self.spec.readiness_gates:
            type_ = gate.condition_type
            if type_ not in found:
                texts.append(
                    f'corresponding condition of pod readiness gate "{type_}" does not exist.'
                )
            elif found[type_] != "True":
                is_not = f'is not "True", but {found[type_]}'
                texts.append(f'the status of pod readiness gate "{type_}" {is_not}')
        return tuple(texts)

    @property
    def owner(self) -> OwnerReference | None:
        """The pod's controller, or `None`."""
        return next((o for o in self.metadata.owner_references if o.controller), None)


class NodeSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The spec of a node: cordon and taints."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeAddress(msgspec.Struct, frozen=True, gc=False):
    """An address of a node."""

    type: str = ""
    address: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False):
    """Capacity and conditions of a node."""

    addresses: tuple[NodeAddress, ...] = ()
    allocatable: Mapping[str, str | int] = {}
    conditions: tuple[StatusCondition, ...] = ()


class Node(Object, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether its `Ready` condition is true."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def internal_address(self) -> str:
        """The internal address, or an empty string."""
        addresses = (a.address for a in self.status.addresses if a.type == "InternalIP")
        return next(addresses, "")


class WorkloadSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The spec of a ReplicaSet, Deployment or StatefulSet."""

    replicas: int = 1
    selector: LabelSelectorSpec = LabelSelectorSpec()
    template: Template = {}
    pod_management_policy: str = "OrderedReady"


class RollingUpdate(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """How many pods a rolling update may add and take away, as numbers or percentages."""

    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class DeploymentStrategy(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """How a Deployment replaces its pods."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(WorkloadSpec, frozen=True, rename="camel", gc=False, kw_only=True):
    """The spec of a Deployment."""

    strategy: DeploymentStrategy = DeploymentStrategy()


class WorkloadStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The last written status; a status is written only if it differs."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0


class ReplicaSet(Object, frozen=True):
    """A ReplicaSet."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class Deployment(Object, frozen=True):
    """A Deployment."""

    spec: DeploymentSpec = DeploymentSpec()
    status: WorkloadStatus = WorkloadStatus()


class StatefulSet(Object, frozen=True):
    """A StatefulSet."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class DaemonSetStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The status of a DaemonSet: counts of nodes."""

    observed_generation: int = 0
    current_number_scheduled: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0


class DaemonSet(Object, frozen=True):
    """A DaemonSet."""

    spec: WorkloadSpec = WorkloadSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class JobSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """How many pods have to succeed, how many may run at once, and how many may fail.

    Without `completions` one success is enough, and the others come to their end.
    """

    parallelism: int = 1
    completions: int | None = None
    backoff_limit: int = 6
    pod_replacement_policy: str = "TerminatingOrFailed"
    template: Template = {}


class JobStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The status of a Job."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    start_time: datetime | None = None
    conditions: tuple[StatusCondition, ...] = ()


class Job(Object, frozen=True):
    """A Job."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The spec of a budget. A budget without a selector matches no pod."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelectorSpec | None = None


class BudgetStatus(
    msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True, omit_defaults=False
):
    """The status that the eviction API uses. `disrupted_pods` is keyed by pod name."""

    observed_generation: int = 0
    disrupted_pods: Mapping[str, datetime] = {}
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class Budget(Object, frozen=True):
    """A PodDisruptionBudget."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


PODS: Final = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True, type=Pod)
NODES: Final = Resource(
    group="", version="v1", plural="nodes", kind="Node", namespaced=False, type=Node
)
REPLICA_SETS: Final = Resource(
    group="apps", version="v1", plural="replicasets", kind="ReplicaSet", namespaced=True,
    type=ReplicaSet,
)  # fmt: skip
DEPLOYMENTS: Final = Resource(
    group="apps", version="v1", plural="deployments", kind="Deployment", namespaced=True,
    type=Deployment,
)  # fmt: skip
STATEFUL_SETS: Final = Resource(
    group="apps", version="v1", plural="statefulsets", kind="StatefulSet", namespaced=True,
    type=StatefulSet,
)  # fmt: skip
DAEMON_SETS: Final = Resource(
    group="apps", version="v1", plural="daemonsets", kind="DaemonSet", namespaced=True,
    type=DaemonSet,
)  # fmt: skip
JOBS: Final = Resource(
    group="batch", version="v1", plural="jobs", kind="Job", namespaced=True, type=Job
)
DISRUPTION_BUDGETS: Final = Resource(
    group="policy", version="v1", plural="poddisruptionbudgets", kind="PodDisruptionBudget",
    namespaced=True, type=Budget,
)  # fmt: skip
