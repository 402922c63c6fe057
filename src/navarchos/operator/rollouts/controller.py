"""The rollouts' controller: what it watches, and which rollout a change is about."""

from collections.abc import Iterable
from typing import Final

from navarchos.meta import controller_of
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeDrain,
    NodeReplacement,
)
from navarchos.operator.objects import Objects
from navarchos.operator.rollouts.events import RolloutEvents
from navarchos.operator.rollouts.reconciler import RolloutReconciler
from navarchos.parallel import WorkerPool
from navarchos.runtime import Builder, Controller, Manager, Request
from navarchos.runtime.predicates import changed

__all__ = ["add_to_manager"]

_WORKERS: Final = 2


def add_to_manager(manager: Manager, objects: Objects, worker_pool: WorkerPool) -> Controller:
    """Add the controller of rollouts to a manager; the crew writes what is many."""

    def rollout_of(drain: NodeDrain) -> Iterable[Request]:
        owner = controller_of(drain.metadata)
        replacement = objects.replacements.find(owner.name) if owner is not None else None
        above = controller_of(replacement.metadata) if replacement is not None else None
        return (Request("", above.name),) if above is not None else ()

    reconciler = RolloutReconciler(
        objects, RolloutEvents(manager.recorder), worker_pool, manager.clock
    )
    return (
        Builder(manager, "rollouts")
        .for_(NODE_ROLLOUTS)
        .owns(NODE_REPLACEMENTS, when=changed(_status_inputs))
        .watches(NODE_DRAINS, map=rollout_of, when=changed(_blockers))
        .with_workers(_WORKERS)
        .build(reconciler)
    )


def _status_inputs(replacement: NodeReplacement) -> object:
    """Return what a rollout's status depends on; lists of pods are none of it."""
    status = replacement.status
    return (
        status.current,
        status.stalled_since,
        status.failures,
        status.resumed,
        replacement.metadata.generation,
        replacement.metadata.annotations,
        replacement.metadata.deletion_timestamp,
    )


def _blockers(drain: NodeDrain) -> object:
    return drain.status.blocked, drain.status.blockers
