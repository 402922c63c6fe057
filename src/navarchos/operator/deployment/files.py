"""The manifests as files: one for each kind of object, named as in 2019."""

from collections.abc import Iterable, Mapping
from typing import Final

from navarchos.crd import Manifest, to_yaml
from navarchos.operator.deployment.access import (
    bindings,
    metrics_access,
    roles,
    service_account,
)
from navarchos.operator.deployment.workload import deployment, disruption_budget

__all__ = ["FILE_NAMES", "manifests", "metrics_access", "to_files"]

FILE_NAMES: Final[Mapping[str, str]] = {
    "ServiceAccount": "serviceaccount.yaml",
    "ClusterRole": "clusterrole.yaml",
    "ClusterRoleBinding": "crb.yaml",
    "Role": "role.yaml",
    "RoleBinding": "rb.yaml",
    "PodDisruptionBudget": "poddisruptionbudget.yaml",
    "Deployment": "deployment.yaml",
}
"""The file of each kind."""


def manifests() -> list[Manifest]:
    """Return all objects, each after those it refers to.

    They may be created in any order: a role may be bound before it exists, and pods
    are made as soon as their ServiceAccount is there.
    """
    found = [service_account(), *roles(), *bindings(), disruption_budget(), deployment()]
    order = list(FILE_NAMES)
    return sorted(found, key=lambda manifest: order.index(str(manifest["kind"])))


def to_files(found: Iterable[Manifest], *, header: str = "") -> dict[str, str]:
    """Return the text of each file by its name.

    Args:
        found: The objects; those of one kind share a file.
        header: Lines of a comment on top, without the number sign.
    """
    by_file: dict[str, list[Manifest]] = {}
    for manifest in found:
        by_file.setdefault(FILE_NAMES[str(manifest["kind"])], []).append(manifest)
    return {name: to_yaml(each, header=header) for name, each in by_file.items()}
