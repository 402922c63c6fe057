"""Pods, as far as emptying a node needs them."""

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
"""On the copy that a kubelet keeps in the API of a static pod."""

CRITICAL_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})

_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class EmptyDir(msgspec.Struct, frozen=True, gc=False):
    """That there is one is all that matters."""


class Volume(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A volume; only whether it is an emptyDir."""

    empty_dir: EmptyDir | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Where a pod runs, how it ends, and what is lost with it."""

    node_name: str = ""
    priority_class_name: str = ""
    termination_grace_period_seconds: int | None = None
    volumes: tuple[Volume, ...] = ()


class PodCondition(msgspec.Struct, frozen=True, gc=False):
    """An entry of `status.conditions`, without its times."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, frozen=True, gc=False):
    """How a pod is."""

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
        """The owner that would bring the pod back, if it has one."""
        return controller_of(self.metadata)

    @property
    def is_finished(self) -> bool:
        """Whether it ran to its end; nothing of it is lost when it goes."""
        return self.status.phase in _FINISHED

    @property
    def is_mirror(self) -> bool:
        """Whether it only shows a static pod, which no API call can remove."""
        return MIRROR_ANNOTATION in self.metadata.annotations

    @property
    def is_terminating(self) -> bool:
        """Whether its deletion has been asked for."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_ready(self) -> bool:
        """Whether its condition `Ready` is `True`."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def is_critical(self) -> bool:
        """Whether the cluster itself needs it, by its priority class."""
        return self.spec.priority_class_name in CRITICAL_CLASSES

    @property
    def has_local_data(self) -> bool:
        """Whether an emptyDir goes with it. hostPath and local volumes stay behind."""
        return any(volume.empty_dir is not None for volume in self.spec.volumes)

    def overdue(self, now: datetime) -> float | None:
        """Return the seconds since its grace period ended; `None` if it does not terminate.

        `deletionTimestamp` is the time of the request *plus* the grace period, so
        the number is negative while the grace period lasts.
        """
        asked = self.metadata.deletion_timestamp
        return None if asked is None else (now - asked.astimezone(UTC)).total_seconds()


class DaemonSet(Object, frozen=True):
    """A DaemonSet: that it exists is all that matters."""


PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)
DAEMON_SETS: Final = Resource(
    "apps", "v1", "daemonsets", "DaemonSet", namespaced=True, type=DaemonSet
)


def full_name(metadata: ObjectMeta) -> str:
    """Return `namespace/name`, as pods are written in reports."""
    return f"{metadata.namespace}/{metadata.name}"


def pods_on(node: str) -> str:
    """Return the field selector for the pods of a node."""
    return f"spec.nodeName={node}"
