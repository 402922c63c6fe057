"""The kinds that every API server has, as far as this one serves them."""

from collections.abc import Iterable
from typing import Final

from navarchos.testing.apiserver.builtin import (
    events,
    leases,
    nodes,
    pods,
    policy,
    rbac,
    services,
    workloads,
)
from navarchos.testing.apiserver.builtin.definitions import DEFINITION
from navarchos.testing.apiserver.builtin.storage import CLAIM, CLASS, VOLUME
from navarchos.testing.apiserver.kinds import ALL_VERBS, Kind, Strategy, View
from navarchos.testing.apiserver.store import BucketId
from navarchos.testing.apiserver.types import TYPES

__all__ = ["builtin_kinds"]

_STATUS: Final = ("status",)
_SCALED: Final = ("status", "scale")
_PLAIN: Final = Strategy()


_RETURNED: Final = Strategy(returns_deleted=True)
_PRIORITY_CLASS: Final = Strategy(
    generation=True,
    default=lambda obj: obj.setdefault("preemptionPolicy", "PreemptLowerPriority"),
)


def _kind(
    group: str,
    plural: str,
    type_name: str,
    *,
    version: str = "v1",
    namespaced: bool = True,
    short: Iterable[str] = (),
    categories: Iterable[str] = (),
    sub: Iterable[str] = (),
    strategy: Strategy = _PLAIN,
    verbs: tuple[str, ...] = ALL_VERBS,
    bucket: BucketId | None = None,
    stored_version: str = "",
    view: View | None = None,
) -> Kind:
    name = type_name.rpartition(".")[2]
    return Kind(
        group=group,
        version=version,
        kind=name,
        plural=plural,
        singular=name.lower(),
        namespaced=namespaced,
        schema=TYPES.schema(type_name),
        bucket=bucket or BucketId(plural, group),
        short_names=tuple(short),
        categories=tuple(categories),
        subresources=frozenset(sub),
        verbs=verbs,
        strategy=strategy,
        type_name=type_name,
        list_kind=f"{name}List",
        stored_version=stored_version,
        view=view,
        empty=TYPES.empty(type_name),
    )


def builtin_kinds() -> list[Kind]:
    """Return the built-in kinds, in the order of discovery."""
    return [*_core(), *_apps(), *_batch(), *_access(), *_others()]


def _core() -> list[Kind]:
    everything = ("all",)
    return [
        _kind("", "configmaps", "core.ConfigMap", short=["cm"], strategy=services.CONFIG_MAP),
        _kind("", "events", "core.Event", short=["ev"], strategy=events.EVENT),
        _kind(
            "", "namespaces", "core.Namespace", namespaced=False, short=["ns"],
            sub=["status", "finalize"], strategy=services.NAMESPACE,
            verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        ),
        _kind(
            "", "nodes", "core.Node", namespaced=False, short=["no"], sub=_STATUS,
            strategy=nodes.NODE,
        ),
        _kind(
            "", "persistentvolumeclaims", "core.PersistentVolumeClaim", short=["pvc"],
            sub=_STATUS, strategy=CLAIM,
        ),
        _kind(
            "", "persistentvolumes", "core.PersistentVolume", namespaced=False, short=["pv"],
            sub=_STATUS, strategy=VOLUME,
        ),
        _kind(
            "", "pods", "core.Pod", short=["po"], categories=everything,
            sub=["status", "eviction", "binding", "ephemeralcontainers", "resize"],
            strategy=pods.POD,
        ),
        _kind("", "secrets", "core.Secret", strategy=services.SECRET),
        _kind(
            "", "serviceaccounts", "core.ServiceAccount", short=["sa"], sub=["token"],
            strategy=_RETURNED,
        ),
        _kind(
            "", "services", "core.Service", short=["svc"], categories=everything, sub=_STATUS,
            strategy=services.SERVICE,
        ),
    ]  # fmt: skip


def _apps() -> list[Kind]:
    everything = ("all",)
    return [
        _kind("apps", "controllerrevisions", "apps.ControllerRevision"),
        _kind(
            "apps", "daemonsets", "apps.DaemonSet", short=["ds"], categories=everything,
            sub=_STATUS, strategy=workloads.DAEMON_SET,
        ),
        _kind(
            "apps", "deployments", "apps.Deployment", short=["deploy"], categories=everything,
            sub=_SCALED, strategy=workloads.DEPLOYMENT,
        ),
        _kind(
            "apps", "replicasets", "apps.ReplicaSet", short=["rs"], categories=everything,
            sub=_SCALED, strategy=workloads.REPLICA_SET,
        ),
        _kind(
            "apps", "statefulsets", "apps.StatefulSet", short=["sts"], categories=everything,
            sub=_SCALED, strategy=workloads.STATEFUL_SET,
        ),
    ]  # fmt: skip


def _batch() -> list[Kind]:
    return [
        _kind(
            "batch", "cronjobs", "batch.CronJob", short=["cj"], categories=["all"], sub=_STATUS,
            strategy=workloads.CRON_JOB,
        ),
        _kind(
            "batch", "jobs", "batch.Job", categories=["all"], sub=_STATUS,
            strategy=workloads.JOB,
        ),
    ]  # fmt: skip


def _access() -> list[Kind]:
    group = "rbac.authorization.k8s.io"
    create_only = ("create",)
    kinds = [
        _kind(
            group,
            "clusterrolebindings",
            "policy.ClusterRoleBinding",
            namespaced=False,
            strategy=rbac.CLUSTER_BINDING,
        ),
        _kind(
            group,
            "clusterroles",
            "policy.ClusterRole",
            namespaced=False,
            strategy=rbac.CLUSTER_ROLE,
        ),
        _kind(group, "rolebindings", "policy.RoleBinding", strategy=rbac.ROLE_BINDING),
        _kind(group, "roles", "policy.Role", strategy=rbac.ROLE),
    ]
    for group, plural, kind in (
        ("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview"),
        ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
        ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        ("authentication.k8s.io", "tokenreviews", "TokenReview"),
        ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    ):
        local = kind.startswith("Local")
        kinds.append(_kind(group, plural, f"reviews.{kind}", namespaced=local, verbs=create_only))
    return kinds


def _others() -> list[Kind]:
    return [
        _kind(
            "policy", "poddisruptionbudgets", "policy.PodDisruptionBudget", short=["pdb"],
            sub=_STATUS, strategy=policy.BUDGET,
        ),
        _kind("coordination.k8s.io", "leases", "policy.Lease", strategy=leases.LEASE),
        _kind(
            "events.k8s.io", "events", "policy.Event", short=["ev"], strategy=events.NEW_EVENT,
            bucket=BucketId("events", ""), stored_version="v1", view=events.EVENTS_VIEW,
        ),
        _kind(
            "storage.k8s.io", "storageclasses", "policy.StorageClass", namespaced=False,
            short=["sc"], strategy=CLASS,
        ),
        _kind(
            "storage.k8s.io", "volumeattachments", "policy.VolumeAttachment", namespaced=False,
            sub=_STATUS, strategy=_RETURNED,
        ),
        _kind(
            "scheduling.k8s.io", "priorityclasses", "policy.PriorityClass", namespaced=False,
            short=["pc"], strategy=_PRIORITY_CLASS,
        ),
        _kind(
            "apiextensions.k8s.io", "customresourcedefinitions",
            "extensions.CustomResourceDefinition", namespaced=False, short=["crd", "crds"],
            categories=["api-extensions"], sub=_STATUS, strategy=DEFINITION,
        ),
    ]  # fmt: skip
