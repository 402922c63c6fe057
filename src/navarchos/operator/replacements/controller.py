"""The replacements' controller: its watches, and the requests that changes cause."""

from collections.abc import Callable, Iterable

from navarchos.drain import BUDGETS, PODS
from navarchos.meta import controller_of
from navarchos.operator.actions import Actions
from navarchos.operator.api import v1alpha1 as api
from navarchos.operator.clients import NODE_INDEX, OWNER_INDEX, OperatorClients
from navarchos.operator.gates import GateMonitor
from navarchos.operator.nodes import NODES, Node
from navarchos.operator.owners import Owners
from navarchos.operator.replacements import snapshot
from navarchos.operator.replacements.admission_loop import AdmissionInputs, AdmissionLoop
from navarchos.operator.replacements.budgets import BudgetLookup
from navarchos.operator.replacements.daemon_sets import DaemonSetWatches
from navarchos.operator.replacements.events import ReplacementEvents
from navarchos.operator.replacements.metrics import ReplacementMetrics
from navarchos.operator.replacements.pipeline import Pipeline
from navarchos.operator.replacements.preparation import NodePreparation
from navarchos.operator.replacements.reconciler import ADMISSION, ReplacementReconciler
from navarchos.operator.replacements.stalled import is_on_hold, is_refused
from navarchos.operator.replacements.verification import Verifier
from navarchos.operator.slots import DRAINS, ROLLOUTS, Slots
from navarchos.parallel import WorkerPool
from navarchos.runtime import Builder, Channel, Controller, Manager, Request
from navarchos.runtime.predicates import changed

__all__ = ["add_to_manager"]


def add_to_manager(
    manager: Manager,
    clients: OperatorClients,
    worker_pool: WorkerPool,
    actions: Actions,
    owners: Owners,
    slots: Slots,
    gates: GateMonitor | None,
) -> Controller:
    """Add the controller of replacements, with its one worker, to a manager.

    Every change of an object that admission decides from causes the one request `ADMISSION`, so
    that any number of changes is one run. The worker pool writes wait reasons.
    """

    def requests_of_node(node: Node) -> Iterable[Request]:
        replacements = clients.replacements.by_index(NODE_INDEX, node.metadata.name)
        return (ADMISSION, *(Request("", each.metadata.name) for each in replacements))

    def verified_on(node: Node) -> Iterable[Request]:
        replacements = clients.replacements.by_index(NODE_INDEX, node.metadata.name)
        return [
            Request("", each.metadata.name)
            for each in replacements
            if each.status.current is api.Step.VERIFYING
        ]

    awake = Channel()

    def owner_changed(uid: str) -> None:
        awake.send(ADMISSION)
        for replacement in clients.replacements.by_index(OWNER_INDEX, uid):
            awake.send(Request("", replacement.metadata.name))

    def gate_changed(rollout: str) -> None:
        awake.send(ADMISSION)
        found = clients.rollouts.find(rollout)
        if found is not None and any(gate.after for gate in found.spec.gates):
            owner_changed(found.metadata.uid)

    owners.listen(owner_changed)
    if gates is not None:
        gates.on_change(gate_changed)
    events = ReplacementEvents(manager.recorder)
    pending = manager.informer(snapshot.PENDING_PODS, field_selector=snapshot.PENDING_SELECTOR)
    budgets = manager.informer(BUDGETS)
    inputs = AdmissionInputs(
        snapshot.ClusterReader(clients, pending.lister.list, slots, owners, gates).snapshot,
        BudgetLookup(
            manager.client.resource(PODS),
            lambda namespace: budgets.lister.list(namespace=namespace),
            manager.clock,
        ),
        slots,
        NodePreparation(actions),
        gates,
    )
    admission = AdmissionLoop(
        inputs,
        clients.replacements,
        events,
        ReplacementMetrics(manager.instruments),
        worker_pool,
        manager.clock,
    )

    daemon_sets = DaemonSetWatches(
        manager.client,
        wake=lambda name: awake.send(Request("", name)),
        clock=manager.clock,
        instruments=manager.instruments,
    )
    manager.add(daemon_sets, name="verified-daemon-sets")
    verifier = Verifier(daemon_sets, gates, _rollout_finder(clients, owners))
    pipeline = Pipeline(clients, events, manager.clock, actions, owners, verifier)
    controller = (
        Builder(manager, "replacements", options=manager.options.controllers_with(workers=1))
        .for_(api.NODE_REPLACEMENTS)
        .owns(api.NODE_DRAINS)
        .watches(api.NODE_REPLACEMENTS, map=_admission, when=changed(_admission_inputs))
        .watches(api.NODE_ROLLOUTS, map=_admission)
        .watches(api.NODE_DRAINS, map=_admission, when=changed(_slot_state))
        .watches_channel(actions.channel, "actions")
        .watches(NODES, map=requests_of_node, when=changed(_node_inputs))
        .watches(NODES, map=verified_on, when=changed(_verified_inputs))
        .watches(
            snapshot.PENDING_PODS,
            map=_admission,
            when=changed(_is_terminating),
            field_selector=snapshot.PENDING_SELECTOR,
        )
        .watches_channel(awake, "owners")
        .build(ReplacementReconciler(clients, admission, pipeline))
    )

    def admission_is_due() -> None:
        admission.slots_changed()
        controller.queue.add(ADMISSION)

    slots.add_admission(
        ROLLOUTS, admission_is_due, confirm=admission.confirm_unanswered_writes, sees=(DRAINS,)
    )
    return controller


def _rollout_finder(
    clients: OperatorClients, owners: Owners
) -> Callable[[api.NodeReplacement], api.NodeRollout | None]:
    """Return a function that finds the rollout, or other owner, of a replacement."""

    def rollout_of(replacement: api.NodeReplacement) -> api.NodeRollout | None:
        if owners.is_registered(replacement):
            return owners.view_of(replacement)
        owner = controller_of(replacement.metadata)
        found = clients.rollouts.find(owner.name) if owner is not None else None
        is_owner = found is not None and owner is not None and found.metadata.uid == owner.uid
        return found if is_owner else None

    return rollout_of


def _admission(_: object) -> Iterable[Request]:
    return (ADMISSION,)


def _admission_inputs(replacement: api.NodeReplacement) -> object:
    """Return what admission decides from; not the wait reason, which admission itself writes."""
    status = replacement.status
    return (
        status.current,
        status.stalled_since,
        status.attempts,
        status.reset_attempts,
        status.evicted_owners,
        replacement.metadata.generation,
        replacement.metadata.deletion_timestamp,
    )


def _slot_state(drain: api.NodeDrain) -> object:
    """Return what decides whether the node of a drain occupies a slot."""
    return drain.status.is_final, is_on_hold(drain), is_refused(drain)


def _node_inputs(node: Node) -> object:
    """Return what admission decides from; heartbeats are left out."""
    # The readiness of a worker decides nothing, and a large cluster has many changes of it.
    readiness = node.is_control_plane and node.is_ready
    return node.metadata.uid, node.metadata.labels, readiness


def _verified_inputs(node: Node) -> object:
    """Return what the verification of a node decides from; heartbeats are left out."""
    status = node.status
    return node.is_ready, node.ready_since, status.node_info, node.spec.taints, node.metadata.uid


def _is_terminating(pod: snapshot.CachedPod) -> object:
    return pod.metadata.deletion_timestamp is not None
