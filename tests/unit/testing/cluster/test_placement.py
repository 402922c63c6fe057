"""The node that the scheduler selects for a pod."""

from collections import Counter
from collections.abc import Callable

from navarchos.placement.node_rules import requests_of
from navarchos.testing.cluster.controllers.scheduler import Placement, why_not
from navarchos.testing.cluster.kinds import Node, Pod

MakePod = Callable[..., Pod]
MakeNode = Callable[..., Node]


def test_requests_are_summed_over_containers(make_pod: MakePod) -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Ki"}}}
    pod = make_pod(spec={"containers": [container, {**container, "name": "d"}]})
    assert requests_of(pod) == {"cpu": 200, "memory": 2048_000}


def test_a_node_is_refused_with_its_reason(make_pod: MakePod, make_node: MakeNode) -> None:
    pod = make_pod(node="")
    assert why_not(pod, make_node()) == ""
    assert "not ready" in why_not(pod, make_node(ready=False))
    assert "unschedulable" in why_not(pod, make_node(unschedulable=True))
    tainted = make_node(taints=[{"key": "gpu", "effect": "NoSchedule"}])
    assert "gpu" in why_not(pod, tainted)
    preferred = make_node(taints=[{"key": "gpu", "effect": "PreferNoSchedule"}])
    assert why_not(pod, preferred) == ""
    picky = make_pod(node="", spec={"nodeSelector": {"disk": "ssd"}})
    assert "selector" in why_not(picky, make_node())
    assert why_not(picky, make_node(labels={"disk": "ssd"})) == ""


def test_the_emptiest_node_wins_and_the_youngest_of_equals(
    make_pod: MakePod, make_node: MakeNode
) -> None:
    placement = Placement()
    placement.set_node(make_node("old", created="2025-01-01T00:00:00Z"))
    placement.set_node(make_node("new", created="2026-01-01T00:00:00Z"))
    owners = [("ReplicaSet", f"set-{n}") for n in range(3)]
    placed = [placement.place(make_pod(f"p-{n}", node="", owner=owners[n])) for n in range(3)]
    assert placed == ["new", "old", "new"]


def test_a_node_with_a_soft_taint_is_taken_when_there_is_no_other(
    make_pod: MakePod, make_node: MakeNode
) -> None:
    placement = Placement()
    placement.set_node(make_node("old", taints=[{"key": "old", "effect": "PreferNoSchedule"}]))
    placement.set_node(make_node("new", pods=1))
    placement.set_pod(make_pod("there", node="old"))
    patient = {"tolerations": [{"key": "old", "operator": "Exists"}]}

    assert placement.place(make_pod("p", node="")) == "new"
    assert placement.place(make_pod("q", node="")) == "old"
    assert placement.place(make_pod("r", node="", spec=patient)) == "old"


def test_as_many_soft_taints_as_there_are_nodes_hide_none_without(
    make_pod: MakePod, make_node: MakeNode
) -> None:
    placement = Placement()
    soft = [{"key": "old", "effect": "PreferNoSchedule"}]
    for number in range(40):
        placement.set_node(make_node(f"old-{number}", taints=soft))
    placement.set_node(make_node("new"))
    for number in range(5):
        placement.set_pod(make_pod(f"there-{number}", node="new"))

    assert placement.place(make_pod("p", node="")) == "new"


def test_siblings_are_spread_even_to_a_fuller_node(make_pod: MakePod, make_node: MakeNode) -> None:
    placement = Placement()
    placement.set_node(make_node("a"))
    placement.set_node(make_node("b"))
    placement.set_pod(make_pod("stranger", node="b", owner=("ReplicaSet", "other")))
    placed = [placement.place(make_pod(f"web-{n}", node="")) for n in range(2)]
    assert placed == ["a", "b"]


def test_a_decision_counts_at_once_and_asking_again_changes_nothing(
    make_pod: MakePod, make_node: MakeNode
) -> None:
    placement = Placement()
    placement.set_node(make_node("small", pods=1))
    pod = make_pod("p", node="")
    assert placement.place(pod) == "small"
    assert placement.place(pod) == "small"
    assert placement.place(make_pod("q", node="")) is None
    placement.remove_pod(pod.metadata.uid)
    assert placement.place(make_pod("q", node="")) == "small"


def test_room_is_counted_in_processors_and_memory_too(
    make_pod: MakePod, make_node: MakeNode
) -> None:
    placement = Placement()
    placement.set_node(make_node("n", cpu="1"))
    big = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "600m"}}}]}
    assert placement.place(make_pod("p", node="", spec=big)) == "n"
    assert placement.place(make_pod("q", node="", spec=big)) is None


def test_finished_pods_take_no_room(make_pod: MakePod, make_node: MakeNode) -> None:
    placement = Placement()
    placement.set_node(make_node("n"))
    placement.set_pod(make_pod("p", node="n"))
    assert placement.pods_on("n") == 1
    placement.set_pod(make_pod("p", node="n", phase="Succeeded"))
    assert placement.pods_on("n") == 0


def test_pods_may_be_known_before_their_node_and_after_it(
    make_pod: MakePod, make_node: MakeNode
) -> None:
    placement = Placement()
    placement.set_pod(make_pod("p", node="n"))
    placement.set_node(make_node("n", pods=1))
    assert placement.place(make_pod("q", node="")) is None
    placement.remove_node("n")
    placement.remove_pod("uid-p")
    assert placement.pods_on("n") == 0
    placement.set_node(make_node("n", pods=1))
    assert placement.place(make_pod("q", node="")) == "n"


def test_a_hundred_pods_end_up_evenly_spread(make_pod: MakePod, make_node: MakeNode) -> None:
    placement = Placement()
    for n in range(10):
        placement.set_node(make_node(f"n-{n}", pods=100))
    owners = [("ReplicaSet", f"set-{n % 7}") for n in range(100)]
    counts = Counter(
        placement.place(make_pod(f"p-{n}", node="", owner=owners[n])) for n in range(100)
    )
    assert len(counts) == 10
    assert max(counts.values()) - min(counts.values()) <= 3
