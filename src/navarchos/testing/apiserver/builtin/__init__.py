"""The built-in kinds.

A new built-in kind takes two steps:

1. its fields, in `types/core.py` or under its API group in `types/groups.py`; `types/__init__.py`
   explains the notation;
2. a row in `builtin_kinds` below. The table of types is found by the first part of the API group,
   so a Lease of coordination.k8s.io is `coordination.Lease`.

Then only as far as the kind needs it:

3. defaults, validation and immutable fields: a `KindStrategy` in `builtin/core.py`,
   `builtin/groups.py` or the module of its group;
4. columns of `kubectl get` other than name and age: `tables/cluster.py` or `tables/workloads.py`;
5. field selectors other than name and namespace: `_BUILT_IN` in `selectors.py`;
6. the default roles `view`, `edit` and `admin`: `access/roles.py`;
7. protobuf bodies, if kubectl writes the kind with a typed client: `_TABLE` and `_KINDS` in
   `protobuf.py`.

The contract suite (`tests/contract/kinds.py`) compares the kind with a real server.
"""

from collections.abc import Iterable
from typing import Final

from navarchos.testing.apiserver.builtin import core, groups, pods, rbac, workloads
from navarchos.testing.apiserver.builtin.definitions import DEFINITION
from navarchos.testing.apiserver.kinds import ALL_VERBS, Conversion, Kind, KindStrategy
from navarchos.testing.apiserver.store import BucketId
from navarchos.testing.apiserver.types import TYPES

__all__ = ["builtin_kinds"]

_STATUS: Final = ("status",)
_SCALED: Final = ("status", "scale")
_PLAIN: Final = KindStrategy()


_RETURNED: Final = KindStrategy(returns_deleted=True)


def _kind(
    group: str,
    plural: str,
    kind: str,
    *,
    version: str = "v1",
    namespaced: bool = True,
    short: Iterable[str] = (),
    categories: Iterable[str] = (),
    sub: Iterable[str] = (),
    strategy: KindStrategy = _PLAIN,
    verbs: tuple[str, ...] = ALL_VERBS,
    bucket: BucketId | None = None,
    stored_version: str = "",
    conversion: Conversion | None = None,
) -> Kind:
    type_name = f"{group.partition('.')[0] or 'core'}.{kind}"
    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
        schema=TYPES.schema(type_name),
        bucket=bucket or BucketId(plural, group),
        short_names=tuple(short),
        categories=tuple(categories),
        subresources=frozenset(sub),
        verbs=verbs,
        strategy=strategy,
        type_name=type_name,
        list_kind=f"{kind}List",
        stored_version=stored_version,
        conversion=conversion,
        empty=TYPES.empty(type_name),
    )


def builtin_kinds() -> list[Kind]:
    """Return the built-in kinds in the order of discovery."""
    return [*_core(), *_apps(), *_batch(), *_access(), *_others()]


def _core() -> list[Kind]:
    everything = ("all",)
    return [
        _kind("", "configmaps", "ConfigMap", short=["cm"], strategy=core.CONFIG_MAP),
        _kind("", "events", "Event", short=["ev"], strategy=groups.EVENT),
        _kind(
            "", "namespaces", "Namespace", namespaced=False, short=["ns"],
            sub=["status", "finalize"], strategy=core.NAMESPACE,
            verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        ),
        _kind(
            "", "nodes", "Node", namespaced=False, short=["no"], sub=_STATUS,
            strategy=core.NODE,
        ),
        _kind(
            "", "persistentvolumeclaims", "PersistentVolumeClaim", short=["pvc"],
            sub=_STATUS, strategy=core.CLAIM,
        ),
        _kind(
            "", "persistentvolumes", "PersistentVolume", namespaced=False, short=["pv"],
            sub=_STATUS, strategy=core.VOLUME,
        ),
        _kind(
            "", "pods", "Pod", short=["po"], categories=everything,
            sub=["status", "eviction", "binding", "ephemeralcontainers", "resize"],
            strategy=pods.POD,
        ),
        _kind("", "secrets", "Secret", strategy=core.SECRET),
        _kind(
            "", "serviceaccounts", "ServiceAccount", short=["sa"], sub=["token"],
            strategy=_RETURNED,
        ),
        _kind(
            "", "services", "Service", short=["svc"], categories=everything, sub=_STATUS,
            strategy=core.SERVICE,
        ),
    ]  # fmt: skip


def _apps() -> list[Kind]:
    everything = ("all",)
    return [
        _kind("apps", "controllerrevisions", "ControllerRevision"),
        _kind(
            "apps", "daemonsets", "DaemonSet", short=["ds"], categories=everything,
            sub=_STATUS, strategy=workloads.DAEMON_SET,
        ),
        _kind(
            "apps", "deployments", "Deployment", short=["deploy"], categories=everything,
            sub=_SCALED, strategy=workloads.DEPLOYMENT,
        ),
        _kind(
            "apps", "replicasets", "ReplicaSet", short=["rs"], categories=everything,
            sub=_SCALED, strategy=workloads.REPLICA_SET,
        ),
        _kind(
            "apps", "statefulsets", "StatefulSet", short=["sts"], categories=everything,
            sub=_SCALED, strategy=workloads.STATEFUL_SET,
        ),
    ]  # fmt: skip


def _batch() -> list[Kind]:
    return [
        _kind(
            "batch", "cronjobs", "CronJob", short=["cj"], categories=["all"], sub=_STATUS,
            strategy=workloads.CRON_JOB,
        ),
        _kind(
            "batch", "jobs", "Job", categories=["all"], sub=_STATUS,
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
            "ClusterRoleBinding",
            namespaced=False,
            strategy=rbac.CLUSTER_BINDING,
        ),
        _kind(
            group,
            "clusterroles",
            "ClusterRole",
            namespaced=False,
            strategy=rbac.CLUSTER_ROLE,
        ),
        _kind(group, "rolebindings", "RoleBinding", strategy=rbac.ROLE_BINDING),
        _kind(group, "roles", "Role", strategy=rbac.ROLE),
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
        kinds.append(_kind(group, plural, kind, namespaced=local, verbs=create_only))
    return kinds


def _others() -> list[Kind]:
    return [
        _kind(
            "policy", "poddisruptionbudgets", "PodDisruptionBudget", short=["pdb"],
            sub=_STATUS, strategy=groups.BUDGET,
        ),
        _kind("coordination.k8s.io", "leases", "Lease", strategy=groups.LEASE),
        _kind(
            "events.k8s.io", "events", "Event", short=["ev"], strategy=groups.EVENTS_V1_EVENT,
            bucket=BucketId("events", ""), stored_version="v1", conversion=groups.EVENTS_CONVERSION,
        ),
        _kind(
            "storage.k8s.io", "storageclasses", "StorageClass", namespaced=False,
            short=["sc"], strategy=groups.STORAGE_CLASS,
        ),
        _kind(
            "storage.k8s.io", "volumeattachments", "VolumeAttachment", namespaced=False,
            sub=_STATUS, strategy=_RETURNED,
        ),
        _kind(
            "scheduling.k8s.io", "priorityclasses", "PriorityClass", namespaced=False,
            short=["pc"], strategy=groups.PRIORITY_CLASS,
        ),
        _kind(
            "apiextensions.k8s.io", "customresourcedefinitions",
            "CustomResourceDefinition", namespaced=False, short=["crd", "crds"],
            categories=["api-extensions"], sub=_STATUS, strategy=DEFINITION,
        ),
    ]  # fmt: skip
