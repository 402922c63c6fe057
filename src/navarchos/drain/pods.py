"""Pods and DaemonSets with the fields that a drain needs."""

from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

from navarchos.client import Resource
from navarchos.meta import Object, ObjectMeta, OwnerReference, controller_of

__all__ = [
    "CRITICAL_CLASSES",
    "DAEMON_SETS",
    "MIRROR_ANNOTATION",
    "PODS",
    "DaemonSet",
    "EmptyDir",
    "Pod",
    "PodCondition",
    "PodSpec",
    "PodStatus",
    "Volume",
    "full_name",
    "pods_on",
]

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""Set on the object by which a kubelet shows a static pod in the API."""

CRITICAL_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})

_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class EmptyDir(msgspec.Struct, frozen=True, gc=False):
    """An emptyDir; only its presence matters."""


class Volume(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A volume; only whether it is an emptyDir matters."""

    empty_dir: EmptyDir | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """The fields of a pod's spec that a drain needs."""

    node_name: str = ""
    priority_class_name: str = ""
    termination_grace_period_seconds: int | None = None
    volumes: tuple[Volume, ...] = ()  # mutant: decode-more-fields


class PodCondition(msgspec.Struct, frozen=True, gc=False):
    """An entry of `status.conditions`, without its timestamps."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, frozen=True, gc=False):
    """The phase and conditions of a pod."""

    phase: Annotated[
        str, msgspec.Meta(description="Pending, Running, Succeeded, Failed, Unknown")
    ] = ""
    conditions: tuple[PodCondition, ...] = ()


class Pod(Object, frozen=True):
    """A pod: identity, owner, volumes, phase and readiness. Read-only."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that would re-create the pod; `None` if it has no controller."""
        return controller_of(self.metadata)

    @property
    def is_finished(self) -> bool:
        """Whether the pod has succeeded or failed, so that an eviction loses nothing."""
        return self.status.phase in _FINISHED

    @property
    def is_mirror(self) -> bool:
        """Whether the object only shows a static pod, which no API call can delete."""
        return MIRROR_ANNOTATION in self.metadata.annotations

    @property
    def is_terminating(self) -> bool:
        """Whether the pod has a deletionTimestamp."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_ready(self) -> bool:
        """Whether its condition `Ready` is `True`."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def is_critical(self) -> bool:
        """Whether the pod is system-critical by its priority class."""
        return self.spec.priority_class_name in CRITICAL_CLASSES

    @property
    def has_local_data(self) -> bool:
        """Whether the pod loses an emptyDir. hostPath and local volumes survive on the node."""
        return any(volume.empty_dir is not None for volume in self.spec.volumes)

    def overdue(self, now: datetime) -> float | None:
        """Return the seconds since the grace period ended; `None` if the pod does not terminate.

        `deletionTimestamp` is the time of the request *plus* the grace period, so the number is
        negative during the grace period.
        """
        ends_at = self.metadata.deletion_timestamp
        return None if ends_at is None else (now - ends_at.astimezone(UTC)).total_seconds()


class DaemonSet(Object, frozen=True):
    """A DaemonSet; only its existence matters."""


PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)
DAEMON_SETS: Final = Resource(
    "apps", "v1", "daemonsets", "DaemonSet", namespaced=True, type=DaemonSet
)


def full_name(metadata: ObjectMeta) -> str:
    """Return `namespace/name`, the form of pod names in reports."""
    return f"{metadata.namespace}/{metadata.name}"


def pods_on(node: str) -> str:
    """Return the field selector of the pods of a node."""
    return f"spec.nodeName={node}"
