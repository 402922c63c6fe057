"""Where pods go: the books of the scheduler, and its choice.

The books are kept by the events of pods and nodes, one step per event, so that
a choice needs no scan over pods. They also hold what has been decided and is not
in the cache yet (upstream's *assumed* pods).
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from navarchos.client.taints import Taint, is_tolerated
from navarchos.quantities import parse_quantity
from navarchos.testing.cluster.constraints import Domains, Neighbours, NodeFilter
from navarchos.testing.cluster.kinds import Node, Pod

__all__ = ["Placement", "requests_of", "why_not"]

_SAMPLE: Final = 16
"""So many feasible nodes are compared; upstream samples large clusters too."""

_SIBLING_WEIGHT: Final = 2
"""A sibling on the node counts like so many other pods: replicas spread."""

_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
_ROOM: Final = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class _Booking:
    node: str
    owner: str
    requests: Mapping[str, int]


@dataclass(slots=True)
class _Seat:
    """A node, or the memory of one: pods may be known before and after it."""

    node: Node | None = None
    pods: int = 0
    requested: Counter[str] = field(default_factory=Counter)
    owners: Counter[str] = field(default_factory=Counter)


class Placement:
    """Chooses a node for each pod.

    Among the least loaded nodes that fit, the one with the fewest pods wins,
    siblings (pods of the same controller) weighing more, then the youngest: so
    pods that were moved go to machines that are new and empty. A node with a soft
    taint that the pod does not tolerate comes after all that have none.

    Threads: safe from any thread. `place` chooses and books in one step, so two
    workers never give the same room away twice.
    """

    def __init__(self) -> None:
        self._neighbours = Neighbours()  # guarded by _books_lock
        self._nodes: dict[str, Node] = {}  # guarded by _books_lock; those that exist
        self._books_lock = threading.Lock()
        self._seats: dict[str, _Seat] = defaultdict(_Seat)  # guarded by _books_lock
        self._bookings: dict[str, _Booking] = {}  # guarded by _books_lock; by pod uid
        # Names of existing nodes by number of pods. guarded by _books_lock
        self._levels: dict[int, dict[str, None]] = defaultdict(dict)

    def set_node(self, node: Node) -> None:
        """Take note of a node as it is now."""
        with self._books_lock:
            name = node.metadata.name
            seat = self._seats[name]
            seat.node = self._nodes[name] = node
            self._levels[seat.pods][name] = None

    def remove_node(self, name: str) -> None:
        """Forget a node. The bookings of its pods end when they do."""
        with self._books_lock:
            seat = self._seats[name]
            seat.node = None
            self._nodes.pop(name, None)
            self._levels[seat.pods].pop(name, None)
            self._forget_seat_locked(name)

    def set_pod(self, pod: Pod) -> None:
        """Take note of a pod as it is now. One without a node says nothing new."""
        uid = pod.metadata.uid
        if not pod.spec.node_name:
            return
        with self._books_lock:
            if pod.is_finished:
                self._unbook_locked(uid)
            elif uid not in self._bookings or self._bookings[uid].node != pod.spec.node_name:
                self._unbook_locked(uid)
                self._book_locked(pod, pod.spec.node_name)
            else:
                self._neighbours.add(pod, pod.spec.node_name)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod: it is gone, or could not be bound."""
        with self._books_lock:
            self._unbook_locked(uid)

    def place(self, pod: Pod) -> str | None:
        """Return the node for a pod and book its room there, or `None`: none fits.

        A pod that has a booking keeps its node, so asking twice is harmless.
        """
        with self._books_lock:
            held = self._bookings.get(pod.metadata.uid)
            if held is not None:
                return held.node
            owner = pod.owner.uid if pod.owner is not None else ""
            best = min(
                self._candidates_locked(pod),
                key=lambda seat: _rank(seat, owner),
                default=None,
            )
            if best is None or best.node is None:
                return None
            name = best.node.metadata.name
            self._book_locked(pod, name)
            return name

    def pods_on(self, node: str) -> int:
        """Return how many pods are on a node, booked ones included."""
        with self._books_lock:
            return self._seats[node].pods if node in self._seats else 0

    def _candidates_locked(self, pod: Pod) -> Sequence[_Seat]:
        preferred: list[_Seat] = []
        others: list[_Seat] = []
        for seat in self._feasible_locked(pod):
            assert seat.node is not None
            (others if _is_avoided(pod, seat.node) else preferred).append(seat)
            if len(preferred) >= _SAMPLE:
                break
        return preferred or others[:_SAMPLE]

    def _feasible_locked(self, pod: Pod) -> Iterator[_Seat]:
        """Generate the nodes that a pod fits on, the least loaded first."""
        requests, wanted = requests_of(pod), NodeFilter(pod.spec)
        domains = Domains(pod, self._neighbours, self._nodes)
        for level in sorted(self._levels):
            for name in self._levels[level]:
                seat = self._seats[name]
                if seat.node is None or _why_closed(pod, seat.node):
                    continue
                if wanted.why_not(seat.node) or domains.why_not(seat.node):
                    continue
                if _has_room(seat, requests):
                    yield seat

    def _book_locked(self, pod: Pod, node: str) -> None:
        owner = pod.owner.uid if pod.owner is not None else ""
        booking = _Booking(node, owner, requests_of(pod))
        self._bookings[pod.metadata.uid] = booking
        self._neighbours.add(pod, node)
        self._count_locked(booking, 1)

    def _unbook_locked(self, uid: str) -> None:
        booking = self._bookings.pop(uid, None)
        self._neighbours.remove(uid)
        if booking is not None:
            self._count_locked(booking, -1)
            self._forget_seat_locked(booking.node)

    def _count_locked(self, booking: _Booking, sign: int) -> None:
        seat = self._seats[booking.node]
        if seat.node is not None:
            self._levels[seat.pods].pop(booking.node, None)
            self._levels[seat.pods + sign][booking.node] = None
        seat.pods += sign
        for name, amount in booking.requests.items():
            seat.requested[name] += sign * amount
        seat.owners[booking.owner] += sign
        if not seat.owners[booking.owner]:
            del seat.owners[booking.owner]

    def _forget_seat_locked(self, name: str) -> None:
        """Drop the seat of a node that is gone, once nothing is booked on it."""
        seat = self._seats[name]
        if seat.node is None and not seat.pods:
            del self._seats[name]


