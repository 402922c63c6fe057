"""The operator, put together from its controllers."""

from typing import Final

from navarchos.operator import drains, replacements, rollouts, taints
from navarchos.operator.cache_transforms import KINDS
from navarchos.operator.objects import RBAC as INFORMER_RBAC
from navarchos.operator.objects import make_objects
from navarchos.parallel import WorkerPool
from navarchos.runtime import Manager

__all__ = ["KINDS", "RBAC", "WORKERS", "add_operator"]

WORKERS: Final = 4
"""Drains that are worked on at the same moment, by default."""

RBAC: Final = (
    *INFORMER_RBAC,
    *rollouts.RBAC,
    *replacements.RBAC,
    *drains.RBAC,
    *taints.RBAC,
)
"""What the operator asks of the server in the whole cluster.

Besides, its manager writes events and holds a Lease; and everybody may ask which
kinds there are.
"""


def add_operator(manager: Manager, *, workers: int = WORKERS) -> None:
    """Add the operator to a manager that does not run yet.

    The manager then waits for the operator's kinds: while their definitions are
    missing it says so, is not ready, and looks again (OP-61).

    Args:
        manager: Gets the controllers and their informers. Its options have `KINDS`,
            so that its caches leave out what nobody reads.
        workers: Drains that are worked on at the same moment. Replacements have
            one worker whatever this says, because admission must be alone.
    """
    objects = make_objects(manager)
    writers = WorkerPool("write", clock=manager.clock)
    manager.add(writers, name="writers")
    rollouts.add_to_manager(manager, objects, writers)
    replacements.add_to_manager(manager, objects, writers)
    taints.add_to_manager(manager, objects)
    drains.add_to_manager(manager, workers=workers)
