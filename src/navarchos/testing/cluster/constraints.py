"""What a pod asks of its node beside room, as the scheduler's plug-ins judge it.

Required node affinity, required affinity to pods and against them, and the spread over
domains that must hold (`DoNotSchedule`). Preferences are left out, as are
`namespaceSelector` and `matchLabelKeys`. Sources: `pkg/scheduler/framework/plugins`,
packages nodeaffinity, interpodaffinity and podtopologyspread.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from navarchos.client.selectors import (
    LabelSelectorRequirement,
    LabelSelectorSpec,
    Operator,
    Requirement,
    Selector,
)
from navarchos.testing.cluster.kinds import Node, Pod, PodAffinityTerm, PodSpec
from navarchos.testing.cluster.labelindex import Anchor, anchor_of, anchors_of

__all__ = ["Domains", "Neighbours", "NodeFilter"]

_NAME_FIELD: Final = "metadata.name"

_Terms = tuple[tuple[tuple[Requirement, ...], tuple[Requirement, ...]], ...]


class NodeFilter:
    """The node selector and the required node affinity of a pod."""

    def __init__(self, spec: PodSpec) -> None:
        self._labels = spec.node_selector
        self._terms = _node_terms(spec)

    def why_not(self, node: Node) -> str:
        """Return why the pod may not come to a node; "" if it may."""
        labels = node.metadata.labels
        if any(labels.get(key) != value for key, value in self._labels.items()):
            return "the node does not match the pod's node selector"
        if self._terms is None:
            return ""
        fields = {_NAME_FIELD: node.metadata.name}
        for of_labels, of_fields in self._terms:
            if all(r.matches(labels) for r in of_labels) and all(
                r.matches(fields) for r in of_fields
            ):
                return ""
        return "the node does not match the pod's node affinity"


def _node_terms(spec: PodSpec) -> _Terms | None:
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return None
    return tuple(
        (_requirements(term.match_expressions), _requirements(term.match_fields))
        for term in affinity.required.node_selector_terms
        # An empty term matches no node.
        if term.match_expressions or term.match_fields
    )


def _requirements(entries: Iterable[LabelSelectorRequirement]) -> tuple[Requirement, ...]:
    return tuple(Requirement(e.key, Operator(e.operator), e.values) for e in entries)


@dataclass(frozen=True, slots=True)
class _Term:
    """Pods that one is drawn to or kept from, and how far that reaches."""

    topology_key: str
    selector: Selector
    anchors: tuple[Anchor, ...]  # one for each namespace

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a pod is meant."""
        in_reach = any(anchor.namespace == namespace for anchor in self.anchors)
        return in_reach and self.selector.matches(labels)


def _term(namespace: str, found: PodAffinityTerm) -> _Term:
    selector = Selector.from_spec(found.label_selector)
    namespaces = found.namespaces or (namespace,)
    anchors = tuple(anchor_of(each, selector) for each in namespaces)
    return _Term(found.topology_key, selector, anchors)


@dataclass(frozen=True, slots=True)
class _Resident:
    """A pod on a node, or booked there."""

    node: str
    namespace: str
    labels: Mapping[str, str]
    is_terminating: bool
    keeps_away: tuple[_Term, ...]


