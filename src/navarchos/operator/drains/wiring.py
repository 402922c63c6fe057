"""The parts of the drain controller, put together."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from navarchos.client import Client
from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.drain import BUDGETS, DAEMON_SETS, Budget, DaemonSet, Evictor
from navarchos.events import Recorder
from navarchos.informers import SharedInformer
from navarchos.informers.source import informer_rbac
from navarchos.instrument import Instruments
from navarchos.meta import controller_of
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeDrain,
    NodeReplacement,
    NodeRollout,
)
from navarchos.operator.drains.attempts import Attempts
from navarchos.operator.drains.budgets import BudgetWatch
from navarchos.operator.drains.gate import NodeGate
from navarchos.operator.drains.metrics import DrainMetrics
from navarchos.operator.drains.reconciler import DrainReconciler
from navarchos.operator.drains.sender import Sender
from navarchos.operator.drains.survey import Survey
from navarchos.operator.drains.teller import Teller
from navarchos.operator.drains.watches import PodWatches
from navarchos.operator.drains.writer import DrainWriter
from navarchos.operator.names import CORDONED_BY_ANNOTATION
from navarchos.operator.nodes import NODES, Node
from navarchos.parallel import WorkerPool
from navarchos.runtime import (
    Builder,
    Channel,
    Controller,
    ControllerOptions,
    Manager,
    Request,
    changed,
)
from navarchos.stopping import StopToken

__all__ = ["BY_NODE", "RBAC", "Caches", "DrainMachinery", "add_to_manager", "assemble"]

BY_NODE: Final = "node"
"""The index of drains by the name of their node."""

_PARALLEL: Final = 12
"""Requests that pods go which are under way at once, for all drains together."""

RBAC: Final = informer_rbac(
    NODE_DRAINS, NODE_REPLACEMENTS, NODE_ROLLOUTS, NODES, DAEMON_SETS, BUDGETS
)
"""What the caches of drains need of the server."""


@dataclass(frozen=True, slots=True)
class Caches:
    """The informers that drains read. Somebody else starts and stops them."""

    drains: SharedInformer[NodeDrain]
    nodes: SharedInformer[Node]
    daemon_sets: SharedInformer[DaemonSet]
    budgets: SharedInformer[Budget]


class DrainMachinery:
    """What all drains of a process share: threads for requests, watches on pods.

    Lifecycle: `run` once. The reconciler works without it, one request after the
    other. When it is told to stop no further request is sent, by anybody.
    """

    def __init__(self, worker_pool: WorkerPool, watches: PodWatches, halted: StopToken) -> None:
        self.watches = watches
        self._worker_pool = worker_pool
        self._halted = halted

    def run(self, stop: StopToken) -> None:
        """Provide them until `stop` is set; then end every thread of theirs."""
        withdraw = stop.on_stop(lambda: self._halted.stop(stop.reason or "asked to stop"))
        try:
            self._worker_pool.run(stop)
        finally:
            withdraw()
            self.watches.close()


def assemble(
    client: Client,
    caches: Caches,
    *,
    recorder: Recorder,
    wake: Callable[[str], None],
    clock: Clock = SYSTEM_CLOCK,
    watch_clock: Clock | None = None,
    rand: Callable[[], float] = uniform,
    instruments: Instruments | None = None,
    is_held: Callable[[NodeDrain], bool] = lambda _drain: False,
) -> tuple[DrainReconciler, DrainMachinery]:
    """Put the reconciler together.

    Args:
        client: Talks to the server.
        caches: What is read.
        recorder: Where events go.
        wake: Called with the name of a drain that is worth a look; must be quick.
        clock: Time.
        watch_clock: Time of the watches on pods; `clock` when absent.
        rand: Source of jitter.
        instruments: Where metrics go.
        is_held: Whether somebody wants nothing done to the node of an ended drain: those
            whose rollout is paused, or going.
    """
    instruments = instruments or Instruments()
    metrics = DrainMetrics(instruments)
    attempts = Attempts()
    halted = StopToken(clock=clock)
    worker_pool = WorkerPool("evict", size=_PARALLEL, clock=clock)
    watches = PodWatches(
        client, on_change=wake, clock=watch_clock or clock, instruments=instruments
    )
    budgets = BudgetWatch(caches.budgets, attempts, wake=wake, clock=clock)
    sender = Sender(
        evictor=Evictor(client),
        worker_pool=worker_pool,
        attempts=attempts,
        budgets=budgets,
        metrics=metrics,
        recorder=recorder,
        stop=halted,
        clock=clock,
        rand=rand,
    )
    reconciler = DrainReconciler(
        drains=caches.drains,
        gate=NodeGate(client, caches.nodes, clock=clock),
        survey=Survey(client, watches, caches.daemon_sets),
        watches=watches,
        attempts=attempts,
        sender=sender,
        writer=DrainWriter(client, caches.drains, clock=clock),
        teller=Teller(recorder, metrics),
        clock=clock,
        is_held=is_held,
    )
    return reconciler, DrainMachinery(worker_pool, watches, halted)


def add_to_manager(manager: Manager, *, workers: int = 4) -> Controller:
    """Make the drain controller a part of a manager.

    Args:
        manager: Runs it; its caches of drains, nodes, DaemonSets and budgets are
            used.
        workers: Drains that are looked at at the same time.
    """
    caches = Caches(
        manager.informer(NODE_DRAINS),
        manager.informer(NODES),
        manager.informer(DAEMON_SETS),
        manager.informer(BUDGETS),
    )
    caches.drains.add_indexers({BY_NODE: _node_name})
    awake = Channel()
    reconciler, machinery = assemble(
        manager.client,
        caches,
        recorder=manager.recorder,
        wake=lambda name: awake.send(Request("", name)),
        clock=manager.clock,
        instruments=manager.instruments,
        is_held=_holder(manager.informer(NODE_REPLACEMENTS), manager.informer(NODE_ROLLOUTS)),
    )

    def drains_of(node: Node) -> Iterable[Request]:
        drains = caches.drains.lister.by_index(BY_NODE, node.metadata.name)
        return [Request("", drain.metadata.name) for drain in drains]

    manager.add(machinery, name="drain-machinery")
    return (
        Builder(manager, "drains", options=ControllerOptions(workers=workers))
        .for_(NODE_DRAINS)
        .watches(NODES, map=drains_of, when=changed(_cordon))
        .watches_channel(awake, "drain-wakeups")
        .build(reconciler)
    )


def _holder(
    replacements: SharedInformer[NodeReplacement], rollouts: SharedInformer[NodeRollout]
) -> Callable[[NodeDrain], bool]:
    """Return a function that tells whether those above a drain want nothing done."""

    def is_held(drain: NodeDrain) -> bool:
        owner = controller_of(drain.metadata)
        if owner is None:
            return False
        replacement = replacements.lister.find(owner.name)
        if replacement is None or replacement.spec.paused:
            return True
        above = controller_of(replacement.metadata)
        if above is None:
            return False
        rollout = rollouts.lister.find(above.name)
        is_going = rollout is None or rollout.metadata.deletion_timestamp is not None
        return is_going or (rollout is not None and rollout.spec.paused)

    return is_held


def _node_name(drain: NodeDrain) -> Iterable[str]:
    return (drain.spec.node_name,)


def _cordon(node: Node) -> object:
    # Heartbeats and image lists change all the time and mean nothing here.
    mark = node.metadata.annotations.get(CORDONED_BY_ANNOTATION)
    return (node.metadata.uid, node.spec.unschedulable, mark)
