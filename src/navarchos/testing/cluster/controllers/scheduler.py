"""The scheduler: binds pods that have no node."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from navarchos.client import ApiError, Conflict, NotFound
from navarchos.informers import HandlerOptions, Tombstone
from navarchos.placement import node_rules
from navarchos.placement.pod_rules import PodAffinityRule, PodIndex, TopologySpreadRule
from navarchos.runtime import DONE, Builder, Reconciler, Request, Result
from navarchos.testing.cluster import kinds, options
from navarchos.testing.cluster.context import SimulatorContext
from navarchos.testing.cluster.pods import unschedulable_status

__all__ = ["Placement", "PodScheduler", "install", "is_waiting", "why_not"]

_SAMPLE: Final = 16
"""The number of feasible nodes that are compared. Upstream samples large clusters too."""

_SIBLING_WEIGHT: Final = 2
"""The weight of a pod of the same controller, beside 1 for any other pod: replicas spread."""


@dataclass(frozen=True, slots=True)
class _Reservation:
    """A pod on a node, with what it reserves there."""

    node: str
    owner: str
    amounts: Mapping[str, int]


@dataclass(slots=True)
class _ScheduledNode:
    """The pods of a node. Pods can be known before their node exists and after it is deleted."""

    node: kinds.Node | None = None
    allocatable: Mapping[str, int] = field(default_factory=dict)
    pods: int = 0
    reserved: Counter[str] = field(default_factory=Counter)
    owners: Counter[str] = field(default_factory=Counter)


class Placement:
    """Chooses a node for each pod.

    Among the least loaded nodes that fit, the one with the fewest pods wins, then the
    youngest. Siblings (pods of the same controller) weigh more. So evicted pods move to
    nodes that are new and empty. A node with a soft taint that the pod does not tolerate
    is chosen only if there is no node without one.

    Threads: safe from any thread. `place` chooses and reserves in one step, so that two
    workers never use the same capacity twice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pod_index = PodIndex()  # guarded by _lock
        self._nodes: dict[str, kinds.Node] = {}  # guarded by _lock; existing nodes only
        self._slots: dict[str, _ScheduledNode] = defaultdict(_ScheduledNode)  # guarded by _lock
        self._reservations: dict[str, _Reservation] = {}  # guarded by _lock; by pod uid
        # Names of existing nodes by number of pods. guarded by _lock
        self._levels: dict[int, dict[str, None]] = defaultdict(dict)

    def set_node(self, node: kinds.Node) -> None:
        """Add or update a node."""
        with self._lock:
            name = node.metadata.name
            slot = self._slots[name]
            slot.node = self._nodes[name] = node
            slot.allocatable = node_rules.amounts_of(node.status.allocatable)
            self._levels[slot.pods][name] = None

    def remove_node(self, name: str) -> None:
        """Remove a node. The reservations of its pods end when the pods do."""
        with self._lock:
            slot = self._slots[name]
            slot.node = None
            self._nodes.pop(name, None)
            self._levels[slot.pods].pop(name, None)
            self._drop_slot_locked(name)

    def set_pod(self, pod: kinds.Pod) -> None:
        """Add or update a pod. A pod without a node changes nothing."""
        uid = pod.metadata.uid
        if not pod.spec.node_name:
            return
        with self._lock:
            if pod.is_finished:
                self._release_locked(uid)
            elif (
                uid not in self._reservations or self._reservations[uid].node != pod.spec.node_name
            ):
                self._release_locked(uid)
                self._reserve_locked(pod, pod.spec.node_name, node_rules.reservation_of(pod))
            else:
                self._pod_index.add(pod, pod.spec.node_name)

    def remove_pod(self, uid: str) -> None:
        """Remove a pod that was deleted or could not be bound."""
        with self._lock:
            self._release_locked(uid)

    def place(self, pod: kinds.Pod) -> str | None:
        """Choose a node for a pod and reserve its capacity there; `None` if no node fits.

        A pod that has a reservation keeps its node, so a repeated call is harmless.
        """
        with self._lock:
            held = self._reservations.get(pod.metadata.uid)
            if held is not None:
                return held.node
            owner = pod.owner.uid if pod.owner is not None else ""
            wanted = node_rules.reservation_of(pod)
            best = min(
                self._candidates_locked(pod, wanted),
                key=lambda slot: _rank(slot, owner),
                default=None,
            )
            if best is None or best.node is None:
                return None
            name = best.node.metadata.name
            self._reserve_locked(pod, name, wanted)
            return name

    def pods_on(self, node: str) -> int:
        """Return the number of pods on a node, including pods that were only placed."""
        with self._lock:
            return self._slots[node].pods if node in self._slots else 0

    def _candidates_locked(
        self, pod: kinds.Pod, wanted: Mapping[str, int]
    ) -> Sequence[_ScheduledNode]:
        preferred: list[_ScheduledNode] = []
        others: list[_ScheduledNode] = []
        for slot in self._feasible_locked(pod, wanted):
            assert slot.node is not None
            (others if _is_avoided(pod, slot.node) else preferred).append(slot)
            if len(preferred) >= _SAMPLE:
                break
        return preferred or others[:_SAMPLE]

    def _feasible_locked(
        self, pod: kinds.Pod, wanted: Mapping[str, int]
    ) -> Iterator[_ScheduledNode]:
        """Yield the nodes that a pod fits on, the least loaded first."""
        spec, index = pod.spec, self._pod_index
        node_affinity = node_rules.NodeAffinityRule(spec.node_selector, spec.affinity)
        pod_affinity = PodAffinityRule(pod, index, self._nodes)
        constraints = spec.topology_spread_constraints
        spread = TopologySpreadRule(pod, constraints, index, self._nodes.values())
        for level in sorted(self._levels):
            for name in self._levels[level]:
                slot = self._slots[name]
                node = slot.node
                if node is None or _why_closed(pod, node) or node_affinity.why_not(node):
                    continue
                if pod_affinity.why_not(node) or spread.why_not(node):
                    continue
                if not node_rules.insufficient(wanted, slot.allocatable, slot.reserved):
                    yield slot

    def _reserve_locked(self, pod: kinds.Pod, node: str, amounts: Mapping[str, int]) -> None:
        owner = pod.owner.uid if pod.owner is not None else ""
        reservation = _Reservation(node, owner, amounts)
        self._reservations[pod.metadata.uid] = reservation
        self._pod_index.add(pod, node)
        self._count_locked(reservation, 1)

    def _release_locked(self, uid: str) -> None:
        reservation = self._reservations.pop(uid, None)
        self._pod_index.remove(uid)
        if reservation is not None:
            self._count_locked(reservation, -1)
            self._drop_slot_locked(reservation.node)

    def _count_locked(self, reservation: _Reservation, sign: int) -> None:
        slot = self._slots[reservation.node]
        if slot.node is not None:
            self._levels[slot.pods].pop(reservation.node, None)
            self._levels[slot.pods + sign][reservation.node] = None
        slot.pods += sign
        for name, amount in reservation.amounts.items():
            slot.reserved[name] += sign * amount
        slot.owners[reservation.owner] += sign
        if not slot.owners[reservation.owner]:
            del slot.owners[reservation.owner]

    def _drop_slot_locked(self, name: str) -> None:
        """Drop the slot of a deleted node as soon as no pod is on it."""
        slot = self._slots[name]
        if slot.node is None and not slot.pods:
            del self._slots[name]