class Neighbours:
    """Which pods are where, found by their labels. Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self._residents: dict[str, _Resident] = {}  # by uid
        self._at: dict[Anchor, dict[str, None]] = {}  # uids
        self._kept_away: dict[Anchor, dict[str, None]] = {}  # uids of those that keep others away

    def add(self, pod: Pod, node: str) -> None:
        """Enter a pod on a node, as it is now."""
        metadata = pod.metadata
        known = self._residents.get(metadata.uid)
        if known is not None:
            if (known.node, known.labels, known.is_terminating) == (
                node,
                metadata.labels,
                pod.is_terminating,
            ):
                return
            self.remove(metadata.uid)
        affinity = pod.spec.affinity
        against = affinity.pod_anti_affinity if affinity is not None else None
        terms = against.required if against is not None else ()
        resident = _Resident(
            node,
            metadata.namespace,
            metadata.labels,
            pod.is_terminating,
            tuple(_term(metadata.namespace, each) for each in terms),
        )
        self._residents[metadata.uid] = resident
        for index, anchor in self._entries(resident):
            index.setdefault(anchor, {})[metadata.uid] = None

    def remove(self, uid: str) -> None:
        """Strike a pod off."""
        resident = self._residents.pop(uid, None)
        if resident is None:
            return
        for index, anchor in self._entries(resident):
            entered = index.get(anchor, {})
            entered.pop(uid, None)
            if not entered:
                index.pop(anchor, None)

    def matching(self, term: _Term) -> Iterator[_Resident]:
        """Return the pods that a term is about."""
        for anchor in term.anchors:
            for uid in self._at.get(anchor, ()):
                resident = self._residents[uid]
                if term.selector.matches(resident.labels):
                    yield resident

    def keeping_away(self, pod: Pod) -> Iterator[tuple[str, _Term]]:
        """Return the nodes and terms of pods that will not have this one near them."""
        if not self._kept_away:
            return
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        for anchor in anchors_of(namespace, labels):
            for uid in self._kept_away.get(anchor, ()):
                resident = self._residents[uid]
                for term in resident.keeps_away:
                    if anchor in term.anchors and term.matches(namespace, labels):
                        yield resident.node, term

    def _entries(
        self, resident: _Resident
    ) -> Iterator[tuple[dict[Anchor, dict[str, None]], Anchor]]:
        for anchor in anchors_of(resident.namespace, resident.labels):
            yield self._at, anchor
        for term in resident.keeps_away:
            for anchor in term.anchors:
                yield self._kept_away, anchor


@dataclass(frozen=True, slots=True)
class _Spread:
    topology_key: str
    counts: Mapping[str, int]  # by domain
    most: int


class Domains:
    """Where a pod may go, as far as other pods are concerned. Computed once per pod.

    Args:
        pod: The pod.
        neighbours: The pods that are placed already.
        nodes: All nodes by name.
    """

    def __init__(self, pod: Pod, neighbours: Neighbours, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        affinity = pod.spec.affinity
        self._forbidden = self._of_nodes(neighbours.keeping_away(pod))
        self._needed: list[tuple[str, frozenset[str]]] = []
        self._spreads: list[_Spread] = []
        namespace = pod.metadata.namespace
        if affinity is not None and affinity.pod_anti_affinity is not None:
            for found in affinity.pod_anti_affinity.required:
                term = _term(namespace, found)
                self._forbidden |= self._of_nodes((r.node, term) for r in neighbours.matching(term))
        if affinity is not None and affinity.pod_affinity is not None:
            self._need(
                pod, [_term(namespace, t) for t in affinity.pod_affinity.required], neighbours
            )
        self._spread(pod, neighbours)

    def why_not(self, node: Node) -> str:
        """Return why the pod may not come to a node; "" if it may."""
        labels = node.metadata.labels
        if any(labels.get(key) == value for key, value in self._forbidden):
            return "a pod there and this one keep away from each other"
        if any(labels.get(key) not in values for key, values in self._needed):
            return "the pods that this one needs near it are elsewhere"
        for spread in self._spreads:
            domain = labels.get(spread.topology_key)
            if domain is None or spread.counts.get(domain, 0) > spread.most:
                return "the node does not satisfy the pod's topology spread constraints"
        return ""

    def _of_nodes(self, found: Iterable[tuple[str, _Term]]) -> set[tuple[str, str]]:
        """Return the domains of nodes, each as a key and a value of their labels."""
        domains = set()
        for name, term in found:
            node = self._nodes.get(name)
            value = node.metadata.labels.get(term.topology_key) if node is not None else None
            if value is not None:
                domains.add((term.topology_key, value))
        return domains

    def _need(self, pod: Pod, terms: list[_Term], neighbours: Neighbours) -> None:
        found = {term: [(r.node, term) for r in neighbours.matching(term)] for term in terms}
        own = pod.metadata
        # The first of pods that want to be together may go anywhere.
        if not any(found.values()) and all(t.matches(own.namespace, own.labels) for t in terms):
            return
        for term, residents in found.items():
            values = frozenset(value for _, value in self._of_nodes(residents))
            self._needed.append((term.topology_key, values))

    def _spread(self, pod: Pod, neighbours: Neighbours) -> None:
        hard = [
            each
            for each in pod.spec.topology_spread_constraints
            if each.when_unsatisfiable == "DoNotSchedule"
        ]
        if not hard:
            return
        wanted, keys = NodeFilter(pod.spec), [each.topology_key for each in hard]
        eligible = [
            node
            for node in self._nodes.values()
            if all(key in node.metadata.labels for key in keys) and not wanted.why_not(node)
        ]
        for each in hard:
            counts = self._counts(pod, each.label_selector, each.topology_key, eligible, neighbours)
            selector = Selector.from_spec(each.label_selector)
            itself = int(selector.matches(pod.metadata.labels))
            least = min(counts.values(), default=0)
            self._spreads.append(_Spread(each.topology_key, counts, least + each.max_skew - itself))

    def _counts(
        self,
        pod: Pod,
        spec: LabelSelectorSpec | None,
        key: str,
        eligible: Iterable[Node],
        neighbours: Neighbours,
    ) -> Mapping[str, int]:
        """Count the pods that a constraint is about in each domain, empty ones included."""
        domains = {node.metadata.name: node.metadata.labels[key] for node in eligible}
        counts: Counter[str] = Counter(dict.fromkeys(domains.values(), 0))
        term = _term(pod.metadata.namespace, PodAffinityTerm(label_selector=spec, topology_key=key))
        for resident in neighbours.matching(term):
            if resident.node in domains and not resident.is_terminating:
                counts[domains[resident.node]] += 1
        return counts
