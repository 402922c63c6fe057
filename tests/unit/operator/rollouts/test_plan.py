from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.conftest import Make

from navarchos.operator.api.v1alpha1 import NodeRolloutSpec, PlannedNode
from navarchos.operator.rollouts.plan import make_plan, reprioritize


def spec(**fields: Any) -> NodeRolloutSpec:
    return msgspec.convert(fields, NodeRolloutSpec)


def selector(priority: int, **labels: str) -> dict[str, Any]:
    return {"matchLabels": labels, "replacement": {"priority": priority}}


def named(name: str, priority: int = 0) -> dict[str, Any]:
    return {"name": name, "replacement": {"priority": priority}}


@pytest.mark.rule("OP-01")
@pytest.mark.parametrize("priorities", [(30, 10), (10, 30)])
@pytest.mark.rule("N-3")
def test_the_highest_priority_of_all_matching_selectors_wins(
    make: Make, priorities: tuple[int, int]
) -> None:
    node = make.node("a", role="worker", zone="x")
    given_spec = spec(
        nodeSelectors=[selector(priorities[0], role="worker"), selector(priorities[1], zone="x")]
    )
    assert make_plan(given_spec, [node]).nodes == (PlannedNode("a", "uid-a", 30),)


@pytest.mark.rule("OP-01")
def test_a_name_overrides_selectors_even_with_a_lower_priority(make: Make) -> None:
    node = make.node("a", role="worker")
    given_spec = spec(nodeSelectors=[selector(30, role="worker")], nodeNames=[named("a", 5)])
    assert make_plan(given_spec, [node]).nodes == (PlannedNode("a", "uid-a", 5),)


@pytest.mark.rule("OP-03")
def test_names_that_match_no_node_are_reported_sorted(make: Make) -> None:
    plan = make_plan(spec(nodeNames=[named("z"), named("a"), named("b")]), [make.node("a")])
    assert plan.not_found == ("b", "z")
    assert [node.name for node in plan.nodes] == ["a"]


def test_a_selector_without_conditions_matches_only_when_it_says_so(make: Make) -> None:
    nodes = [make.node("a"), make.node("b")]
    assert make_plan(spec(nodeSelectors=[{}]), nodes).nodes == ()
    everything = make_plan(spec(nodeSelectors=[{"matchAll": True}]), nodes)
    assert [node.name for node in everything.nodes] == ["a", "b"]


def test_expressions_select_too(make: Make) -> None:
    expression = {"key": "role", "operator": "In", "values": ["worker", "spot"]}
    nodes = [make.node("a", role="worker"), make.node("b", role="master")]
    plan = make_plan(spec(nodeSelectors=[{"matchExpressions": [expression]}]), nodes)
    assert [node.name for node in plan.nodes] == ["a"]


@pytest.mark.rule("OP-09")
def test_order_is_priority_then_topology_then_age_then_name(make: Make) -> None:
    nodes = [
        make.node("late", role="worker", zone="a", created=-1),
        make.node("b-old", role="worker", zone="b", created=-9),
        make.node("z", role="worker", zone="a", created=-9),
        make.node("y", role="worker", zone="a", created=-9),
        make.node("first", role="master", zone="z"),
    ]
    given_spec = spec(
        nodeSelectors=[selector(1, role="worker"), selector(2, role="master")],
        strategy={"topologyKey": "zone"},
    )
    order = [node.name for node in make_plan(given_spec, nodes).nodes]
    assert order == ["first", "y", "z", "late", "b-old"]


@pytest.mark.rule("OP-09")
@given(data=st.data())
def test_the_order_of_the_nodes_changes_nothing(make: Make, data: st.DataObject) -> None:
    nodes = [
        make.node(
            f"n{i}", created=-data.draw(st.integers(0, 2)), zone=data.draw(st.sampled_from("ab"))
        )
        for i in range(5)
    ]
    given_spec = spec(
        nodeSelectors=[{"matchAll": True}, selector(2, zone="a")],
        strategy={"topologyKey": "zone"},
    )
    shuffled = data.draw(st.permutations(nodes))
    assert make_plan(given_spec, shuffled) == make_plan(given_spec, nodes)


@pytest.mark.rule("OP-10")
def test_an_edit_changes_priorities_and_never_the_set(make: Make) -> None:
    planned = (
        PlannedNode("a", "uid-a", 1),
        PlannedNode("no-longer-matched", "uid-no-longer-matched", 2),
        PlannedNode("gone", "uid-gone", 3),
        PlannedNode("reborn", "uid-of-before", 4),
    )
    nodes = [
        make.node(name, role=role)
        for name, role in [
            ("a", "worker"),
            ("no-longer-matched", "x"),
            ("reborn", "worker"),
            ("new", "worker"),
        ]
    ]
    edited = spec(nodeSelectors=[selector(9, role="worker")])
    after = reprioritize(edited, planned, {node.metadata.name: node for node in nodes})
    assert [(node.name, node.priority) for node in after] == [
        ("a", 9),
        ("no-longer-matched", 2),
        ("gone", 3),
        ("reborn", 4),
    ]
