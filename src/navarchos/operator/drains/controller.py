"""The drain controller: its caches, its watches, and the drains that a change concerns."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from navarchos.client import Client
from navarchos.clock import SYSTEM_CLOCK, Clock, uniform
from navarchos.drain import BUDGETS, DAEMON_SETS, Budget, DaemonSet, Evictor
from navarchos.events import Recorder
from navarchos.informers import SharedInformer
from navarchos.informers.source import informer_rbac
from navarchos.instrument import Instruments
from navarchos.meta import controller_of
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.drains.cordon import NodeCordoner
from navarchos.operator.drains.events import DrainEvents
from navarchos.operator.drains.evictions import DrainRuntime, EvictionDispatcher
from navarchos.operator.drains.memory import BudgetWatch, DrainMemory
from navarchos.operator.drains.metrics import DrainMetrics
from navarchos.operator.drains.pods import NodePods, PodWatches
from navarchos.operator.drains.reconciler import DrainParts, DrainReconciler, sweep_request
from navarchos.operator.drains.successors import Successors
from navarchos.operator.marks import EXCLUDE_LABEL, NodeMarks, holders_of
from navarchos.operator.names import ACTION_FINALIZER, CORDONED_BY_ANNOTATION, MARKS_ANNOTATION
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.owners import Owners, kind_of
from navarchos.parallel import WorkerPool
from navarchos.runtime import (
    Builder,
    CachedClient,
    Channel,
    Controller,
    Manager,
    Request,
    all_of,
    changed,
    when,
)

__all__ = [
    "BY_NODE",
    "RBAC",
    "DrainCaches",
    "DrainEnvironment",
    "add_to_manager",
    "build_reconciler",
]

BY_HOLDER: Final = "holder"
"""The index of nodes by the names of the drains that hold their marks."""

BY_NODE: Final = "node"
"""The index of drains by the name of their node."""

_MAX_PARALLEL_REQUESTS: Final = 12
"""The maximum number of concurrent eviction requests of all drains together."""

RBAC: Final = informer_rbac(
    api.NODE_DRAINS, api.NODE_REPLACEMENTS, api.NODE_ROLLOUTS, NODES, DAEMON_SETS, BUDGETS
)
"""The permissions (RBAC) of the caches that drains read."""


@dataclass(frozen=True, slots=True)
class DrainCaches:
    """The informers that drains read. The caller starts and stops them."""

    drains: SharedInformer[api.NodeDrain]
    nodes: SharedInformer[Node]
    daemon_sets: SharedInformer[DaemonSet]
    budgets: SharedInformer[Budget]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainEnvironment:
    """What the reconciler needs from its process.

    Attributes:
        recorder: Records events.
        wake: Called with the name of a drain to reconcile; must be quick.
        is_suspended: Whether the replacement or the rollout above an ended drain is paused or
            being deleted.
        is_held: Whether the action of the replacement above a drain may still affect the node.
        instruments: Where metrics are registered.
        clock: Time.
        watch_clock: Time of the pod watches; `clock` if absent.
        rand: Source of jitter.
    """

    recorder: Recorder
    wake: Callable[[str], None]
    is_suspended: Callable[[api.NodeDrain], bool] = lambda _drain: False
    is_held: Callable[[api.NodeDrain], bool] = lambda _drain: False
    instruments: Instruments = field(default_factory=Instruments)
    clock: Clock = SYSTEM_CLOCK
    watch_clock: Clock | None = None
    rand: Callable[[], float] = uniform


def build_reconciler(
    client: Client, caches: DrainCaches, environment: DrainEnvironment
) -> tuple[DrainReconciler, DrainRuntime]:
    """Build the reconciler, and what its drains share, which the caller runs."""
    clock = environment.clock
    memory = DrainMemory(clock)
    caches.nodes.add_indexers({BY_HOLDER: _holding_drains})
    watches = PodWatches(
        client,
        on_change=environment.wake,
        clock=environment.watch_clock or clock,
        instruments=environment.instruments,
    )
    workers = WorkerPool("evict", size=_MAX_PARALLEL_REQUESTS, clock=clock)
    runtime = DrainRuntime(workers, watches, clock)
    events = DrainEvents(environment.recorder, DrainMetrics(environment.instruments))
    budgets = BudgetWatch(caches.budgets, memory, wake=environment.wake)
    parts = DrainParts(
        drains=CachedClient(client.resource(api.NODE_DRAINS), caches.drains),
        nodes=NodeCordoner(client, caches.nodes),
        marks=NodeMarks(client, caches.nodes),
        pods=NodePods(client, watches, caches.daemon_sets),
        dispatcher=EvictionDispatcher(
            Evictor(client), runtime, memory, budgets, events, environment.rand
        ),
        deployments=Successors(client),
        memory=memory,
        runtime=runtime,
        events=events,
        clock=clock,
        is_suspended=environment.is_suspended,
        is_held=environment.is_held,
        marked_by=lambda drain: [
            node.metadata.name for node in caches.nodes.lister.by_index(BY_HOLDER, drain)
        ],
    )
    return DrainReconciler(parts), runtime


def add_to_manager(
    manager: Manager, *, workers: int = 4, owners: Owners | None = None
) -> Controller:
    """Add the drain controller to a manager.

    Args:
        manager: Runs the controller; its caches of drains, nodes, DaemonSets and budgets are
            used.
        workers: The number of drains that are reconciled at the same time.
        owners: The kinds, besides rollouts, that own replacements.
    """
    caches = DrainCaches(
        manager.informer(api.NODE_DRAINS),
        manager.informer(NODES),
        manager.informer(DAEMON_SETS),
        manager.informer(BUDGETS),
    )
    caches.drains.add_indexers({BY_NODE: _node_name})
    replacements, awake = manager.informer(api.NODE_REPLACEMENTS), Channel()
    reconciler, runtime = build_reconciler(
        manager.client,
        caches,
        DrainEnvironment(
            recorder=manager.recorder,
            wake=lambda name: awake.send(Request("", name)),
            is_suspended=_suspension_check(
                replacements, manager.informer(api.NODE_ROLLOUTS), owners or Owners()
            ),
            is_held=_hold_check(replacements),
            instruments=manager.instruments,
            clock=manager.clock,
        ),
    )

    def drains_of(node: Node) -> Iterable[Request]:
        name = node.metadata.name
        drains = caches.drains.lister.by_index(BY_NODE, name)
        sweep = [sweep_request(name)] if MARKS_ANNOTATION in node.metadata.annotations else []
        return [*(Request("", drain.metadata.name) for drain in drains), *sweep]

    def drains_below(replacement: api.NodeReplacement) -> Iterable[Request]:
        found = caches.drains.lister.by_index(BY_NODE, replacement.spec.node_name)
        uid = replacement.metadata.uid
        return [Request("", drain.metadata.name) for drain in found if _owner_uid(drain) == uid]

    manager.add(runtime, name="drain-runtime")
    return (
        Builder(manager, "drains", options=manager.options.controllers_with(workers=workers))
        .for_(api.NODE_DRAINS)
        .watches(NODES, map=drains_of, when=changed(_cordon_inputs))
        .watches(
            api.NODE_REPLACEMENTS, map=drains_below, when=all_of(when(_has_action), changed(_holds))
        )
        .watches_channel(awake, "drain-wakeups")
        .build(reconciler)
    )


def _suspension_check(
    replacements: SharedInformer[api.NodeReplacement],
    rollouts: SharedInformer[api.NodeRollout],
    owners: Owners,
) -> Callable[[api.NodeDrain], bool]:
    """Return a function that reports whether the objects above a drain suspend it."""

    def is_suspended(drain: api.NodeDrain) -> bool:
        owner = controller_of(drain.metadata)
        if owner is None:
            return False
        replacement = replacements.lister.find(owner.name)
        if replacement is None or replacement.spec.paused:
            return True
        rollout_key = controller_of(replacement.metadata)
        if rollout_key is None or kind_of(rollout_key) not in owners.kinds:
            return False
        rollout = (
            owners.view_of(replacement)
            if owners.is_registered(replacement)
            else rollouts.lister.find(rollout_key.name)
        )
        if rollout is None or rollout.metadata.deletion_timestamp is not None:
            return True
        return rollout.spec.paused

    return is_suspended


def _hold_check(
    replacements: SharedInformer[api.NodeReplacement],
) -> Callable[[api.NodeDrain], bool]:
    """Return a function that reports whether the action above a drain has not ended.

    The cache contains this process's own writes, and a replacement gets its finalizer before its
    action begins.
    """

    def is_held(drain: api.NodeDrain) -> bool:
        owner = controller_of(drain.metadata)
        found = replacements.lister.find(owner.name) if owner is not None else None
        return found is not None and found.metadata.uid == _owner_uid(drain) and _holds(found)

    return is_held


def _owner_uid(drain: api.NodeDrain) -> str:
    owner = controller_of(drain.metadata)
    return owner.uid if owner is not None else ""


def _has_action(replacement: api.NodeReplacement) -> bool:
    return replacement.spec.action is not None


def _holds(replacement: api.NodeReplacement) -> bool:
    return ACTION_FINALIZER in replacement.metadata.finalizers


def _holding_drains(node: Node) -> Iterable[str]:
    return {holder.name for holder in holders_of(node) if holder.kind == api.NODE_DRAINS.kind}


def _node_name(drain: api.NodeDrain) -> Iterable[str]:
    return (drain.spec.node_name,)


def _cordon_inputs(node: Node) -> object:
    # Heartbeats and image lists change all the time and do not concern drains.
    annotations = node.metadata.annotations
    cordon = (node.metadata.uid, node.spec.unschedulable, annotations.get(CORDONED_BY_ANNOTATION))
    if MARKS_ANNOTATION not in annotations:
        return cordon
    return (*cordon, sorted(annotations.items()), node.metadata.labels.get(EXCLUDE_LABEL))
