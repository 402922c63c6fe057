"""The pods of a simulated cluster: created from templates, running, finished.

These are pure functions that return JSON. The controllers and the initial population use
the same functions, so their pods look the same.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from navarchos.meta import format_time
from navarchos.placement import node_rules
from navarchos.placement.kinds import Container
from navarchos.testing.cluster.kinds import Pod, Template

__all__ = [
    "DAEMON_TOLERATIONS",
    "Owner",
    "finished_status",
    "from_template",
    "mirror_name",
    "mirror_pod",
    "readiness_condition",
    "running_status",
    "running_status_of",
    "unschedulable_status",
]

JsonObject = dict[str, Any]

_STATIC_APP: Final = "kube-proxy"

DAEMON_TOLERATIONS: Final[tuple[Mapping[str, str], ...]] = tuple(
    {"key": each.key, "operator": each.operator, "effect": each.effect}
    for each in node_rules.DAEMON_TOLERATIONS
)
"""The tolerations that the DaemonSet controller adds to each pod, as a manifest has them."""


class Owner(NamedTuple):
    """The controller of a pod."""

    api_version: str
    kind: str
    name: str
    uid: str

    def reference(self) -> JsonObject:
        """Return the entry for `metadata.ownerReferences`."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def from_template(
    template: Template,
    owner: Owner,
    namespace: str,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, object] | None = None,
) -> JsonObject:
    """Return the pod that a controller creates from its template.

    Args:
        template: The owner's `spec.template`.
        owner: The controller, which becomes the only owner.
        namespace: The pod's namespace.
        name: The pod's name; if empty, the server generates one from the owner's name.
        labels: Labels in addition to the template's.
        spec: Fields that replace fields of the template.
    """
    shared = template.get("metadata")
    metadata: JsonObject = dict(shared) if isinstance(shared, Mapping) else {}
    metadata["labels"] = {**metadata.get("labels", {}), **(labels or {})}
    metadata["namespace"] = namespace
    metadata["ownerReferences"] = [owner.reference()]
    if name:
        metadata["name"] = name
    else:
        metadata["generateName"] = f"{owner.name}-"
    base = template.get("spec")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**(base if isinstance(base, Mapping) else {}), **(spec or {})},
    }


def mirror_name(node: str) -> str:
    """Return the name of a node's mirror pod, in namespace `kube-system`."""
    return f"{_STATIC_APP}-{node}"


def mirror_pod(node: str, node_uid: str) -> JsonObject:
    """Return the mirror pod by which the kubelet of `node` shows a static pod.

    Deleting the mirror pod does not stop the static pod; only the kubelet can.
    """
    owner = Owner("v1", "Node", node, node_uid)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": mirror_name(node),
            "namespace": "kube-system",
            "labels": {"k8s-app": _STATIC_APP, "tier": "node"},
            "annotations": {
                "kubernetes.io/config.hash": node_uid.replace("-", ""),
                "kubernetes.io/config.mirror": node_uid.replace("-", ""),
                "kubernetes.io/config.source": "file",
            },
            # Upstream's mirror pods do not block the deletion of their node.
            "ownerReferences": [{**owner.reference(), "blockOwnerDeletion": False}],
        },
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": _STATIC_APP,
                    "image": f"registry.k8s.io/{_STATIC_APP}:v1.34.0",
                    "resources": {"requests": {"cpu": "100m"}},
                }
            ],
        },
    }


def running_status(pod: Pod, *, host_ip: str, pod_ip: str, at: datetime) -> JsonObject:
    """Return the status of a pod whose containers have all started and are ready."""
    containers = [(c.name, c.image) for c in pod.spec.containers]
    return running_status_of(containers, host_ip=host_ip, pod_ip=pod_ip, at=at)


def running_status_of(
    containers: Sequence[tuple[str, str]], *, host_ip: str, pod_ip: str, at: datetime
) -> JsonObject:
    """Return the status of running containers, given as name and image."""
    when = format_time(at)
    true = {"status": "True", "lastTransitionTime": when}
    return {
        "phase": "Running",
        "startTime": when,
        "hostIP": host_ip,
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "conditions": [
            {"type": kind, **true}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "name": name,
                "image": image,
                "imageID": image,
                "containerID": f"simulated://{name}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": when}},
            }
            for name, image in containers
        ],
    }


def readiness_condition(pod: Pod, *, at: datetime) -> JsonObject:
    """Return the condition `Ready` of a pod whose containers are ready.

    As k8s.io/kubernetes, pkg/kubelet/status/generate.go.
    """
    ready: JsonObject = {"type": "Ready", "lastTransitionTime": format_time(at)}
    closed = pod.closed_gates
    if not closed:
        return {**ready, "status": "True", "reason": None, "message": None}
    message = ", ".join(closed)
    return {**ready, "status": "False", "reason": "ReadinessGatesNotReady", "message": message}


def finished_status(containers: Sequence[Container], *, at: datetime) -> JsonObject:
    """Return the status change of a pod whose containers have all succeeded."""
    when = format_time(at)
    completed = {"exitCode": 0, "reason": "Completed", "finishedAt": when}
    not_ready = {"status": "False", "reason": "PodCompleted", "lastTransitionTime": when}
    return {
        "phase": "Succeeded",
        "conditions": [
            {"type": "Initialized", "status": "True", "lastTransitionTime": when},
            {"type": "Ready", **not_ready},
            {"type": "ContainersReady", **not_ready},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": when},
        ],
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": container.image,
                "containerID": f"simulated://{container.name}",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": {"terminated": completed},
            }
            for container in containers
        ],
    }


def unschedulable_status(message: str, *, at: datetime) -> JsonObject:
    """Return the status change with the reason why a pod has no node yet."""
    return {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
                "lastTransitionTime": format_time(at),
            }
        ]
    }
