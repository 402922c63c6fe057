"""The rules of kube-scheduler, as upstream's plugins define them."""

from collections.abc import Mapping

import msgspec
import pytest

from navarchos.client.taints import Toleration
from navarchos.placement.node_rules import (
    insufficient,
    is_cordoned_for,
    requests_of,
    reservation_of,
)
from navarchos.placement.pod_rules import PodAffinityRule, PodIndex
from navarchos.testing.cluster.kinds import Node, Pod

Json = Mapping[str, object]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def container(cpu: str, *, sidecar: bool = False) -> Json:
    policy = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **policy}


def pod(name: str = "p", *, labels: Json | None = None, node: str = "", **spec: object) -> Pod:
    metadata = {"name": name, "namespace": "shop", "uid": name, "labels": labels or {"app": "web"}}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node, **spec}}, Pod)


def node(name: str, *, unschedulable: bool = False, **labels: str) -> Node:
    known = {HOST: name, **({ZONE: labels["zone"]} if "zone" in labels else {})}
    metadata = {"name": name, "labels": known}
    return msgspec.convert({"metadata": metadata, "spec": {"unschedulable": unschedulable}}, Node)


def term(key: str = HOST, **labels: str) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or {"app": "web"}}}


def affinity(*terms: Json) -> Json:
    return {"podAffinity": {REQUIRED: list(terms)}}


def anti_affinity(*terms: Json) -> Json:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def allowed(wanted: Pod, nodes: list[Node], *there: Pod, leaving: str = "") -> list[str]:
    """Return the names of the nodes on which the affinity allows a pod."""
    index = PodIndex()
    for each in there:
        index.add(each, each.spec.node_name)
    rule = PodAffinityRule(wanted, index, {each.metadata.name: each for each in nodes})
    return [n.metadata.name for n in nodes if not rule.why_not(n, leaving=leaving)]


@pytest.mark.parametrize(
    ("containers", "init_containers", "overhead", "cpu"),
    [
        ([container("100m"), container("200m")], [], {}, 300),
        ([container("100m")], [container("500m")], {}, 500),
        ([container("100m")], [container("50m")], {}, 100),
        ([container("100m")], [container("200m", sidecar=True)], {}, 300),
        ([container("100m")], [], {"cpu": "50m"}, 150),
        ([container("100m")], [container("500m")], {"cpu": "50m"}, 550),
    ],
)
def test_the_larger_of_running_and_starting_counts(
    containers: list[Json], init_containers: list[Json], overhead: Json, cpu: int
) -> None:
    made = pod(containers=containers, initContainers=init_containers, overhead=overhead)
    assert requests_of(made) == {"cpu": cpu}


@pytest.mark.parametrize(("sidecar_first", "cpu"), [(True, 700), (False, 500)])
def test_an_init_container_counts_with_the_sidecars_that_start_before_it(
    sidecar_first: bool, cpu: int
) -> None:
    sidecar, starting = container("200m", sidecar=True), container("500m")
    order = [sidecar, starting] if sidecar_first else [starting, sidecar]
    assert requests_of(pod(containers=[container("1m")], initContainers=order)) == {"cpu": cpu}


def test_a_reservation_counts_one_pod() -> None:
    assert reservation_of(pod(containers=[container("1")])) == {"cpu": 1000, "pods": 1000}


@pytest.mark.parametrize(
    ("wanted", "available", "used", "short"),
    [
        ({"cpu": 100}, {"cpu": 100}, {}, ()),
        ({"cpu": 100}, {"cpu": 100}, {"cpu": 1}, ("cpu",)),
        ({"cpu": 100, "memory": 5}, {"cpu": 1, "memory": 1}, {}, ("cpu", "memory")),
        ({"cpu": 100}, {}, {}, ()),
        ({"example.com/gpu": 1000}, {"cpu": 100}, {}, ("example.com/gpu",)),
        ({"example.com/gpu": 0}, {"cpu": 100}, {}, ()),
        ({"cpu": 0}, {"cpu": 100}, {"cpu": 200}, ()),
    ],
)
def test_insufficient_resources_are_named(
    wanted: dict[str, int], available: dict[str, int], used: dict[str, int], short: tuple[str, ...]
) -> None:
    assert insufficient(wanted, available, used) == short


def test_a_cordoned_node_is_open_to_pods_that_tolerate_its_taint() -> None:
    tolerant = (Toleration(key="node.kubernetes.io/unschedulable", operator="Exists"),)
    assert is_cordoned_for(node("a", unschedulable=True), ())
    assert not is_cordoned_for(node("a", unschedulable=True), tolerant)
    assert not is_cordoned_for(node("a"), ())


def test_anti_affinity_excludes_in_both_directions() -> None:
    nodes = [node("a"), node("b")]
    plain, alone = pod("plain"), pod("alone", affinity=anti_affinity(term()))
    assert allowed(alone, nodes, pod("there", node="a")) == ["b"]
    there = pod("there", node="a", affinity=anti_affinity(term()))
    assert allowed(plain, nodes, there) == ["b"]


def test_pods_that_leave_repel_no_other_pod() -> None:
    nodes = [node("a", zone="z"), node("b", zone="z")]
    alone = pod("alone", affinity=anti_affinity(term(ZONE)))
    leaving = pod("there", node="a", affinity=anti_affinity(term(ZONE)))
    assert allowed(alone, nodes, leaving) == []
    assert allowed(alone, nodes, leaving, leaving="a") == ["a", "b"]
    assert allowed(alone, nodes, leaving, pod("other", node="b"), leaving="a") == []


def test_one_pod_must_match_all_terms_of_an_affinity() -> None:
    nodes = [node("a"), node("b")]
    wanted = pod(labels={"app": "x"}, affinity=affinity(term(app="web"), term(tier="front")))
    apart = [pod("w", node="a"), pod("f", node="a", labels={"tier": "front"})]
    assert allowed(wanted, nodes, *apart) == []
    both = pod("both", node="b", labels={"app": "web", "tier": "front"})
    assert allowed(wanted, nodes, *apart, both) == ["b"]


def test_the_first_pod_that_attracts_itself_runs_anywhere_with_the_topology_label() -> None:
    nodes = [node("a", zone="z"), node("b")]
    first = pod(affinity=affinity(term(ZONE)))
    assert allowed(first, nodes) == ["a"]
    other = pod(labels={"app": "x"}, affinity=affinity(term(ZONE)))
    assert allowed(other, nodes) == []


def test_a_pod_that_attracts_itself_follows_the_pods_that_stay() -> None:
    nodes = [node("a"), node("b"), node("c")]
    wanted = pod(affinity=affinity(term()))
    assert allowed(wanted, nodes, pod("x", node="a"), leaving="a") == ["a", "b", "c"]
    assert allowed(wanted, nodes, pod("x", node="a"), pod("y", node="b"), leaving="a") == ["a", "b"]


def test_a_term_with_a_namespace_selector_is_ignored() -> None:
    nodes = [node("a")]
    unknown = {**term(), "namespaceSelector": {"matchLabels": {"team": "b"}}}
    assert allowed(pod(affinity=affinity(unknown)), nodes) == ["a"]
    assert allowed(pod(affinity=anti_affinity(unknown)), nodes, pod("x", node="a")) == ["a"]
