"""The kinds that the framework's integration tests are about."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from navarchos.client import Resource
from navarchos.crd import Column, Definition, Version, custom_resource_definition
from navarchos.meta import Object
from navarchos.runtime import Condition

__all__ = [
    "BUDGETS",
    "CONFIG_MAPS",
    "GIZMOS",
    "GIZMO_DEFINITION",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "ConfigMap",
    "Gizmo",
    "GizmoStatus",
]


class ConfigMap(Object, frozen=True):
    data: Mapping[str, str] = {}


class GizmoSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    size: Annotated[int, msgspec.Meta(ge=1, le=10)] = 1
    colour: str = "red"
    copies: tuple[str, ...] = ()


class GizmoStatus(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class Gizmo(Object, frozen=True):
    spec: GizmoSpec = GizmoSpec()
    status: GizmoStatus = GizmoStatus()


def _json(api_version: str, plural: str, kind: str, *, namespaced: bool) -> Resource[Any]:
    group, _, version = api_version.rpartition("/")
    return Resource(group, version, plural, kind, namespaced=namespaced, type=dict)


CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, type=ConfigMap)
NAMESPACES: Final = _json("v1", "namespaces", "Namespace", namespaced=False)
NODES: Final = _json("v1", "nodes", "Node", namespaced=False)
PODS: Final = _json("v1", "pods", "Pod", namespaced=True)
BUDGETS: Final = _json("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
LEASES: Final = _json("coordination.k8s.io/v1", "leases", "Lease", namespaced=True)
GIZMOS: Final = Resource(
    "framework.example.com", "v1", "gizmos", "Gizmo", namespaced=True, type=Gizmo
)

GIZMO_DEFINITION: Final = custom_resource_definition(
    Definition(
        short_names=("gz",),
        versions=(
            Version(
                resource=GIZMOS,
                columns=(Column("Size", ".spec.size", "integer"),),
                selectable_fields=(".spec.colour",),
            ),
        ),
    )
)
"""What a server has to know to serve `GIZMOS`: made from the types above."""
