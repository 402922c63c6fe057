"""Pods in phase Pending: the only pods of the whole cluster that are cached."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from navarchos.client import Resource
from navarchos.informers.source import informer_rbac
from navarchos.meta import OwnerReference, ResourceVersion
from navarchos.operator.replacements.world import PendingPod

__all__ = ["PENDING_PODS", "PENDING_SELECTOR", "RBAC", "Pod", "PodMeta", "pending_pods"]


class PodMeta(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """What the gate needs of a pod: identity, age, controller."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: ResourceVersion = ResourceVersion("")
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class Pod(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """A pod, as slim as can be."""

    metadata: PodMeta = PodMeta()


PENDING_PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)

PENDING_SELECTOR: Final = "status.phase=Pending"

RBAC: Final = informer_rbac(PENDING_PODS)
"""What their cache needs of the server. RBAC knows no selectors."""


def pending_pods(pods: Iterable[Pod]) -> tuple[PendingPod, ...]:
    """Return the facts about pods that wait to run; one that is leaving waits no more."""
    return tuple(
        PendingPod(
            key=f"{pod.metadata.namespace}/{pod.metadata.name}",
            controller_uid=next(
                (owner.uid for owner in pod.metadata.owner_references if owner.controller), ""
            ),
            created_at=pod.metadata.creation_timestamp,
        )
        for pod in pods
        if pod.metadata.deletion_timestamp is None and pod.metadata.creation_timestamp is not None
    )
