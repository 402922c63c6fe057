"""Rules about a pod and other pods: affinity, anti-affinity and topology spread.

They follow the scheduler plugins interpodaffinity and podtopologyspread. The index of
pods keeps them fast in clusters of many thousand pods: a rule looks only at pods that
have one of the labels that its selector asks for.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from navarchos.client.selectors import LabelSelectorSpec, Operator, Selector
from navarchos.errors import ConfigError
from navarchos.placement import kinds
from navarchos.placement.node_rules import NodeAffinityRule

__all__ = [
    "LabelAnchor",
    "PodAffinityRule",
    "PodIndex",
    "TopologySpreadRule",
    "anchor_of",
    "anchors_of",
]


class LabelAnchor(NamedTuple):
    """The place of a selector in an index: a label in a namespace.

    A selector that asks for a label with one value can only match objects that have it.
    So an index files the selector under that label, and an object under each of its
    labels. A selector without such a label is filed under the namespace alone (no key),
    and so is every object.
    """

    namespace: str
    key: str = ""
    value: str = ""


def anchor_of(namespace: str, selector: Selector) -> LabelAnchor:
    """Return the anchor of a selector: one label that it asks for, if there is one."""
    for requirement in selector.requirements:
        if requirement.operator is Operator.IN and len(requirement.values) == 1:
            return LabelAnchor(namespace, requirement.key, requirement.values[0])
    return LabelAnchor(namespace)


def anchors_of(namespace: str, labels: Mapping[str, str]) -> Iterator[LabelAnchor]:
    """Yield the anchors of an object. Every selector that matches it has one of them."""
    yield LabelAnchor(namespace)
    for key, value in labels.items():
        yield LabelAnchor(namespace, key, value)


@dataclass(frozen=True, slots=True)
class _Term:
    """A `PodAffinityTerm`, compiled."""

    topology_key: str
    selector: Selector
    anchors: tuple[LabelAnchor, ...]
    """One for each namespace."""

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        in_reach = any(anchor.namespace == namespace for anchor in self.anchors)
        return in_reach and self.selector.matches(labels)


def _terms(namespace: str, affinity: kinds.PodAffinity | None) -> tuple[_Term, ...]:
    found = affinity.required if affinity is not None else ()
    compiled = (_term(namespace, each) for each in found)
    return tuple(term for term in compiled if term is not None)


def _term(namespace: str, found: kinds.PodAffinityTerm) -> _Term | None:
    """Return the compiled term; `None` if it cannot be evaluated, and then it is ignored."""
    # The labels of namespaces are not known here.
    if found.namespace_selector is not None:
        return None
    try:
        selector = Selector.from_spec(found.label_selector)
    except ConfigError:
        return None
    namespaces = found.namespaces or (namespace,)
    anchors = tuple(anchor_of(each, selector) for each in namespaces)
    return _Term(found.topology_key, selector, anchors)


@dataclass(frozen=True, slots=True)
class _IndexedPod:
    """A pod on a node, or one that has been assigned to it."""

    node: str
    namespace: str
    labels: Mapping[str, str]
    is_terminating: bool
    repels: tuple[_Term, ...]
    """The pods with which it does not share a domain."""


class PodIndex:
    """The pods on nodes, found by their labels and by the labels that they repel.

    Threads: not thread-safe; the owner locks.
    """

    def __init__(self) -> None:
        self._pods: dict[str, _IndexedPod] = {}  # by uid
        self._by_anchor: dict[LabelAnchor, dict[str, None]] = {}  # uids
        self._repelling: dict[LabelAnchor, dict[str, None]] = {}  # uids

    def add(self, pod: kinds.SchedulablePod, node: str) -> None:
        """Add a pod on a node, or update it."""
        metadata = pod.metadata
        known = self._pods.get(metadata.uid)
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
        indexed = _IndexedPod(
            node,
            metadata.namespace,
            metadata.labels,
            pod.is_terminating,
            _terms(metadata.namespace, against),
        )
        self._pods[metadata.uid] = indexed
        for index, anchor in self._entries(indexed):
            index.setdefault(anchor, {})[metadata.uid] = None

    def remove(self, uid: str) -> None:
        """Remove a pod. An unknown one is ignored."""
        indexed = self._pods.pop(uid, None)
        if indexed is None:
            return
        for index, anchor in self._entries(indexed):
            entered = index.get(anchor, {})
            entered.pop(uid, None)
            if not entered:
                index.pop(anchor, None)

    def matching(self, term: _Term) -> Iterator[_IndexedPod]:
        """Yield the pods that match a term."""
        for anchor in term.anchors:
            for uid in self._by_anchor.get(anchor, ()):
                indexed = self._pods[uid]
                if term.selector.matches(indexed.labels):
                    yield indexed

    def repelling(self, pod: kinds.SchedulablePod) -> Iterator[tuple[_IndexedPod, _Term]]:
        """Yield the pods whose anti-affinity matches this pod, each with the term."""
        if not self._repelling:
            return
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        for anchor in anchors_of(namespace, labels):
            for uid in self._repelling.get(anchor, ()):
                indexed = self._pods[uid]
                for term in indexed.repels:
                    if anchor in term.anchors and term.matches(namespace, labels):
                        yield indexed, term

    def _entries(
        self, indexed: _IndexedPod
    ) -> Iterator[tuple[dict[LabelAnchor, dict[str, None]], LabelAnchor]]:
        for anchor in anchors_of(indexed.namespace, indexed.labels):
            yield self._by_anchor, anchor
        for term in indexed.repels:
            for anchor in term.anchors:
                yield self._repelling, anchor


class PodAffinityRule:
    """The required affinity and anti-affinity between a pod and the pods on nodes.

    Anti-affinity works in both directions: a pod on a node also excludes others from
    its domain. The rule is computed once for a pod, then asked about each node.

    Args:
        pod: The pod.
        index: The pods on nodes.
        nodes: All nodes by name.
    """

    def __init__(
        self, pod: kinds.SchedulablePod, index: PodIndex, nodes: Mapping[str, kinds.SchedulableNode]
    ) -> None:
        self._nodes = nodes
        # Names of nodes by topology key and domain.
        self._repelled: dict[str, dict[str, set[str]]] = {}
        self._attracted: dict[str, dict[str, set[str]]] = {}
        self._attracting: set[str] = set()
        self._attracts_itself = False
        for other, term in index.repelling(pod):
            self._enter(self._repelled, term.topology_key, other.node)
        affinity, namespace = pod.spec.affinity, pod.metadata.namespace
        if affinity is None:
            return
        for term in _terms(namespace, affinity.pod_anti_affinity):
            for other in index.matching(term):
                self._enter(self._repelled, term.topology_key, other.node)
        self._attract(pod, _terms(namespace, affinity.pod_affinity), index)

    def why_not(self, node: kinds.SchedulableNode, *, leaving: str = "") -> str:
        """Return why the pod cannot run on the node; an empty string if it can.

        Args:
            node: The node.
            leaving: A node whose pods are about to be evicted. They do not repel the pod
                any more, and do not bind it to where other pods are.
        """
        labels = node.metadata.labels
        for key, domains in self._repelled.items():
            repelling = domains.get(labels.get(key, ""))
            if repelling and key in labels and repelling != {leaving}:
                return "the anti-affinity of the pod, or of a pod there, excludes the node"
        if not self._attracted:
            return ""
        # Upstream requires every topology label on the node, also for the first pod.
        if all(key in labels for key in self._attracted):
            if all(labels[key] in domains for key, domains in self._attracted.items()):
                return ""
            # The first of pods that attract each other can run anywhere.
            if self._attracts_itself and self._attracting <= {leaving}:
                return ""
        return "the pods that the pod's affinity requires are elsewhere"

    def _attract(
        self, pod: kinds.SchedulablePod, terms: tuple[_Term, ...], index: PodIndex
    ) -> None:
        if not terms:
            return
        self._attracted = {term.topology_key: {} for term in terms}
        first, *rest = terms
        for other in index.matching(first):
            # Upstream counts a pod only if it matches all terms.
            if all(term.matches(other.namespace, other.labels) for term in rest):
                entered = [
                    self._enter(self._attracted, term.topology_key, other.node) for term in terms
                ]
                if any(entered):
                    self._attracting.add(other.node)
        own = pod.metadata
        self._attracts_itself = all(term.matches(own.namespace, own.labels) for term in terms)

    def _enter(self, domains: dict[str, dict[str, set[str]]], key: str, node: str) -> bool:
        known = self._nodes.get(node)
        value = known.metadata.labels.get(key) if known is not None else None
        if value is not None:
            domains.setdefault(key, {}).setdefault(value, set()).add(node)
        return value is not None


@dataclass(frozen=True, slots=True)
class _Spread:
    topology_key: str
    counts: Mapping[str, int]
    """Matching pods by domain, empty domains included."""
    limit: int


class TopologySpreadRule:
    """The topology spread constraints of a pod that must hold (`DoNotSchedule`).

    The rule is computed once for a pod, then asked about each node.

    Args:
        pod: The pod.
        constraints: Its constraints.
        index: The pods on nodes.
        nodes: All nodes.
    """

    def __init__(
        self,
        pod: kinds.SchedulablePod,
        constraints: Iterable[kinds.TopologySpreadConstraint],
        index: PodIndex,
        nodes: Iterable[kinds.SchedulableNode],
    ) -> None:
        self._spreads: list[_Spread] = []
        hard = [each for each in constraints if each.when_unsatisfiable == "DoNotSchedule"]
        if not hard:
            return
        wanted = NodeAffinityRule(pod.spec.node_selector, pod.spec.affinity)
        keys = [each.topology_key for each in hard]
        eligible = [
            node
            for node in nodes
            if all(key in node.metadata.labels for key in keys) and not wanted.why_not(node)
        ]
        for each in hard:
            key = each.topology_key
            domains = {node.metadata.name: node.metadata.labels[key] for node in eligible}
            counts = _count(pod.metadata.namespace, each.label_selector, domains, index)
            selector = Selector.from_spec(each.label_selector)
            itself = int(selector.matches(pod.metadata.labels))
            least = min(counts.values(), default=0)
            self._spreads.append(_Spread(key, counts, least + each.max_skew - itself))

    def why_not(self, node: kinds.SchedulableNode) -> str:
        """Return why the pod cannot run on the node; an empty string if it can."""
        for spread in self._spreads:
            domain = node.metadata.labels.get(spread.topology_key)
            if domain is None or spread.counts.get(domain, 0) > spread.limit:
                return "the node does not satisfy the pod's topology spread constraints"
        return ""


def _count(
    namespace: str, spec: LabelSelectorSpec | None, domains: Mapping[str, str], index: PodIndex
) -> Mapping[str, int]:
    """Count the matching pods of each domain. Terminating pods do not count.

    Args:
        namespace: The namespace of the pods.
        spec: The selector of the constraint.
        domains: The domain of each eligible node, by the name of the node.
        index: The pods on nodes.
    """
    counts: Counter[str] = Counter(dict.fromkeys(domains.values(), 0))
    term = _term(namespace, kinds.PodAffinityTerm(label_selector=spec))
    for indexed in index.matching(term) if term is not None else ():
        if indexed.node in domains and not indexed.is_terminating:
            counts[domains[indexed.node]] += 1
    return counts
