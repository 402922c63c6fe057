"""The workloads of a simulated cluster: a deterministic mix that fills it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = [
    "AGENT",
    "NAMESPACES",
    "WorkloadPlan",
    "budget_manifest",
    "plan_workloads",
    "template_of",
    "workload_manifest",
]

JsonObject = dict[str, Any]

NAMESPACES: Final = ("shop", "search", "billing", "media")
_APPS: Final = ("web", "api", "cart", "index", "mail", "report", "feed", "auth")

WorkloadKind = Literal["Deployment", "StatefulSet", "DaemonSet", "Job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """One workload.

    Attributes:
        kind: The kind of the controller.
        namespace: The namespace.
        name: The name, also the value of the pods' label `app`.
        replicas: The number of pods.
        budget: The rule of the disruption budget; `None` without a budget.
        empty_dir: Whether the pods have an emptyDir volume.
        is_packed: Whether two of the pods start on one node, so that a drain of that node
            is limited by the budget.
        critical: Whether the workload is part of the system and tolerates every taint.
    """

    kind: WorkloadKind
    namespace: str
    name: str
    replicas: int
    budget: Mapping[str, int | str] | None = None
    empty_dir: bool = False
    is_packed: bool = False
    critical: bool = False

    @property
    def labels(self) -> dict[str, str]:
        """The labels that select the pods."""
        return {"app": self.name}


AGENT: Final = WorkloadPlan(
    kind="DaemonSet",
    namespace="kube-system",
    name="node-agent",
    replicas=0,
    empty_dir=True,
    critical=True,
)
"""The DaemonSet that runs on every node."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    replicas: int
    budget: Mapping[str, int | str] | None
    empty_dir: bool = False
    is_packed: bool = False


# Only small Deployments have strict budgets: if several of their pods are on nodes that are
# drained at the same time, each refused eviction costs a retry of some seconds.
_RECIPES: Final = (
    _Recipe(6, {"maxUnavailable": "34%"}),
    _Recipe(3, {"maxUnavailable": 1}, is_packed=True),
    _Recipe(10, None, empty_dir=True),
    _Recipe(4, {"minAvailable": 3}),
    _Recipe(8, {"minAvailable": "60%"}, empty_dir=True),
    _Recipe(12, {"maxUnavailable": "25%"}),
    _Recipe(2, None),
)


def plan_workloads(total: int) -> list[WorkloadPlan]:
    """Return workloads with `total` pods, not counting pods of DaemonSets.

    The first workload is a StatefulSet with a budget and the second one a Job; the others
    are Deployments of several sizes, with and without budgets. Every budget allows at
    least one disruption.

    Args:
        total: The number of pods, at least 1.
    """
    ledger = max(1, min(5, total // 8, total) if total >= 16 else min(2, total))
    plans = [
        WorkloadPlan(
            kind="StatefulSet",
            namespace="billing",
            name="ledger",
            replicas=ledger,
            budget={"maxUnavailable": 1},
        )
    ]
    left = total - ledger
    if left >= 2:
        batch = min(4, max(1, left // 12))
        plans.append(WorkloadPlan(kind="Job", namespace="media", name="transcode", replicas=batch))
        left -= batch
    return [*plans, *_deployments(left)]


def _deployments(total: int) -> Iterator[WorkloadPlan]:
    number = 0
    while total > 0:
        recipe = _RECIPES[number % len(_RECIPES)]
        turn, app = divmod(number, len(_APPS))
        replicas = min(recipe.replicas, total)
        yield WorkloadPlan(
            kind="Deployment",
            namespace=NAMESPACES[number % len(NAMESPACES)],
            name=_APPS[app] if not turn else f"{_APPS[app]}-{turn + 1}",
            replicas=replicas,
            # The budget of a truncated last Deployment might not allow any disruption.
            budget=recipe.budget if replicas == recipe.replicas else None,
            empty_dir=recipe.empty_dir,
            # One packed workload is enough: each refused eviction costs a drain some seconds.
            is_packed=recipe.is_packed and number < len(_RECIPES),
        )
        total -= replicas
        number += 1


def template_of(plan: WorkloadPlan) -> JsonObject:
    """Return the pod template of a workload."""
    container: JsonObject = {
        "name": plan.name,
        "image": f"registry.example.com/{plan.namespace}/{plan.name}:1.0",
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }
    spec: JsonObject = {"containers": [container], "terminationGracePeriodSeconds": 30}
    if plan.empty_dir:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
        container["volumeMounts"] = [{"name": "scratch", "mountPath": "/scratch"}]
    if plan.critical:
        spec |= {
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "system-node-critical",
        }
    if plan.kind == "Job":
        spec["restartPolicy"] = "Never"
    return {"metadata": {"labels": plan.labels}, "spec": spec}


def workload_manifest(plan: WorkloadPlan, metadata: JsonObject, status: JsonObject) -> JsonObject:
    """Return the workload object itself.

    Args:
        plan: The plan of the workload.
        metadata: Metadata in addition to name, namespace and labels.
        status: The initial status.
    """
    spec: JsonObject = {"template": template_of(plan), "selector": {"matchLabels": plan.labels}}
    if plan.kind in {"Deployment", "StatefulSet"}:
        spec["replicas"] = plan.replicas
    if plan.kind == "StatefulSet":
        spec["serviceName"] = plan.name
    if plan.kind == "Job":
        spec = {
            "template": template_of(plan),
            "parallelism": plan.replicas,
            "completions": plan.replicas,
            "backoffLimit": 100,
        }
    return {
        "apiVersion": "batch/v1" if plan.kind == "Job" else "apps/v1",
        "kind": plan.kind,
        "metadata": {
            "name": plan.name,
            "namespace": plan.namespace,
            "labels": plan.labels,
            **metadata,
        },
        "spec": spec,
        "status": status,
    }


def budget_manifest(plan: WorkloadPlan, metadata: JsonObject, status: JsonObject) -> JsonObject:
    """Return the disruption budget of a workload that has one."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": plan.name, "namespace": plan.namespace, **metadata},
        "spec": {**(plan.budget or {}), "selector": {"matchLabels": plan.labels}},
        "status": status,
    }