def why_not(pod: kinds.Pod, node: kinds.Node) -> str:
    """Return why a pod cannot run on a node, other pods aside; an empty string if it can."""
    rule = node_rules.NodeAffinityRule(pod.spec.node_selector, pod.spec.affinity)
    return _why_closed(pod, node) or rule.why_not(node)


def _why_closed(pod: kinds.Pod, node: kinds.Node) -> str:
    # A real scheduler sees the not-ready taint, which the node controller adds.
    if not node.is_ready:
        return "the node is not ready"
    if node_rules.is_cordoned_for(node, pod.spec.tolerations):
        return "the node is unschedulable"
    taint = next(node_rules.untolerated_taints(node.spec.taints, pod.spec.tolerations), None)
    return f"the pod does not tolerate the taint {taint.key}" if taint is not None else ""


def _is_avoided(pod: kinds.Pod, node: kinds.Node) -> bool:
    return any(node_rules.untolerated_taints(node.spec.taints, pod.spec.tolerations, soft=True))


def _rank(slot: _ScheduledNode, owner: str) -> tuple[int, float, str]:
    assert slot.node is not None
    metadata = slot.node.metadata
    created = metadata.creation_timestamp
    siblings = slot.owners[owner] if owner else 0
    return (
        slot.pods + _SIBLING_WEIGHT * siblings,
        -created.timestamp() if created is not None else 0.0,
        metadata.name,
    )


