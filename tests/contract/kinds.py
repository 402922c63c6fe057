"""The kinds with which all verbs are tested."""

import copy
from dataclasses import dataclass, field
from typing import Any

from tests.contract.objects import pod

__all__ = ["KINDS", "Case"]

SELECTOR = {"matchLabels": {"app": "web"}}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
}
ENDING = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}


@dataclass(frozen=True)
class Case:
    """A kind, and an object of it.

    Attributes:
        api_version: The `apiVersion`.
        kind: The kind.
        plural: The plural.
        body: The fields of the object other than metadata.
        namespaced: Whether the kind is namespaced.
        last_event: The type of the first event of a deletion.
        name: The name of the object.
    """

    api_version: str
    kind: str
    plural: str
    body: dict[str, Any] = field(default_factory=dict)
    namespaced: bool = True
    last_event: str = "DELETED"
    name: str = "contract-case"

    def path(self, namespace: str) -> str:
        """Return the path of the collection."""
        root = "apis" if "/" in self.api_version else "api"
        scope = f"namespaces/{namespace}/" if self.namespaced else ""
        return f"/{root}/{self.api_version}/{scope}{self.plural}"

    def manifest(self) -> dict[str, Any]:
        """Return a new object."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": self.name},
            **copy.deepcopy(self.body),
        }


def workload(kind: str, plural: str, **spec: object) -> Case:
    body = {"spec": {"selector": SELECTOR, "template": TEMPLATE, **spec}}
    return Case("apps/v1", kind, plural, body)


RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
RBAC = "rbac.authorization.k8s.io"
SUBJECT = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}

KINDS = [
    Case("v1", "ConfigMap", "configmaps", {"data": {"a": "1"}}),
    Case("v1", "Secret", "secrets", {"stringData": {"a": "1"}}),
    Case("v1", "ServiceAccount", "serviceaccounts"),
    Case("v1", "Service", "services", {"spec": {"clusterIP": "None", "selector": {"a": "b"}}}),
    Case("v1", "Pod", "pods", {"spec": pod("")["spec"]}, last_event="MODIFIED"),
    Case("v1", "Node", "nodes", {"spec": {"unschedulable": True}}, namespaced=False),
    workload("Deployment", "deployments", replicas=2),
    workload("ReplicaSet", "replicasets"),
    workload("StatefulSet", "statefulsets", serviceName="web"),
    workload("DaemonSet", "daemonsets"),
    Case("batch/v1", "Job", "jobs", {"spec": {"template": ENDING}}, last_event="MODIFIED"),
    Case(
        "policy/v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        {"spec": {"selector": SELECTOR, "maxUnavailable": 1}},
    ),
    Case("coordination.k8s.io/v1", "Lease", "leases", {"spec": {"holderIdentity": "me"}}),
    Case(f"{RBAC}/v1", "Role", "roles", {"rules": [RULE]}),
    Case(
        f"{RBAC}/v1",
        "RoleBinding",
        "rolebindings",
        {
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "any"},
            "subjects": [SUBJECT],
        },
    ),
    Case(
        "storage.k8s.io/v1",
        "StorageClass",
        "storageclasses",
        {"provisioner": "example.com/none"},
        namespaced=False,
    ),
    Case(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        "priorityclasses",
        {"value": 5},
        namespaced=False,
    ),
]
