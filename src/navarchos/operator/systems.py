"""Systems: groups of controllers that `--controllers` switches on, as declarations.

Rollouts are one system. Others have packages beside `operator` and one `System` each, which
says what the system brings: its kinds, its permissions, its manifests and its parts of the
commands. What several systems share stands in `operator`, so no system imports another one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from navarchos.client import Resource
from navarchos.client.rbac import PolicyRule
from navarchos.informers import KindOptions
from navarchos.operator import cache_transforms, setup
from navarchos.operator.api import v1alpha1 as api
from navarchos.runtime import Manager

if TYPE_CHECKING:
    # These packages are for other commands, and a manager does not import them.
    from navarchos.client import Client
    from navarchos.crd import Manifest
    from navarchos.operator.preflight import PlanFinding
    from navarchos.operator.slots import ReportedSlots
    from navarchos.operator.taints import TaintDeclaration
    from navarchos.testing.apiserver import ApiServer
    from navarchos.testing.cluster import Cluster

__all__ = [
    "ROLLOUTS",
    "StatusPart",
    "System",
    "add_features",
    "add_systems",
    "cached_kinds",
    "parts_of",
    "rbac_of",
]


def _nothing() -> list[Any]:
    return []


@dataclass(frozen=True, slots=True)
class StatusPart:
    """What `navarchos status` shows of a system.

    Attributes:
        read: Reads the cluster; returns what `-o json` prints below the name of the system.
        lines: Returns the lines of text for the result of `read`.
    """

    read: "Callable[[Client], object]"
    lines: Callable[[Any], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What a group of controllers brings to a process, to the manifests and to the commands.

    A process reads only the declarations of systems that are switched on. Functions import
    what they need when they are called: a manager needs no manifests and no simulator.

    Attributes:
        name: The name for `--controllers`, for folders of manifests, and of a readiness check.
        about: What the system does, for help texts.
        parts: The operator's controllers that it needs.
        kinds: The kinds that its CustomResourceDefinitions define. While one is missing, the
            system waits and the others run.
        cached_kinds: How caches keep its kinds, where they do not keep whole objects.
        node_annotations: Annotations of nodes that it reads; see `cache_transforms.kinds`.
        taints: The taints that follow the replacements of a node.
        rbac: Its permissions besides those of the operator's controllers, by namespace; the
            key "" means all namespaces.
        add: Adds its controllers to the manager, once its kinds are served.
        definitions: Returns its CustomResourceDefinitions.
        manifests: Returns further objects that its Deployment needs.
        status: Its part of `navarchos status`.
        plan: Its part of `navarchos plan`: returns findings about nodes that a rollout would
            start, by the node's name.
        slots: Reads which nodes it holds and which ones it needs, for `navarchos plan`.
        simulate: Plays what the system needs from the outside, as long as the context is open;
            for the sandbox.
    """

    name: str
    about: str
    parts: frozenset[setup.Part] = frozenset()
    kinds: tuple[Resource[Any], ...] = ()
    cached_kinds: Mapping[Resource[Any], KindOptions[Any]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    node_annotations: tuple[str, ...] = ()
    taints: "tuple[TaintDeclaration, ...]" = ()
    rbac: Mapping[str, Sequence[PolicyRule]] = field(default_factory=lambda: MappingProxyType({}))
    add: Callable[[setup.OperatorParts], None] | None = None
    definitions: "Callable[[], list[Manifest]]" = _nothing
    manifests: "Callable[[], list[Manifest]]" = _nothing
    status: StatusPart | None = None
    plan: "Callable[[Client, Collection[str]], Mapping[str, Sequence[PlanFinding]]] | None" = None
    slots: "Callable[[Client], ReportedSlots] | None" = None
    simulate: "Callable[[ApiServer, Cluster], AbstractContextManager[object]] | None" = None


def _rollout_definitions() -> "list[Manifest]":
    from navarchos.operator.api.v1alpha1 import definitions

    return definitions.manifests()


def _rollout_manifests() -> "list[Manifest]":
    from navarchos.operator.deployment.manifests import gates_access

    return gates_access()


ROLLOUTS: Final = System(
    name="rollouts",
    about="NodeRollouts, NodeReplacements and NodeDrains",
    parts=setup.ALL_PARTS,
    kinds=(api.NODE_ROLLOUTS, api.NODE_REPLACEMENTS, api.NODE_DRAINS),
    definitions=_rollout_definitions,
    manifests=_rollout_manifests,
)
"""The operator's own system, which a manager runs by default."""


def add_systems(
    manager: Manager, systems: Sequence[System], *, workers: int = setup.WORKERS
) -> setup.OperatorParts:
    """Add systems to a manager that does not run yet.

    Args:
        manager: Runs them. Its options must have the `cached_kinds` of these systems.
        systems: The systems that are switched on.
        workers: The number of drains that are reconciled concurrently.
    """
    operator = setup.add_operator(
        manager,
        workers=workers,
        parts=parts_of(systems),
        further_taints=[taint for system in systems for taint in system.taints],
    )
    add_features(manager, operator, systems)
    return operator


def add_features(
    manager: Manager, operator: setup.OperatorParts, systems: Sequence[System]
) -> None:
    """Add the systems as features of the manager, each waiting for its kinds and permissions."""
    for system in systems:
        if system.add is not None:
            folder = f"config/crds/{system.name}"
            manager.add_feature(
                system.name,
                system.kinds,
                partial(_add, system.add, operator),
                hint=f"install the CustomResourceDefinitions: kubectl create -f {folder}",
                reads=_reads(system),
            )


def _reads(system: System) -> dict[str, list[Resource[Any]]]:
    """Return the kinds that a system watches, by namespace, except single objects."""
    return {
        namespace: [
            rule.resource
            for rule in rules
            if "watch" in rule.verbs and not rule.names and not rule.subresource
        ]
        for namespace, rules in system.rbac.items()
    }


def _add(add: Callable[[setup.OperatorParts], None], operator: setup.OperatorParts) -> None:
    add(operator)
    # Nodes may have waited for an action or an owner that the system has registered.
    operator.owners.changed("")


def cached_kinds(systems: Iterable[System]) -> Mapping[Resource[Any], KindOptions[Any]]:
    """Return how a manager of these systems caches kinds, for its options."""
    systems = tuple(systems)
    annotations = [key for system in systems for key in system.node_annotations]
    kinds = dict(cache_transforms.kinds(node_annotations=annotations))
    for system in systems:
        kinds |= system.cached_kinds
    return kinds


def parts_of(systems: Iterable[System]) -> frozenset[setup.Part]:
    """Return the operator's controllers that these systems need."""
    return frozenset(part for system in systems for part in system.parts)


def rbac_of(systems: Collection[System]) -> dict[str, tuple[PolicyRule, ...]]:
    """Return the permissions of these systems by namespace; the key "" means all namespaces."""
    found = {"": setup.rbac(parts_of(systems))}
    for system in systems:
        for namespace, rules in system.rbac.items():
            found[namespace] = (*found.get(namespace, ()), *rules)
    return found