_RETRY_AFTER: Final = 0.5
"""Seconds until an unschedulable pod is tried again."""


class PodScheduler(Reconciler):
    """Binds pods to nodes that `Placement` selects.

    Separate event handlers update the placement, independent of the controller's queue, so
    that each change of a pod or node is applied exactly once and in order.
    """

    def __init__(self, context: SimulatorContext) -> None:
        self._context = context
        self._pods = context.writer(options.Agent.SCHEDULER, kinds.PODS)
        self._placement = Placement()
        placement = self._placement
        self._feeds = (
            context.nodes.add_handler(
                options=HandlerOptions(name="scheduler-books"),
                on_add=lambda node, _initial: placement.set_node(node),
                on_update=lambda _old, node: placement.set_node(node),
                on_delete=lambda gone: placement.remove_node(_name_of(gone)),
            ),
            context.pods.add_handler(
                options=HandlerOptions(name="scheduler-books"),
                on_add=lambda pod, _initial: placement.set_pod(pod),
                on_update=self._pod_changed,
                on_delete=self._pod_gone,
            ),
        )

    def reconcile(self, request: Request) -> Result:
        """Find a node for one pod."""
        if not all(feed.has_synced() for feed in self._feeds):
            return Result(requeue_after=0.05)
        pod = self._context.pods.lister.find(request.name, request.namespace)
        if pod is None or not is_waiting(pod):
            return DONE
        node = self._placement.place(pod)
        if node is None:
            self._report_unschedulable(pod)
            return Result(requeue_after=_RETRY_AFTER)
        self._bind(pod, node)
        return DONE

    def requests_for(self, pod: kinds.Pod) -> Iterable[Request]:
        """Map a pod to itself while it has no node."""
        if is_waiting(pod):
            yield Request(pod.metadata.namespace, pod.metadata.name)

    def _bind(self, pod: kinds.Pod, node: str) -> None:
        metadata = pod.metadata
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            self._pods.create_subresource(metadata.name, "binding", binding, metadata.namespace)
        except (NotFound, Conflict):
            # The pod is deleted, terminating or already bound; its next event updates this.
            self._placement.remove_pod(metadata.uid)
        except ApiError:
            self._placement.remove_pod(metadata.uid)
            raise

    def _report_unschedulable(self, pod: kinds.Pod) -> None:
        if any(c.type == "PodScheduled" for c in pod.status.conditions):
            return
        count = len(self._context.nodes.store)
        message = f"0/{count} nodes are available: none is ready, untainted and has room."
        status = unschedulable_status(message, at=self._context.clock.now())
        metadata = pod.metadata
        try:
            written = self._pods.patch(
                metadata.name,
                {"status": status},
                metadata.namespace,
                subresource="status",
                uid=metadata.uid,
            )
        except (NotFound, Conflict):
            return  # deleted, or replaced by another pod of the same name
        self._context.pods.observe_write(written)

    def _pod_changed(self, old: kinds.Pod, new: kinds.Pod) -> None:
        if old.metadata.uid != new.metadata.uid:
            self._placement.remove_pod(old.metadata.uid)
        self._placement.set_pod(new)

    def _pod_gone(self, gone: kinds.Pod | Tombstone[kinds.Pod]) -> None:
        pod = gone.obj if isinstance(gone, Tombstone) else gone
        if pod is not None:
            self._placement.remove_pod(pod.metadata.uid)


def is_waiting(pod: kinds.Pod) -> bool:
    """Return whether a pod waits for a node."""
    return not pod.spec.node_name and pod.is_active


def _name_of(gone: kinds.Node | Tombstone[kinds.Node]) -> str:
    return gone.key if isinstance(gone, Tombstone) else gone.metadata.name


def install(context: SimulatorContext) -> None:
    """Add the controller to the manager."""
    reconciler = PodScheduler(context)
    (
        Builder(
            context.manager,
            "scheduler",
            options=context.manager.options.controllers_with(workers=2),
        )
        .watches(kinds.PODS, map=reconciler.requests_for)
        .build(reconciler)
    )
