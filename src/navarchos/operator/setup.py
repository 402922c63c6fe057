"""Adds the operator's controllers to a manager."""

import importlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, assert_never, cast

from navarchos.client.rbac import PolicyRule
from navarchos.operator.actions import Actions
from navarchos.operator.cache_transforms import KINDS
from navarchos.operator.clients import RBAC as INFORMER_RBAC
from navarchos.operator.clients import OperatorClients, operator_clients
from navarchos.operator.owners import Owners
from navarchos.operator.slots import Slots, operator_slots
from navarchos.parallel import WorkerPool
from navarchos.runtime import Manager
from navarchos.stopping import StopToken

if TYPE_CHECKING:
    from navarchos.operator.gates import GateMonitor
    from navarchos.operator.taints import TaintDeclaration

__all__ = ["ALL_PARTS", "KINDS", "WORKERS", "OperatorParts", "Part", "add_operator", "rbac"]

WORKERS: Final = 4
"""The default number of drains that are reconciled concurrently."""


class Part(StrEnum):
    """A controller of the operator; the value is the name of its package."""

    ROLLOUTS = "rollouts"
    REPLACEMENTS = "replacements"
    TAINTS = "taints"
    DRAINS = "drains"


ALL_PARTS: Final = frozenset(Part)


@dataclass(frozen=True, slots=True)
class OperatorParts:
    """What the operator shares with the other systems of its process.

    Attributes:
        manager: Runs all controllers.
        clients: The cached clients of rollouts, replacements, drains and nodes.
        write_pool: Runs writes of many objects concurrently.
        gates: Observes the gates of rollouts; `None` without the controllers that need it.
        actions: The actions of this process; a system registers its own.
        owners: The kinds, besides rollouts, that own replacements; a system registers its own.
        slots: The nodes in flight of all systems; a system registers its own.
    """

    manager: Manager
    clients: OperatorClients
    write_pool: WorkerPool
    gates: "GateMonitor | None"
    actions: Actions
    owners: Owners
    slots: Slots


def add_operator(
    manager: Manager,
    *,
    workers: int = WORKERS,
    parts: Collection[Part] = ALL_PARTS,
    further_taints: "Sequence[TaintDeclaration]" = (),
) -> OperatorParts:
    """Add the operator to a manager that does not run yet.

    The manager then waits for the operator's kinds: while their CustomResourceDefinitions are
    missing it logs that, is not ready, and tries again (OP-61). It caches these kinds also
    without the controllers, because every system counts the nodes in flight of all others.

    Args:
        manager: Gets the controllers and their informers. Its options must have `KINDS`, so
            that its caches leave out parts that the operator does not read.
        workers: The number of drains that are reconciled concurrently. Replacements always
            have one worker, because only one admission may run at a time.
        parts: The controllers to add. The others are not imported.
        further_taints: Taints of other systems that follow the replacements of a node.
    """
    clients = operator_clients(manager)
    write_pool = WorkerPool("write", clock=manager.clock)
    gates = _gates(manager, clients) if {Part.ROLLOUTS, Part.REPLACEMENTS} & set(parts) else None
    manager.add(_SharedThreads(write_pool, gates), name="write-pool")
    slots = operator_slots(clients, manager.clock)
    actions = Actions(manager.instruments)
    operator = OperatorParts(manager, clients, write_pool, gates, actions, Owners(), slots)
    for part in Part:
        if part in parts:
            _add_part(part, operator, workers, further_taints)
    return operator


def _gates(manager: Manager, clients: OperatorClients) -> "GateMonitor":
    # Imported here, so that a manager without rollouts does not import it.
    from navarchos.operator.gates import GateMonitor

    return GateMonitor(
        manager.client, clients, clock=manager.clock, instruments=manager.instruments
    )


class _SharedThreads:
    """The threads that writes and gates use; gates have none until a rollout has a gate."""

    def __init__(self, write_pool: WorkerPool, gates: "GateMonitor | None") -> None:
        self._write_pool = write_pool
        self._gates = gates

    def run(self, stop: StopToken) -> None:
        """Run until `stop` is set, then end the threads."""
        try:
            self._write_pool.run(stop)
        finally:
            if self._gates is not None:
                self._gates.close()


def _add_part(
    part: Part, operator: OperatorParts, workers: int, further_taints: "Sequence[TaintDeclaration]"
) -> None:
    manager, clients = operator.manager, operator.clients
    # Imported here, so that a manager imports only the controllers that it runs.
    match part:
        case Part.ROLLOUTS:
            from navarchos.operator import rollouts

            rollouts.add_to_manager(manager, clients, operator.write_pool, operator.gates)
        case Part.REPLACEMENTS:
            from navarchos.operator import jobs, replacements

            jobs.register(operator.actions, manager)
            replacements.add_to_manager(
                manager,
                clients,
                operator.write_pool,
                operator.actions,
                operator.owners,
                operator.slots,
                operator.gates,
            )
        case Part.TAINTS:
            from navarchos.operator import taints

            declared = (taints.TO_BE_REPLACED, *further_taints)
            taints.add_to_manager(manager, clients, declared)
        case Part.DRAINS:
            from navarchos.operator import drains

            drains.add_to_manager(manager, workers=workers, owners=operator.owners)
        case _:
            assert_never(part)


def rbac(parts: Collection[Part] = ALL_PARTS) -> tuple[PolicyRule, ...]:
    """Return the permissions of these controllers and their caches, in the whole cluster.

    The manager also writes events and holds a Lease. Every client may list the API's kinds.
    """
    names = [str(part) for part in Part if part in parts]
    names += ["gates", "jobs"] if Part.REPLACEMENTS in parts else []
    packages = [importlib.import_module(f"navarchos.operator.{name}") for name in names]
    rules = [cast("tuple[PolicyRule, ...]", package.RBAC) for package in packages]
    return (*INFORMER_RBAC, *(rule for each in rules for rule in each))
