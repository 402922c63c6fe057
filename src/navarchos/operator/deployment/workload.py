"""The Deployment of the manager, and the budget that keeps one of its pods."""

from typing import Final

from navarchos.crd import Manifest
from navarchos.operator.deployment.settings import (
    HEALTH_PORT,
    IMAGE,
    LABELS,
    LEASE,
    METRICS_PORT,
    NAME,
    NAMESPACE,
)
from navarchos.runtime import ManagerOptions

__all__ = ["deployment", "disruption_budget"]

_REPLICAS: Final = 2
_USER: Final = 65532
"""The user `nonroot` of distroless images: no right to any file of a node."""

_ARGUMENTS: Final = (
    "--leader-election=true",
    f"--leader-election-id={LEASE}",
    f"--leader-election-namespace={NAMESPACE}",
    "--sync-period=5m",
    f"--metrics-addr=:{METRICS_PORT}",
    f"--health-addr=:{HEALTH_PORT}",
    "--v=0",
    "--logtostderr=true",
)

_RESOURCES: Final = {
    "requests": {"cpu": "50m", "memory": "100Mi"},
    # No limit on CPU: a throttled process renews its lease late, and answers its
    # probes late. Twice the memory that it should need: what exceeds this leaks,
    # and what exceeds the request may be one long list.
    "limits": {"memory": "200Mi"},
}

_SECONDS_AFTER_GRACE: Final = 15
"""For the last events and the servers, each of which has limits of its own."""

_TOLERATIONS: Final = (
    # Nodes of the control plane are a good place: workers come and go.
    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "CriticalAddonsOnly", "operator": "Exists"},
)


def deployment() -> Manifest:
    """Return the Deployment: one pod leads, the other stands by with warm caches."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
        "spec": {
            "replicas": _REPLICAS,
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {
                    "labels": LABELS,
                    "annotations": {
                        "prometheus.io/scrape": "true",
                        "prometheus.io/port": str(METRICS_PORT),
                        "prometheus.io/path": "/metrics",
                    },
                },
                "spec": _pod(),
            },
        },
    }


def disruption_budget() -> Manifest:
    """Return the budget: the manager drains the nodes of its own pods, too."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}},
    }


def _pod() -> dict[str, object]:
    grace = ManagerOptions().graceful_shutdown_timeout
    return {
        "serviceAccountName": NAME,
        # It works for all other pods: they must not push it off its node.
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
        "containers": [_container()],
    }


def _apart() -> dict[str, object]:
    """Two pods on one node fall together; but a cluster may have one node only."""
    term = {"labelSelector": {"matchLabels": LABELS}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": term}
        ]
    }


def _container() -> dict[str, object]:
    return {
        "name": "controller",
        "image": IMAGE,
        # A version's image never changes; one that was loaded by hand is used.
        "imagePullPolicy": "IfNotPresent",
        "args": list(_ARGUMENTS),
        "ports": [
            {"name": "metrics", "containerPort": METRICS_PORT},
            {"name": "health", "containerPort": HEALTH_PORT},
        ],
        "resources": _RESOURCES,
        # A busy node may need long to start a process; afterwards a minute is long.
        "startupProbe": _probe("/healthz", period=2, failures=60),
        "livenessProbe": _probe("/healthz", period=20, failures=3),
        "readinessProbe": _probe("/readyz", period=10, failures=3),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _probe(path: str, *, period: int, failures: int) -> dict[str, object]:
    return {
        "httpGet": {"path": path, "port": "health"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
