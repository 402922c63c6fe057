"""The replacements' controller: what it watches, and what a change is about."""

from collections.abc import Iterable

from navarchos.drain import BUDGETS, PODS
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    NODE_REPLACEMENTS,
    NODE_ROLLOUTS,
    NodeDrain,
    NodeReplacement,
)
from navarchos.operator.crew import Crew
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.objects import NODE_INDEX, Objects
from navarchos.operator.replacements.admitting import Admission
from navarchos.operator.replacements.announce import Announcer
from navarchos.operator.replacements.budgets import BudgetLook
from navarchos.operator.replacements.drains import has_ended
from navarchos.operator.replacements.metrics import Progress
from navarchos.operator.replacements.pending import PENDING_PODS, PENDING_SELECTOR, Pod
from navarchos.operator.replacements.pipeline import Pipeline
from navarchos.operator.replacements.reconciler import ADMISSION, ReplacementReconciler
from navarchos.operator.replacements.stuck import is_on_hold, is_refused
from navarchos.runtime import Builder, Controller, Manager, Request
from navarchos.runtime.predicates import changed

__all__ = ["add_to_manager"]


def add_to_manager(manager: Manager, objects: Objects, crew: Crew) -> Controller:
    """Add the controller of replacements, with its one worker, to a manager.

    Whatever admission looks at brings it about: any number of changes is one pass. The
    crew writes why nodes wait.
    """

    def about_node(node: Node) -> Iterable[Request]:
        waiting = objects.replacements.by_index(NODE_INDEX, node.metadata.name)
        return (ADMISSION, *(Request("", replacement.metadata.name) for replacement in waiting))

    announcer = Announcer(manager.recorder)
    pending = manager.informer(PENDING_PODS, field_selector=PENDING_SELECTOR)
    budgets = manager.informer(BUDGETS)
    admission = Admission(
        objects,
        pending.lister.list,
        BudgetLook(
            manager.client.resource(PODS),
            lambda namespace: budgets.lister.list(namespace=namespace),
            manager.clock,
        ),
        announcer,
        Progress(manager.instruments),
        crew,
        manager.clock,
    )
    pipeline = Pipeline(objects, announcer, manager.clock)
    return (
        Builder(manager, "replacements")
        .for_(NODE_REPLACEMENTS)
        .owns(NODE_DRAINS)
        .watches(NODE_REPLACEMENTS, map=_admission, when=changed(_standing))
        .watches(NODE_ROLLOUTS, map=_admission)
        .watches(NODE_DRAINS, map=_admission, when=changed(_slot))
        .watches(NODES, map=about_node, when=changed(_identity))
        .watches(
            PENDING_PODS,
            map=_admission,
            when=changed(_leaving),
            field_selector=PENDING_SELECTOR,
        )
        .with_workers(1)
        .build(ReplacementReconciler(objects, admission, pipeline))
    )


def _admission(_: object) -> Iterable[Request]:
    return (ADMISSION,)


def _standing(replacement: NodeReplacement) -> object:
    """Return what admission decides from; the reason that it wrote itself is none of it."""
    status = replacement.status
    return (
        status.current,
        status.stuck_since,
        status.attempts,
        status.forgiven_attempts,
        status.evicted_owners,
        replacement.metadata.generation,
        replacement.metadata.deletion_timestamp,
    )


def _slot(drain: NodeDrain) -> object:
    """Return what decides whether the drain holds a slot."""
    return has_ended(drain), is_on_hold(drain), is_refused(drain)


def _identity(node: Node) -> object:
    """Return what admission sees of a node; heartbeats are none of it."""
    # That of other nodes decides nothing, and a large cluster has a lot of it.
    readiness = node.is_control_plane and node.is_ready
    return node.metadata.uid, node.metadata.labels, readiness


def _leaving(pod: Pod) -> object:
    return pod.metadata.deletion_timestamp is not None
