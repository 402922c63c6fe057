"""The operator's manifests: its permissions, its Deployment and the files that contain them.

The permissions are generated from the RBAC declarations beside the code that needs them. The files
have the names that were published in 2019, one for each kind.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from navarchos import events
from navarchos.client.rbac import PolicyRule
from navarchos.crd import Manifest, to_yaml
from navarchos.leaderelection import lease_rbac
from navarchos.operator.deployment import settings
from navarchos.operator.systems import ROLLOUTS, System, rbac_of
from navarchos.runtime import ManagerOptions, token_reviewer
from navarchos.runtime.rbac import Subject, role, role_binding

__all__ = [
    "FILE_NAMES",
    "bindings",
    "deployment",
    "disruption_budget",
    "gates_access",
    "manager_rbac",
    "manifests",
    "metrics_access",
    "roles",
    "service_account",
    "to_files",
]

FILE_NAMES: Final[Mapping[str, str]] = {
    "ServiceAccount": "serviceaccount.yaml",
    "ClusterRole": "clusterrole.yaml",
    "ClusterRoleBinding": "crb.yaml",
    "Role": "role.yaml",
    "RoleBinding": "rb.yaml",
    "PodDisruptionBudget": "poddisruptionbudget.yaml",
    "Deployment": "deployment.yaml",
}
"""The file of each kind; a kind of another system has a file with its name."""

_DEFAULT: Final = (ROLLOUTS,)


def manifests(systems: Sequence[System] = _DEFAULT) -> list[Manifest]:
    """Return all objects for these systems, each after the objects that it refers to.

    They may be created in any order: a role can be bound before it exists, and the Deployment
    creates its pods once their ServiceAccount exists. With the objects for fewer systems, the
    same objects lose the permissions of the others.
    """
    found = [service_account(), *roles(systems), *bindings(systems), disruption_budget()]
    found += [manifest for system in systems for manifest in system.manifests()]
    order = {kind: number for number, kind in enumerate(FILE_NAMES)}
    found.sort(key=lambda manifest: order.get(str(manifest["kind"]), len(order)))
    return [*found, deployment(systems)]


def to_files(found: Iterable[Manifest], *, header: str = "") -> dict[str, str]:
    """Return the text of each file by its name.

    Args:
        found: The objects. Objects of one kind share a file.
        header: Lines of a comment at the top, without the number sign.
    """
    by_file: dict[str, list[Manifest]] = {}
    for manifest in found:
        kind = str(manifest["kind"])
        by_file.setdefault(FILE_NAMES.get(kind, f"{kind.lower()}.yaml"), []).append(manifest)
    return {name: to_yaml(each, header=header) for name, each in by_file.items()}


_SUBJECT = Subject(settings.NAME, settings.NAMESPACE)


def manager_rbac(systems: Sequence[System] = _DEFAULT) -> dict[str, Sequence[PolicyRule]]:
    """Return all permissions of the manager by namespace; the key "" means all namespaces.

    The Lease is in one namespace, and events are in another. With these permissions in all
    namespaces the manager could take the leases of other leaders and write events for others.
    """
    own = {
        settings.EVENTS_NAMESPACE: events.RBAC,
        settings.NAMESPACE: lease_rbac(settings.LEASE),
    }
    found = rbac_of(systems)
    return {name: (*own.get(name, ()), *found.get(name, ())) for name in {"": (), **own, **found}}


def service_account() -> Manifest:
    """Return the identity of the manager."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": settings.NAME,
            "namespace": settings.NAMESPACE,
            "labels": settings.LABELS,
        },
    }


def roles(systems: Sequence[System] = _DEFAULT) -> list[Manifest]:
    """Return the ClusterRole, then the Roles by namespace."""
    return [
        role(settings.NAME, rules, namespace=namespace, labels=settings.LABELS)
        for namespace, rules in manager_rbac(systems).items()
    ]


def bindings(systems: Sequence[System] = _DEFAULT) -> list[Manifest]:
    """Return the bindings of the manager's roles, in the order of `roles`."""
    return [
        role_binding(settings.NAME, _SUBJECT, namespace=namespace, labels=settings.LABELS)
        for namespace in manager_rbac(systems)
    ]


