"""Adds the operator's controllers to a manager."""

from typing import Final

from navarchos.operator import drains, jobs, replacements, rollouts, taints
from navarchos.operator.actions import Actions
from navarchos.operator.cache_transforms import KINDS
from navarchos.operator.clients import RBAC as INFORMER_RBAC
from navarchos.operator.clients import operator_clients
from navarchos.parallel import WorkerPool
from navarchos.runtime import Manager

__all__ = ["KINDS", "RBAC", "WORKERS", "add_operator"]

WORKERS: Final = 4
"""The default number of drains that are reconciled concurrently."""

RBAC: Final = (
    *INFORMER_RBAC,
    *rollouts.RBAC,
    *replacements.RBAC,
    *drains.RBAC,
    *taints.RBAC,
    *jobs.RBAC,
)
"""The operator's permissions in the whole cluster.

Its manager also writes events and holds a Lease. Every client may list the API's kinds.
"""


def add_operator(manager: Manager, *, workers: int = WORKERS) -> None:
    """Add the operator to a manager that does not run yet.

    The manager then waits for the operator's kinds: while their CustomResourceDefinitions are
    missing it logs that, is not ready, and tries again (OP-61).

    Args:
        manager: Gets the controllers and their informers. Its options must have `KINDS`, so
            that its caches leave out parts that the operator does not read.
        workers: The number of drains that are reconciled concurrently. Replacements always
            have one worker, because only one admission may run at a time.
    """
    clients = operator_clients(manager)
    write_pool = WorkerPool("write", clock=manager.clock)
    manager.add(write_pool, name="write-pool")
    rollouts.add_to_manager(manager, clients, write_pool)
    actions = Actions()
    jobs.register(actions, manager)
    replacements.add_to_manager(manager, clients, write_pool, actions)
    taints.add_to_manager(manager, clients)
    drains.add_to_manager(manager, workers=workers)
