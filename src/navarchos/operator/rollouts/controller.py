"""The rollouts' controller: its watches, and the rollout that a change concerns."""

from collections.abc import Iterable
from typing import Final

from navarchos.meta import controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.clients import OperatorClients
from navarchos.operator.gates import GateMonitor
from navarchos.operator.reasons import WaitReason
from navarchos.operator.rollouts.events import RolloutEvents
from navarchos.operator.rollouts.metrics import RolloutMetrics
from navarchos.operator.rollouts.reconciler import RolloutReconciler
from navarchos.parallel import WorkerPool
from navarchos.runtime import Builder, Channel, Controller, Manager, Request
from navarchos.runtime.predicates import changed

__all__ = ["add_to_manager"]

_WORKERS: Final = 2


def add_to_manager(
    manager: Manager, clients: OperatorClients, worker_pool: WorkerPool, gates: GateMonitor | None
) -> Controller:
    """Add the controller of rollouts to a manager; the worker pool writes many children."""

    def rollout_of(drain: api.NodeDrain) -> Iterable[Request]:
        owner = controller_of(drain.metadata)
        replacement = clients.replacements.find(owner.name) if owner is not None else None
        rollout = controller_of(replacement.metadata) if replacement is not None else None
        is_rollout = rollout is not None and rollout.kind == api.NODE_ROLLOUTS.kind
        return (Request("", rollout.name),) if rollout is not None and is_rollout else ()

    awake = Channel()
    if gates is not None:
        gates.on_change(lambda name: awake.send(Request("", name)))
    events, metrics = RolloutEvents(manager.recorder), RolloutMetrics(manager.instruments)
    return (
        Builder(manager, "rollouts", options=manager.options.controllers_with(workers=_WORKERS))
        .for_(api.NODE_ROLLOUTS)
        .owns(api.NODE_REPLACEMENTS, when=changed(_status_inputs))
        .watches(api.NODE_DRAINS, map=rollout_of, when=changed(_blockers))
        .watches_channel(awake, "gates")
        .build(RolloutReconciler(clients, events, worker_pool, manager.clock, gates, metrics))
    )


def _status_inputs(replacement: api.NodeReplacement) -> object:
    """Return what the status of a rollout depends on; not the lists of pods."""
    status = replacement.status
    return (
        status.current,
        status.stalled_since,
        status.failures,
        status.resumed,
        # Waits are left out, except at a gate, which may end in a timeout.
        status.step is not None and status.step.reason == WaitReason.GATE,
        replacement.metadata.generation,
        replacement.metadata.annotations,
        replacement.metadata.deletion_timestamp,
    )


def _blockers(drain: api.NodeDrain) -> object:
    return drain.status.blocked, drain.status.blockers