def gates_access() -> list[Manifest]:
    """Return the role for objects of gates, which other roles extend, and its binding.

    The manager must not read arbitrary kinds. Kubernetes adds the rules of every ClusterRole with
    the label `AGGREGATE_TO_GATES` to this role.
    """
    aggregated = role(settings.GATES, (), labels=settings.LABELS)
    selector = {"matchLabels": {settings.AGGREGATE_TO_GATES: "true"}}
    aggregated["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    return [aggregated, role_binding(settings.GATES, _SUBJECT, labels=settings.LABELS)]


def metrics_access() -> list[Manifest]:
    """Return the roles for `--metrics-secure`: for the manager, and for clients that read metrics.

    They are not part of `roles`, because the shipped manager serves its metrics without
    authentication and would not use these permissions. No client has the second role until it
    is bound.
    """
    reader = role(settings.METRICS_READER, (), labels=settings.LABELS)
    reader["rules"] = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    return [
        role(settings.METRICS_ACCESS, token_reviewer.RBAC, labels=settings.LABELS),
        reader,
        role_binding(settings.METRICS_ACCESS, _SUBJECT, labels=settings.LABELS),
    ]


_REPLICAS: Final = 2
_USER: Final = 65532
"""The user `nonroot` of distroless images. It has no access to the files of a node."""

_ARGUMENTS: Final = (
    "--leader-election=true",
    f"--leader-election-id={settings.LEASE}",
    f"--leader-election-namespace={settings.NAMESPACE}",
    "--sync-period=5m",
    f"--metrics-addr=:{settings.METRICS_PORT}",
    f"--health-addr=:{settings.HEALTH_PORT}",
    "--v=0",
    "--logtostderr=true",
)

_RESOURCES: Final = {
    "requests": {"cpu": "50m", "memory": "100Mi"},
    # No CPU limit: a throttled process renews its lease late and answers its probes late. The
    # memory limit is twice the expected use, so that a single long list response stays below
    # it, and only a memory leak exceeds it.
    "limits": {"memory": "200Mi"},
}

_SECONDS_AFTER_GRACE: Final = 15
"""Seconds for the last events and for stopping the servers; both have their own timeouts."""

_TOLERATIONS: Final = (
    # Control-plane nodes are a good place, because workers are replaced more often.
    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "CriticalAddonsOnly", "operator": "Exists"},
)


def deployment(systems: Sequence[System] = _DEFAULT) -> Manifest:
    """Return the Deployment: one pod leads, the other is a follower with filled caches."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": settings.NAME,
            "namespace": settings.NAMESPACE,
            "labels": settings.LABELS,
        },
        "spec": {
            "replicas": _REPLICAS,
            "selector": {"matchLabels": settings.LABELS},
            "template": {
                "metadata": {
                    "labels": settings.LABELS,
                    "annotations": {
                        "prometheus.io/scrape": "true",
                        "prometheus.io/port": str(settings.METRICS_PORT),
                        "prometheus.io/path": "/metrics",
                    },
                },
                "spec": _pod(systems),
            },
        },
    }


def disruption_budget() -> Manifest:
    """Return the budget of the manager's pods, whose nodes the manager drains too."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": settings.NAME,
            "namespace": settings.NAMESPACE,
            "labels": settings.LABELS,
        },
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": settings.LABELS}},
    }


def _pod(systems: Sequence[System]) -> dict[str, object]:
    grace = ManagerOptions().graceful_shutdown_timeout
    return {
        "serviceAccountName": settings.NAME,
        # Other pods must not preempt the manager.
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": int(grace) + _SECONDS_AFTER_GRACE,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": _apart()},
        "tolerations": list(_TOLERATIONS),
        "containers": [_container(systems)],
    }


def _apart() -> dict[str, object]:
    """Prefer different nodes for the two pods; a cluster may have one node only."""
    term = {
        "labelSelector": {"matchLabels": settings.LABELS},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": term}
        ]
    }


def _container(systems: Sequence[System]) -> dict[str, object]:
    # A system that waits for its kinds must not make the pods unready: the budget of the manager
    # would then refuse the evictions of all its pods, and so the rollouts of their nodes.
    excluded = "&".join(f"exclude={system.name}" for system in systems if system.add is not None)
    return {
        "name": "controller",
        "image": settings.IMAGE,
        # The image of a version never changes, and may have been loaded by hand.
        "imagePullPolicy": "IfNotPresent",
        "args": [*_selected(systems), *_ARGUMENTS],
        "ports": [
            {"name": "metrics", "containerPort": settings.METRICS_PORT},
            {"name": "health", "containerPort": settings.HEALTH_PORT},
        ],
        "resources": _RESOURCES,
        # A busy node may need two minutes to start the process. After that, one minute without
        # an answer means that it does not work.
        "startupProbe": _probe("/healthz", period=2, failures=60),
        "livenessProbe": _probe("/healthz", period=20, failures=3),
        "readinessProbe": _probe(f"/readyz?{excluded}".rstrip("?"), period=10, failures=3),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _selected(systems: Sequence[System]) -> list[str]:
    """Return the flag that selects these systems; none if they are the default."""
    names = [system.name for system in systems]
    return [] if names == [ROLLOUTS.name] else [f"--controllers={','.join(names)}"]


def _probe(path: str, *, period: int, failures: int) -> dict[str, object]:
    return {
        "httpGet": {"path": path, "port": "health"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
