"""Where the pods of a node could go: the scheduler's hard rules, looked at beforehand. Pure.

It errs towards silence: a rule that it does not know, or that it cannot read, forbids
nothing. Spread constraints, host ports and preferences are among them.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import msgspec

from navarchos.client.selectors import LabelSelectorRequirement, Operator, Requirement, Selector
from navarchos.client.taints import is_tolerated
from navarchos.errors import ConfigError
from navarchos.operator.preflight.capacity import free_capacity, insufficient, requests_of
from navarchos.operator.preflight.kinds import (
    NodeTerm,
    NodeTerms,
    PersistentVolume,
    PlanNode,
    PlanPod,
    PodTerm,
    VolumeClaim,
)

__all__ = ["PlacementCheck", "PlacementFailure", "UnplaceablePod"]

_HOSTNAME: Final = "kubernetes.io/hostname"


class PlacementFailure(IntEnum):
    """What keeps a pod off a node, in the order in which it is looked at.

    The highest of all nodes is the one worth telling: with that out of the way the pod
    would have a place.
    """

    UNSCHEDULABLE = 1
    LABELS = 2
    TAINTS = 3
    VOLUME = 4
    AFFINITY = 5
    CAPACITY = 6
    CAPACITY_COMBINED = 7
    """It finds room, but not beside the others of its node."""


@dataclass(frozen=True, slots=True)
class UnplaceablePod:
    """A pod that would find no place on any other node.

    Attributes:
        pod: The pod; of several that find no room together, the first.
        obstacle: What is in the way of the node that comes closest.
        pinned: Whether its own rules name the very node that it has to leave.
        detail: The labels, taints, volume or resources in question.
        count: How many pods of the node it stands for.
    """

    pod: PlanPod
    obstacle: PlacementFailure
    pinned: bool = False
    detail: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class _NodeSlot:
    machine: PlanNode
    room: Mapping[str, int]

    @property
    def name(self) -> str:
        return self.machine.metadata.name

    @property
    def is_open(self) -> bool:
        return self.machine.is_ready and not self.machine.spec.unschedulable

    @property
    def labels(self) -> Mapping[str, str]:
        return self.machine.metadata.labels


@dataclass(slots=True)
class _EquivalenceClass:
    """Pods that may be on the same nodes, and those nodes, found as far as needed."""

    pod: PlanPod
    rest: Iterator[_NodeSlot]
    fits: list[_NodeSlot] = field(default_factory=list)


class PlacementCheck:
    """Looks for places for the pods of one node after the other.

    Args:
        machines: All nodes.
        pods: All pods.
        claims: By namespace and name; `None` if they may not be read, and then volumes
            bind nobody.
        volumes: By name.
    """

    def __init__(
        self,
        machines: Iterable[PlanNode],
        pods: Iterable[PlanPod],
        claims: Mapping[tuple[str, str], VolumeClaim] | None,
        volumes: Mapping[str, PersistentVolume] | None,
    ) -> None:
        on: dict[str, list[PlanPod]] = defaultdict(list)
        self._in_namespace: dict[str, list[PlanPod]] = defaultdict(list)
        for pod in pods:
            if pod.spec.node_name and not pod.is_finished:
                on[pod.spec.node_name].append(pod)
                self._in_namespace[pod.metadata.namespace].append(pod)
        seats = [_NodeSlot(m, free_capacity(m, on[m.metadata.name])) for m in machines]
        # The emptiest first: most searches end with the first look.
        self._seats = sorted(seats, key=lambda seat: (-seat.room.get("cpu", 0), seat.name))
        self._labels = {seat.name: seat.labels for seat in seats}
        self._claims, self._volumes = claims, volumes
        self._max_free: dict[str, float] = {}
        self._shapes: dict[bytes, _EquivalenceClass] = {}
        self._domains: dict[bytes, dict[str, set[str]]] = {}

    def unplaceable(self, node: str, leaving: Sequence[PlanPod]) -> Iterator[UnplaceablePod]:
        """Yield the pods of a node that would find no place, were they all to move now."""
        taken: dict[str, Counter[str]] = defaultdict(Counter)
        crowd: list[tuple[PlanPod, str]] = []
        wanted = {pod.metadata.uid: requests_of(pod) for pod in leaving}
        for pod in sorted(leaving, key=lambda p: (-wanted[p.metadata.uid]["cpu"], p.metadata.name)):
            requests = wanted[pod.metadata.uid]
            if short := self._exceeds_every_node(requests):
                yield UnplaceablePod(pod, PlacementFailure.CAPACITY, detail=", ".join(short))
                continue
            seat = self._seat_for(pod, requests, node, taken)
            if seat is not None:
                taken[seat.name].update(requests)
            elif self._seat_for(pod, requests, node, {}) is not None:
                crowd.append((pod, ", ".join(self._short(pod, node, taken))))
            else:
                yield self._unplaceable(pod, node)
        if crowd:
            first, detail = crowd[0]
            yield UnplaceablePod(
                first, PlacementFailure.CAPACITY_COMBINED, detail=detail, count=len(crowd)
            )

    def _exceeds_every_node(self, requests: Mapping[str, int]) -> list[str]:
        """Return the resources of which no open node has enough left.

        Only saves looks: in a full cluster each pod would be held against each node.
        """
        return sorted(name for name, amount in requests.items() if amount > self._max_free_of(name))

    def _max_free_of(self, name: str) -> float:
        if name not in self._max_free:
            rooms = [seat.room for seat in self._seats if seat.is_open]
            unlimited = not rooms or ("/" not in name and any(name not in room for room in rooms))
            most = max((room.get(name, 0) for room in rooms), default=0)
            self._max_free[name] = math.inf if unlimited else max(most, 0)
        return self._max_free[name]

    def _seat_for(
        self,
        pod: PlanPod,
        requests: Mapping[str, int],
        node: str,
        taken: Mapping[str, Mapping[str, int]],
    ) -> _NodeSlot | None:
        return next(
            (
                seat
                for seat in self._candidates(pod, node)
                if not insufficient(requests, seat.room, taken.get(seat.name, {}))
            ),
            None,
        )

    def _candidates(self, pod: PlanPod, node: str) -> Iterator[_NodeSlot]:
        """Yield the other nodes that would take the pod if they had room."""
        for seat in self._fitting(self._shape(pod)):
            if seat.name != node and self._affinity_allows(pod, seat, node):
                yield seat

    def _shape(self, pod: PlanPod) -> _EquivalenceClass:
        spec = pod.spec
        bound = self._bound(pod)
        key = msgspec.json.encode(
            (spec.node_selector, spec.affinity, spec.tolerations, [v.metadata.name for v in bound]),
            order="deterministic",
        )
        return self._shapes.setdefault(key, _EquivalenceClass(pod, iter(self._seats)))

    def _fitting(self, shape: _EquivalenceClass) -> Iterator[_NodeSlot]:
        position = 0
        while True:
            if position < len(shape.fits):
                yield shape.fits[position]
                position += 1
                continue
            seat = next(shape.rest, None)
            if seat is None:
                return
            if self._obstacle(shape.pod, seat) is None:
                shape.fits.append(seat)

    def _obstacle(self, pod: PlanPod, seat: _NodeSlot) -> PlacementFailure | None:
        machine, spec = seat.machine, pod.spec
        if not seat.is_open:
            return PlacementFailure.UNSCHEDULABLE
        if not _wants(pod, machine):
            return PlacementFailure.LABELS
        for taint in machine.spec.taints:
            if taint.effect != "PreferNoSchedule" and not is_tolerated(taint, spec.tolerations):
                return PlacementFailure.TAINTS
        if not all(_reaches(volume, machine) for volume in self._bound(pod)):
            return PlacementFailure.VOLUME
        return None

    def _bound(self, pod: PlanPod) -> list[PersistentVolume]:
        if self._claims is None or self._volumes is None:
            return []
        sources = (v.persistent_volume_claim for v in pod.spec.volumes)
        claims = (
            self._claims.get((pod.metadata.namespace, source.claim_name))
            for source in sources
            if source is not None
        )
        volumes = (self._volumes.get(c.spec.volume_name) for c in claims if c is not None)
        return [volume for volume in volumes if volume is not None]

    def _affinity_allows(self, pod: PlanPod, seat: _NodeSlot, node: str) -> bool:
        affinity = pod.spec.affinity
        if affinity is None:
            return True
        for term in affinity.pod_anti_affinity.required:
            if self._neighbours(pod, term, seat) - {node}:
                return False
        # The pods that leave with it may go along, so those of its node count.
        return all(
            self._neighbours(pod, term, seat) or _matches_itself(pod, term)
            for term in affinity.pod_affinity.required
        )

    def _neighbours(self, pod: PlanPod, term: PodTerm, seat: _NodeSlot) -> set[str]:
        """Return the nodes with pods of the term, in the place that the node belongs to."""
        value = seat.labels.get(term.topology_key)
        if value is None:
            return set()
        key = msgspec.json.encode((pod.metadata.namespace, term), order="deterministic")
        if key not in self._domains:
            self._domains[key] = self._spread(pod, term)
        return self._domains[key].get(value, set())

    def _spread(self, pod: PlanPod, term: PodTerm) -> dict[str, set[str]]:
        selector = _selector(term)
        found: dict[str, set[str]] = defaultdict(set)
        if selector is None or term.namespace_selector is not None:
            return found
        for namespace in term.namespaces or (pod.metadata.namespace,):
            for other in self._in_namespace[namespace]:
                place = self._labels.get(other.spec.node_name, {}).get(term.topology_key)
                if place is not None and selector.matches(other.metadata.labels):
                    found[place].add(other.spec.node_name)
        return found

    def _unplaceable(self, pod: PlanPod, node: str) -> UnplaceablePod:
        others = [seat for seat in self._seats if seat.name != node]
        obstacles = {seat.name: self._why_not(pod, seat, node) for seat in others}
        closest = max(obstacles.values(), default=PlacementFailure.UNSCHEDULABLE)
        near = [seat for seat in others if obstacles[seat.name] is closest]
        return UnplaceablePod(
            pod,
            closest,
            pinned=closest in {PlacementFailure.LABELS, PlacementFailure.VOLUME}
            and self._is_pinned(pod),
            detail=", ".join(self._detail(pod, closest, near)),
        )

    def _why_not(self, pod: PlanPod, seat: _NodeSlot, node: str) -> PlacementFailure:
        obstacle = self._obstacle(pod, seat)
        if obstacle is not None:
            return obstacle
        return (
            PlacementFailure.CAPACITY
            if self._affinity_allows(pod, seat, node)
            else PlacementFailure.AFFINITY
        )

    def _detail(
        self, pod: PlanPod, obstacle: PlacementFailure, near: Sequence[_NodeSlot]
    ) -> Iterable[str]:
        match obstacle:
            case PlacementFailure.LABELS:
                return _required_labels(pod)
            case PlacementFailure.TAINTS:
                taints = (t for seat in near for t in seat.machine.spec.taints)
                hard = (t for t in taints if t.effect != "PreferNoSchedule")
                tolerations = pod.spec.tolerations
                return sorted({t.key for t in hard if not is_tolerated(t, tolerations)})
            case PlacementFailure.VOLUME:
                return [volume.metadata.name for volume in self._bound(pod)]
            case PlacementFailure.CAPACITY:
                wanted = requests_of(pod)
                return sorted(
                    {name for seat in near for name in insufficient(wanted, seat.room, {})}
                )
            case _:
                return ()

    def _short(self, pod: PlanPod, node: str, taken: Mapping[str, Mapping[str, int]]) -> list[str]:
        wanted = requests_of(pod)
        seats = self._candidates(pod, node)
        short = {
            n for seat in seats for n in insufficient(wanted, seat.room, taken.get(seat.name, {}))
        }
        return sorted(short)

    def _is_pinned(self, pod: PlanPod) -> bool:
        terms = [pod.spec.affinity.node_affinity.required] if pod.spec.affinity else []
        terms += [volume.spec.node_affinity.required for volume in self._bound(pod)]
        return _HOSTNAME in pod.spec.node_selector or any(map(_names_a_node, terms))


def _wants(pod: PlanPod, machine: PlanNode) -> bool:
    labels, selector = machine.metadata.labels, pod.spec.node_selector
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    required = pod.spec.affinity.node_affinity.required if pod.spec.affinity else None
    return _is_one_of(required, machine)


def _reaches(volume: PersistentVolume, machine: PlanNode) -> bool:
    return _is_one_of(volume.spec.node_affinity.required, machine)


def _is_one_of(terms: NodeTerms | None, machine: PlanNode) -> bool:
    if terms is None:
        return True
    labels, fields = machine.metadata.labels, {"metadata.name": machine.metadata.name}
    return any(
        all(_holds(each, labels) for each in term.match_expressions)
        and all(_holds(each, fields) for each in term.match_fields)
        for term in terms.node_selector_terms
        if term.match_expressions or term.match_fields  # an empty term matches nothing
    )


def _holds(expression: LabelSelectorRequirement, values: Mapping[str, str]) -> bool:
    try:
        operator = Operator(expression.operator)
        return Requirement(expression.key, operator, expression.values).matches(values)
    except (ConfigError, ValueError):
        return True


def _names_a_node(terms: NodeTerms | None) -> bool:
    def does(term: NodeTerm) -> bool:
        named = (e for e in term.match_expressions if e.key == _HOSTNAME)
        return bool(term.match_fields) or any(e.operator == Operator.IN for e in named)

    return terms is not None and all(map(does, terms.node_selector_terms))


def _required_labels(pod: PlanPod) -> Iterable[str]:
    yield from (f"{key}={value}" for key, value in sorted(pod.spec.node_selector.items()))
    required = pod.spec.affinity.node_affinity.required if pod.spec.affinity else None
    for term in required.node_selector_terms if required is not None else ():
        for each in (*term.match_expressions, *term.match_fields):
            yield " ".join((each.key, each.operator, *each.values))


def _selector(term: PodTerm) -> Selector | None:
    try:
        return Selector.from_spec(term.label_selector)
    except ConfigError:
        return None


def _matches_itself(pod: PlanPod, term: PodTerm) -> bool:
    """Tell whether it would be its own company, as the first of its kind may be."""
    selector = _selector(term)
    if selector is None or term.namespace_selector is not None:
        return True
    return selector.matches(pod.metadata.labels)
