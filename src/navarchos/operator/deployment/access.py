"""Who the manager is, and what it may do: exactly what its code asks for."""

from collections.abc import Sequence

from navarchos import events
from navarchos.client.rbac import PolicyRule
from navarchos.crd import Manifest
from navarchos.leaderelection import lease_rbac
from navarchos.operator.assembly import RBAC
from navarchos.operator.deployment.settings import (
    EVENTS_NAMESPACE,
    LABELS,
    LEASE,
    METRICS_ACCESS,
    METRICS_READER,
    NAME,
    NAMESPACE,
)
from navarchos.runtime import reviews
from navarchos.runtime.rbac import Subject, role, role_binding

__all__ = ["bindings", "manager_rbac", "metrics_access", "roles", "service_account"]

_SUBJECT = Subject(NAME, NAMESPACE)


def manager_rbac() -> dict[str, Sequence[PolicyRule]]:
    """Return all rights of the manager by namespace; under "" those in every one.

    The lease is in one namespace and events are in another; to grant either
    everywhere would let the manager depose other leaders and speak for others.
    """
    return {
        "": RBAC,
        EVENTS_NAMESPACE: events.RBAC,
        NAMESPACE: lease_rbac(LEASE),
    }


def service_account() -> Manifest:
    """Return the identity of the manager."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
    }


def roles() -> list[Manifest]:
    """Return the ClusterRole, then the Roles by namespace."""
    return [
        role(NAME, rules, namespace=namespace, labels=LABELS)
        for namespace, rules in manager_rbac().items()
    ]


def bindings() -> list[Manifest]:
    """Return what gives each role to the manager, in the order of `roles`."""
    return [
        role_binding(NAME, _SUBJECT, namespace=namespace, labels=LABELS)
        for namespace in manager_rbac()
    ]


def metrics_access() -> list[Manifest]:
    """Return what `--metrics-secure` takes: rights to ask who may, and a role for who may.

    Not part of `roles`: the shipped manager serves its metrics to everybody, so it would
    have rights that it never uses. Nobody has the second role until it is bound.
    """
    reader = role(METRICS_READER, (), labels=LABELS)
    reader["rules"] = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    return [
        role(METRICS_ACCESS, reviews.RBAC, labels=LABELS),
        reader,
        role_binding(METRICS_ACCESS, _SUBJECT, labels=LABELS),
    ]