def why_not(pod: Pod, node: Node) -> str:
    """Return why a pod may not come to a node, whatever is there; "" if it may."""
    return _why_closed(pod, node) or NodeFilter(pod.spec).why_not(node)


def _why_closed(pod: Pod, node: Node) -> str:
    if not node.is_ready:
        return "the node is not ready"
    if node.spec.unschedulable and not is_tolerated(_UNSCHEDULABLE, pod.spec.tolerations):
        return "the node is unschedulable"
    for taint in node.spec.taints:
        if taint.effect == "PreferNoSchedule" or is_tolerated(taint, pod.spec.tolerations):
            continue
        return f"the pod does not tolerate the taint {taint.key}"
    return ""


def _is_avoided(pod: Pod, node: Node) -> bool:
    return any(
        taint.effect == "PreferNoSchedule" and not is_tolerated(taint, pod.spec.tolerations)
        for taint in node.spec.taints
    )


def requests_of(pod: Pod) -> Mapping[str, int]:
    """Return what a pod asks for, in thousandths, summed over its containers."""
    total: Counter[str] = Counter()
    for container in pod.spec.containers:
        for name in _ROOM:
            amount = container.resources.requests.get(name)
            if amount is not None:
                total[name] += parse_quantity(amount)
    return total


def _has_room(seat: _Seat, requests: Mapping[str, int]) -> bool:
    assert seat.node is not None
    room = seat.node.status.allocatable
    if "pods" in room and parse_quantity(room["pods"]) < (seat.pods + 1) * 1000:
        return False
    return all(
        name not in room or seat.requested[name] + amount <= parse_quantity(room[name])
        for name, amount in requests.items()
    )


def _rank(seat: _Seat, owner: str) -> tuple[int, float, str]:
    assert seat.node is not None
    metadata = seat.node.metadata
    created = metadata.creation_timestamp
    siblings = seat.owners[owner] if owner else 0
    return (
        seat.pods + _SIBLING_WEIGHT * siblings,
        -created.timestamp() if created is not None else 0.0,
        metadata.name,
    )
