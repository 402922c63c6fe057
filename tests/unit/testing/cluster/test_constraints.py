"""The nodes that a pod may run on because of labels and of other pods."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from navarchos.testing.cluster.controllers import daemonsets
from navarchos.testing.cluster.controllers.scheduler import Placement, why_not
from navarchos.testing.cluster.kinds import Node, Pod

MakePod = Callable[..., Pod]
MakeNode = Callable[..., Node]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def node_affinity(*terms: Mapping[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def near(kind: str, key: str, app: str = "web", **more: object) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}
    return {"affinity": {kind: {REQUIRED: [term]}}}


def spread(key: str, most: int = 1, **more: object) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    constraint = {
        "maxSkew": most,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
        **more,
    }
    return {"topologySpreadConstraints": [constraint]}


@pytest.fixture
def hosts(make_node: MakeNode) -> Placement:
    """Return a placement with four nodes, two in each of two zones."""
    placement = Placement()
    for number in range(4):
        name = f"node-{number}"
        zone = "ab"[number // 2]
        placement.set_node(make_node(name, pods=100, labels={ZONE: zone, HOST: name}))
    return placement


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}, True),
        ({"key": "disk", "operator": "In", "values": ["hdd"]}, False),
        ({"key": "disk", "operator": "NotIn", "values": ["hdd"]}, True),
        ({"key": "gpu", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "gpu", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "DoesNotExist"}, True),
        ({"key": "cores", "operator": "Gt", "values": ["7"]}, True),
        ({"key": "cores", "operator": "Gt", "values": ["8"]}, False),
        ({"key": "cores", "operator": "Lt", "values": ["9"]}, True),
        ({"key": "gpu", "operator": "Gt", "values": ["0"]}, False),
    ],
)
def test_required_node_affinity_compares_labels(
    make_pod: MakePod, make_node: MakeNode, expression: dict[str, Any], fits: bool
) -> None:
    pod = make_pod(node="", spec=node_affinity({"matchExpressions": [expression]}))
    node = make_node(labels={"disk": "ssd", "cores": "8"})
    assert (why_not(pod, node) == "") is fits


def test_one_of_the_terms_of_a_node_affinity_is_enough_and_all_of_a_terms_conditions_count(
    make_pod: MakePod, make_node: MakeNode
) -> None:
    ssd = {"key": "disk", "operator": "In", "values": ["ssd"]}
    gpu = {"key": "gpu", "operator": "Exists"}
    named = {"key": "metadata.name", "operator": "In", "values": ["node-9"]}
    both = make_pod(node="", spec=node_affinity({"matchExpressions": [ssd, gpu]}))
    either = make_pod(
        node="", spec=node_affinity({"matchExpressions": [gpu]}, {"matchFields": [named]})
    )
    assert "affinity" in why_not(both, make_node(labels={"disk": "ssd"}))
    assert why_not(both, make_node(labels={"disk": "ssd", "gpu": ""})) == ""
    assert why_not(either, make_node("node-9")) == ""
    assert why_not(either, make_node(labels={"gpu": ""})) == ""
    assert "affinity" in why_not(either, make_node("node-8"))


def test_an_empty_term_of_a_node_affinity_matches_no_node(
    make_pod: MakePod, make_node: MakeNode
) -> None:
    assert "affinity" in why_not(make_pod(node="", spec=node_affinity({})), make_node())


def test_a_daemon_set_leaves_out_the_nodes_that_its_template_does_not_want(
    make_node: MakeNode,
) -> None:
    ssd = {"key": "disk", "operator": "In", "values": ["ssd"]}
    template = {"spec": node_affinity({"matchExpressions": [ssd]})}
    nodes = [make_node("node-1", labels={"disk": "ssd"}), make_node("node-2")]
    assert daemonsets.plan(template, nodes, []).create == ("node-1",)


def test_pods_that_keep_away_from_their_like_have_a_node_each_and_the_fifth_of_four_has_none(
    make_pod: MakePod, hosts: Placement
) -> None:
    pods = [make_pod(f"web-{n}", node="", spec=near("podAntiAffinity", HOST)) for n in range(5)]
    chosen = [hosts.place(pod) for pod in pods]
    assert len({*chosen[:4]}) == 4
    assert chosen[4] is None
    hosts.remove_pod(pods[0].metadata.uid)
    assert hosts.place(pods[4]) == chosen[0]


def test_a_domain_is_what_a_label_of_nodes_says(make_pod: MakePod, hosts: Placement) -> None:
    pods = [make_pod(f"web-{n}", node="", spec=near("podAntiAffinity", ZONE)) for n in range(3)]
    chosen = [hosts.place(pod) for pod in pods]
    assert chosen[2] is None
    assert {name in {"node-0", "node-1"} for name in chosen[:2]} == {True, False}


def test_who_is_there_already_may_keep_others_away(make_pod: MakePod, hosts: Placement) -> None:
    hermit = make_pod("hermit", node="", labels={"app": "db"}, spec=near("podAntiAffinity", HOST))
    home = hosts.place(hermit)
    others = [hosts.place(make_pod(f"web-{n}", node="")) for n in range(6)]
    assert home not in others
    assert None not in others
    hosts.remove_pod(hermit.metadata.uid)
    assert home in {hosts.place(make_pod(f"late-{n}", node="")) for n in range(4)}


def test_other_namespaces_are_meant_where_they_are_named(
    make_pod: MakePod, hosts: Placement
) -> None:
    there = [hosts.place(make_pod(f"w-{n}", node="", namespace="media")) for n in range(4)]
    assert len(set(there)) == 4
    own = make_pod("own", node="", spec=near("podAntiAffinity", HOST))
    both = make_pod("both", node="", spec=near("podAntiAffinity", HOST, namespaces=["media"]))
    assert hosts.place(own) is not None
    assert hosts.place(both) is None


def test_pods_that_want_to_be_together_are_and_the_first_of_them_may_go_anywhere(
    make_pod: MakePod, hosts: Placement
) -> None:
    pods = [make_pod(f"web-{n}", node="", spec=near("podAffinity", HOST)) for n in range(3)]
    assert len({hosts.place(pod) for pod in pods}) == 1
    lost = make_pod("lost", node="", spec=near("podAffinity", HOST, app="nobody"))
    assert hosts.place(lost) is None


def test_pods_are_spread_evenly_over_zones_as_far_as_there_is_room(
    make_pod: MakePod, hosts: Placement, make_node: MakeNode
) -> None:
    for name in ("node-2", "node-3"):  # zone b has capacity for one pod
        labels = {ZONE: "b", HOST: name}
        hosts.set_node(make_node(name, pods=int(name == "node-2"), labels=labels))
    chosen = [
        hosts.place(make_pod(f"web-{n}", node="", spec=spread(ZONE), owner=None)) for n in range(5)
    ]
    assert chosen.count("node-2") == 1
    assert chosen.count(None) == 2, "the third one in zone a would be two ahead of zone b"


def test_a_spread_that_is_only_a_wish_keeps_no_pod_waiting(
    make_pod: MakePod, hosts: Placement, make_node: MakeNode
) -> None:
    for name in ("node-2", "node-3"):
        hosts.set_node(make_node(name, pods=0, labels={ZONE: "b", HOST: name}))
    wish = spread(ZONE, whenUnsatisfiable="ScheduleAnyway")
    assert None not in [hosts.place(make_pod(f"web-{n}", node="", spec=wish)) for n in range(5)]


def test_a_pod_on_its_way_out_does_not_count_for_the_spread_but_keeps_others_away(
    make_pod: MakePod, hosts: Placement
) -> None:
    for n in range(2):
        hosts.set_pod(make_pod(f"old-{n}", node=f"node-{n}", terminating=True))
    spreading = [
        hosts.place(make_pod(f"web-{n}", node="", spec=spread(ZONE), owner=None)) for n in range(2)
    ]
    assert {name in {"node-0", "node-1"} for name in spreading} == {True, False}
    away = make_pod("away", node="", spec=near("podAntiAffinity", ZONE))
    assert hosts.place(away) is None


def test_nodes_without_the_label_take_no_pod_that_is_to_be_spread_over_it(
    make_pod: MakePod, make_node: MakeNode
) -> None:
    placement = Placement()
    placement.set_node(make_node("node-1"))
    assert placement.place(make_pod(node="", spec=spread(ZONE))) is None
