"""Whether the pods of a node find another node, by the hard rules of kube-scheduler. Pure.

The check prefers silence to a false alarm: a rule that it does not know or cannot read
excludes no node. It does not evaluate topology spread constraints, host ports and
preferences.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, assert_never

import msgspec

from navarchos.client.selectors import Operator
from navarchos.operator.preflight.kinds import PersistentVolume, PlanNode, PlanPod, VolumeClaim
from navarchos.placement import kinds, node_rules, pod_rules

__all__ = ["PlacementCheck", "PlacementFailure", "UnplaceablePod"]

_HOSTNAME: Final = "kubernetes.io/hostname"


class PlacementFailure(IntEnum):
    """Why a pod cannot run on a node, in the order of the checks.

    The highest failure over all nodes is the one to report: the pod could be placed if
    that one were fixed.
    """

    UNSCHEDULABLE = 1
    LABELS = 2
    TAINTS = 3
    VOLUME = 4
    AFFINITY = 5
    CAPACITY = 6
    CAPACITY_COMBINED = 7
    """The pod fits alone, but not together with the other pods of its node."""


@dataclass(frozen=True, slots=True)
class UnplaceablePod:
    """A pod that fits on no other node.

    Attributes:
        pod: The pod. If several pods do not fit together, the first of them.
        failure: What is missing on the node that comes closest.
        pinned: Whether the rules of the pod name the node that it has to leave.
        detail: The labels, taints, volumes or resources in question.
        count: The number of pods of the node that this entry stands for.
    """

    pod: PlanPod
    failure: PlacementFailure
    pinned: bool = False
    detail: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class _NodeSlot:
    """A node, and what its pods leave free."""

    node: PlanNode
    free: node_rules.ResourceAmounts

    @property
    def name(self) -> str:
        return self.node.metadata.name


@dataclass(slots=True)
class _EquivalenceClass:
    """Pods to which the same nodes are open, and these nodes, found as far as needed."""

    pod: PlanPod
    affinity: node_rules.NodeAffinityRule
    volumes: tuple[node_rules.NodeSelectorRule, ...]
    rest: Iterator[_NodeSlot]
    fits: list[_NodeSlot] = field(default_factory=list)

    def failure(self, slot: _NodeSlot) -> PlacementFailure | None:
        """Return why no pod of the class can run on a node, capacity and other pods aside."""
        node, tolerations = slot.node, self.pod.spec.tolerations
        if not node.is_ready or node_rules.is_cordoned_for(node, tolerations):
            return PlacementFailure.UNSCHEDULABLE
        if self.affinity.why_not(node):
            return PlacementFailure.LABELS
        if any(node_rules.untolerated_taints(node.spec.taints, tolerations)):
            return PlacementFailure.TAINTS
        if not all(volume.matches(node) for volume in self.volumes):
            return PlacementFailure.VOLUME
        return None

    def candidates(self) -> Iterator[_NodeSlot]:
        """Yield the nodes that are open to the class. Each node is checked once."""
        position = 0
        while True:
            if position < len(self.fits):
                yield self.fits[position]
                position += 1
                continue
            slot = next(self.rest, None)
            if slot is None:
                return
            if self.failure(slot) is None:
                self.fits.append(slot)


class PlacementCheck:
    """Finds the pods of a node that fit on no other node.

    Args:
        nodes: All nodes.
        pods: All pods.
        claims: By namespace and name. `None` if they cannot be read; then no pod is
            bound to its volumes.
        volumes: By name.
    """

    def __init__(
        self,
        nodes: Iterable[PlanNode],
        pods: Iterable[PlanPod],
        claims: Mapping[tuple[str, str], VolumeClaim] | None,
        volumes: Mapping[str, PersistentVolume] | None,
    ) -> None:
        self._nodes = {node.metadata.name: node for node in nodes}
        self._pod_index = pod_rules.PodIndex()
        by_node: dict[str, list[PlanPod]] = defaultdict(list)
        for pod in pods:
            if pod.spec.node_name and not pod.is_finished:
                by_node[pod.spec.node_name].append(pod)
                self._pod_index.add(pod, pod.spec.node_name)
        slots = [_NodeSlot(n, _free(n, by_node[name])) for name, n in self._nodes.items()]
        # The emptiest node first: then most searches end at the first node.
        self._slots = sorted(slots, key=lambda slot: (-slot.free.get("cpu", 0), slot.name))
        self._claims, self._volumes = claims, volumes
        self._max_free: dict[str, float] = {}
        self._classes: dict[bytes, _EquivalenceClass] = {}
        self._affinities: dict[bytes, pod_rules.PodAffinityRule] = {}

    def unplaceable(self, node: str, leaving: Sequence[PlanPod]) -> Iterator[UnplaceablePod]:
        """Yield the pods of a node that would fit nowhere if all of them moved now."""
        taken: dict[str, Counter[str]] = defaultdict(Counter)
        crowded: list[tuple[PlanPod, str]] = []
        wanted = {pod.metadata.uid: node_rules.reservation_of(pod) for pod in leaving}
        for pod in sorted(leaving, key=lambda p: (-wanted[p.metadata.uid]["cpu"], p.metadata.name)):
            amounts = wanted[pod.metadata.uid]
            if short := self._exceeds_every_node(pod, amounts):
                yield UnplaceablePod(pod, PlacementFailure.CAPACITY, detail=", ".join(short))
                continue
            slot = self._slot_for(pod, amounts, node, taken)
            if slot is not None:
                taken[slot.name].update(amounts)
            elif self._slot_for(pod, amounts, node, {}) is not None:
                crowded.append((pod, ", ".join(self._short(pod, amounts, node, taken))))
            else:
                yield self._unplaceable(pod, amounts, node)
        if crowded:
            first, detail = crowded[0]
            yield UnplaceablePod(
                first, PlacementFailure.CAPACITY_COMBINED, detail=detail, count=len(crowded)
            )

    def _exceeds_every_node(self, pod: PlanPod, amounts: node_rules.ResourceAmounts) -> list[str]:
        """Return the resources of which no schedulable node has enough left.

        This only saves time: in a full cluster every pod would be compared with every node.
        """
        if node_rules.tolerates_cordon(pod.spec.tolerations):
            return []  # cordoned nodes are open to this pod too
        return sorted(name for name, amount in amounts.items() if amount > self._max_free_of(name))

    def _max_free_of(self, name: str) -> float:
        if name not in self._max_free:
            free = [
                s.free for s in self._slots if s.node.is_ready and not s.node.spec.unschedulable
            ]
            unlimited = not free or ("/" not in name and any(name not in each for each in free))
            most = max((each.get(name, 0) for each in free), default=0)
            self._max_free[name] = math.inf if unlimited else max(most, 0)
        return self._max_free[name]

    def _slot_for(
        self,
        pod: PlanPod,
        amounts: node_rules.ResourceAmounts,
        node: str,
        taken: Mapping[str, node_rules.ResourceAmounts],
    ) -> _NodeSlot | None:
        return next(
            (
                slot
                for slot in self._candidates(pod, node)
                if not node_rules.insufficient(amounts, slot.free, taken.get(slot.name, {}))
            ),
            None,
        )

    def _candidates(self, pod: PlanPod, node: str) -> Iterator[_NodeSlot]:
        """Yield the other nodes on which the pod could run if they had the capacity."""
        affinity = self._affinity(pod)
        for slot in self._class(pod).candidates():
            if slot.name != node and not affinity.why_not(slot.node, leaving=node):
                yield slot

    def _class(self, pod: PlanPod) -> _EquivalenceClass:
        spec, volumes = pod.spec, self._bound(pod)
        of_nodes = spec.affinity.node_affinity if spec.affinity is not None else None
        names = [volume.metadata.name for volume in volumes]
        key = msgspec.json.encode(
            (spec.node_selector, of_nodes, spec.tolerations, names), order="deterministic"
        )
        if key not in self._classes:
            self._classes[key] = _EquivalenceClass(
                pod,
                node_rules.NodeAffinityRule(spec.node_selector, spec.affinity),
                tuple(
                    node_rules.NodeSelectorRule(each.spec.node_affinity.required)
                    for each in volumes
                ),
                iter(self._slots),
            )
        return self._classes[key]

    def _affinity(self, pod: PlanPod) -> pod_rules.PodAffinityRule:
        affinity, metadata = pod.spec.affinity, pod.metadata
        to_pods = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else None
        key = msgspec.json.encode(
            (metadata.namespace, metadata.labels, to_pods), order="deterministic"
        )
        if key not in self._affinities:
            self._affinities[key] = pod_rules.PodAffinityRule(pod, self._pod_index, self._nodes)
        return self._affinities[key]

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

    def _unplaceable(
        self, pod: PlanPod, amounts: node_rules.ResourceAmounts, node: str
    ) -> UnplaceablePod:
        others = [slot for slot in self._slots if slot.name != node]
        failures = {slot.name: self._failure(pod, slot, node) for slot in others}
        closest = max(failures.values(), default=PlacementFailure.UNSCHEDULABLE)
        near = [slot for slot in others if failures[slot.name] is closest]
        return UnplaceablePod(
            pod,
            closest,
            pinned=closest in {PlacementFailure.LABELS, PlacementFailure.VOLUME}
            and self._is_pinned(pod),
            detail=", ".join(self._detail(pod, amounts, closest, near)),
        )

    def _failure(self, pod: PlanPod, slot: _NodeSlot, node: str) -> PlacementFailure:
        failure = self._class(pod).failure(slot)
        if failure is not None:
            return failure
        if self._affinity(pod).why_not(slot.node, leaving=node):
            return PlacementFailure.AFFINITY
        return PlacementFailure.CAPACITY

    def _detail(
        self,
        pod: PlanPod,
        amounts: node_rules.ResourceAmounts,
        failure: PlacementFailure,
        near: Sequence[_NodeSlot],
    ) -> Iterable[str]:
        match failure:
            case PlacementFailure.LABELS:
                return _required_labels(pod)
            case PlacementFailure.TAINTS:
                taints = [taint for slot in near for taint in slot.node.spec.taints]
                return sorted(
                    {t.key for t in node_rules.untolerated_taints(taints, pod.spec.tolerations)}
                )
            case PlacementFailure.VOLUME:
                return [volume.metadata.name for volume in self._bound(pod)]
            case PlacementFailure.CAPACITY | PlacementFailure.CAPACITY_COMBINED:
                return sorted(
                    {name for s in near for name in node_rules.insufficient(amounts, s.free, {})}
                )
            case PlacementFailure.UNSCHEDULABLE | PlacementFailure.AFFINITY:
                return ()
            case _:
                assert_never(failure)

    def _short(
        self,
        pod: PlanPod,
        amounts: node_rules.ResourceAmounts,
        node: str,
        taken: Mapping[str, node_rules.ResourceAmounts],
    ) -> list[str]:
        slots = self._candidates(pod, node)
        short = {
            n
            for slot in slots
            for n in node_rules.insufficient(amounts, slot.free, taken.get(slot.name, {}))
        }
        return sorted(short)

    def _is_pinned(self, pod: PlanPod) -> bool:
        terms = [_required(pod)]
        terms += [volume.spec.node_affinity.required for volume in self._bound(pod)]
        return _HOSTNAME in pod.spec.node_selector or any(map(_names_a_node, terms))


def _free(node: PlanNode, pods: Iterable[PlanPod]) -> node_rules.ResourceAmounts:
    """Return what a node has left beside its pods, for the resources that it reports."""
    free = node_rules.amounts_of(node.status.allocatable)
    for pod in pods:
        free.subtract({n: a for n, a in node_rules.reservation_of(pod).items() if n in free})
    return free


def _required(pod: PlanPod) -> kinds.NodeSelector | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    return affinity.required if affinity is not None else None


def _names_a_node(selector: kinds.NodeSelector | None) -> bool:
    def does(term: kinds.NodeSelectorTerm) -> bool:
        named = (e for e in term.match_expressions if e.key == _HOSTNAME)
        return bool(term.match_fields) or any(e.operator == Operator.IN for e in named)

    return selector is not None and all(map(does, selector.node_selector_terms))


def _required_labels(pod: PlanPod) -> Iterable[str]:
    """Yield the node labels that a pod requires, as text."""
    yield from (f"{key}={value}" for key, value in sorted(pod.spec.node_selector.items()))
    required = _required(pod)
    for term in required.node_selector_terms if required is not None else ():
        for each in (*term.match_expressions, *term.match_fields):
            yield " ".join((each.key, each.operator, *each.values))
