"""Which nodes may start: tables first, then properties over random clusters."""

from dataclasses import replace as with_fields
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operator.conftest import Make

from navarchos.operator.api.v1alpha1 import (
    NodeReplacement,
    OwnerKey,
    RolloutPhase,
    Step,
)
from navarchos.operator.nodes import CONTROL_PLANE_LABEL, Node, NodeCondition, NodeStatus
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission import MAX_TIE_CANDIDATES, admit, admit_with_budgets
from navarchos.operator.replacements.snapshot import ClusterSnapshot, PendingPod
from navarchos.operator.replacements.status import reserved_status


def world(make: Make, *replacements: NodeReplacement, **fields: Any) -> ClusterSnapshot:
    rollouts = fields.pop("rollouts", [make.rollout()])
    names = {r.spec.node_name for r in replacements}
    nodes = fields.pop("nodes", [make.node(name) for name in sorted(names)])
    return ClusterSnapshot(
        replacements=replacements,
        rollouts={rollout.metadata.uid: rollout for rollout in rollouts},
        nodes={node.metadata.name: node for node in nodes},
        **fields,
    )


@pytest.mark.rule("OP-21")
def test_one_node_starts_at_a_time_by_default(make: Make) -> None:
    decisions = admit(world(make, make.replacement("b"), make.replacement("a")), make.now)
    assert decisions.start == ("roll-a",)
    assert decisions.waiting == {"roll-b": WaitReason.MAX_CONCURRENT}


@pytest.mark.rule("OP-21")
def test_a_node_in_flight_of_any_rollout_occupies_a_slot(make: Make) -> None:
    other = make.replacement("x", rollout="other", step=Step.DRAINING)
    seen = world(
        make,
        make.replacement("a"),
        other,
        rollouts=[make.rollout(), make.rollout("other")],
    )
    assert admit(seen, make.now).waiting == {"roll-a": WaitReason.MAX_CONCURRENT}


def test_only_the_first_waiting_node_has_the_actual_reason(make: Make) -> None:
    seen = world(
        make,
        make.replacement("a", step=Step.DRAINING),
        *(make.replacement(name) for name in "bcd"),
    )
    assert admit(seen, make.now).waiting == {
        "roll-b": WaitReason.MAX_CONCURRENT,
        "roll-c": WaitReason.QUEUED,
        "roll-d": WaitReason.QUEUED,
    }


def test_as_many_start_at_once_as_the_limit_allows(make: Make) -> None:
    strategy = {"maxConcurrent": 3}
    seen = world(
        make,
        make.replacement("a", step=Step.DRAINING, strategy=strategy),
        *(make.replacement(name, strategy=strategy) for name in "bcde"),
    )
    assert admit(seen, make.now).start == ("roll-b", "roll-c")


def test_a_drain_that_outlives_its_replacement_keeps_its_slot(make: Make) -> None:
    seen = world(
        make,
        make.replacement("a"),
        nodes=[make.node("a"), make.node("gone-rollouts-node")],
        orphaned=frozenset({"gone-rollouts-node"}),
    )
    assert admit(seen, make.now).waiting == {"roll-a": WaitReason.MAX_CONCURRENT}


@pytest.mark.rule("OP-05")
@pytest.mark.parametrize("step", [Step.WAITING, Step.RESERVED, Step.DRAINING, Step.RELEASING])
def test_an_unfinished_node_of_a_higher_priority_blocks_every_rollout(
    make: Make, step: Step
) -> None:
    strategy = {"maxConcurrent": 9}
    high = make.replacement(
        "a", rollout="high", step=step, replacement={"priority": 5}, strategy=strategy
    )
    seen = world(
        make,
        high,
        make.replacement("b", strategy=strategy),
        rollouts=[make.rollout(), make.rollout("high")],
    )
    assert admit(seen, make.now).waiting["roll-b"] is WaitReason.HIGHER_PRIORITY


@pytest.mark.rule("OP-05")
@pytest.mark.parametrize(
    ("child", "rollout"),
    [
        ({"step": Step.FAILED}, {}),
        ({"step": Step.DONE}, {}),
        ({"paused": True}, {}),
        ({}, {"paused": True}),
        ({}, {"phase": RolloutPhase.HALTED}),
        ({}, {"deleting": True}),
        ({"deleting": True}, {}),
    ],
)
def test_failed_paused_halted_and_deleted_replacements_block_no_other(
    make: Make, child: dict[str, Any], rollout: dict[str, Any]
) -> None:
    high = make.replacement("a", rollout="high", replacement={"priority": 5}, **child)
    seen = world(
        make,
        high,
        make.replacement("b"),
        rollouts=[make.rollout(), make.rollout("high", **rollout)],
    )
    assert admit(seen, make.now).start == ("roll-b",)


@pytest.mark.rule("OP-07")
@pytest.mark.parametrize(
    ("child", "rollout", "reason"),
    [
        ({"paused": True}, {}, WaitReason.PAUSED),
        ({}, {"paused": True}, WaitReason.ROLLOUT_PAUSED),
        ({}, {"phase": RolloutPhase.HALTED}, WaitReason.ROLLOUT_HALTED),
        ({}, {"phase": RolloutPhase.NEW}, WaitReason.ROLLOUT_NOT_READY),
        ({"strategy": {"maxConcurrent": "many"}}, {}, WaitReason.INVALID_STRATEGY),
        ({"strategy": {"maxConcurrent": 0}}, {}, WaitReason.MAX_CONCURRENT),
    ],
)
def test_every_blocked_node_has_its_reason(
    make: Make, child: dict[str, Any], rollout: dict[str, Any], reason: WaitReason
) -> None:
    seen = world(make, make.replacement("a", **child), rollouts=[make.rollout(**rollout)])
    decisions = admit(seen, make.now)
    assert decisions.start == ()
    assert decisions.waiting == {"roll-a": reason}


@pytest.mark.rule("OP-02")
def test_children_of_a_deleted_rollout_neither_start_nor_block(make: Make) -> None:
    orphan = make.replacement("a", rollout="gone", replacement={"priority": 9})
    decisions = admit(world(make, orphan, make.replacement("b")), make.now)
    assert decisions.start == ("roll-b",)
    assert "gone-a" not in decisions.waiting


@pytest.mark.rule("OP-08")
def test_no_node_starts_after_too_many_failures_before_halted_is_written(
    make: Make,
) -> None:
    failed = make.replacement("a", step=Step.FAILED, failed_at=(-20, -10))
    rollout = make.rollout(nodes=("a", "b"))
    decisions = admit(world(make, failed, make.replacement("b"), rollouts=[rollout]), make.now)
    assert decisions.waiting == {"roll-b": WaitReason.ROLLOUT_HALTED}


@pytest.mark.rule("OP-09")
def test_order_is_topology_then_age_then_name(make: Make) -> None:
    strategy = {"topologyKey": "zone", "maxConcurrent": 1}
    nodes = [
        make.node("old-b", zone="b", created=-9),
        make.node("young-a", zone="a", created=-1),
        make.node("old-a", zone="a", created=-9),
        make.node("also-old-a", zone="a", created=-9),
    ]
    waiting = [make.replacement(n.metadata.name, strategy=strategy) for n in nodes]
    order = []
    while waiting:
        (name,) = admit(world(make, *waiting, nodes=nodes), make.now).start
        order.append(name)
        waiting = [r for r in waiting if r.metadata.name != name]
    assert order == ["roll-also-old-a", "roll-old-a", "roll-young-a", "roll-old-b"]


@pytest.mark.rule("OP-25")
def test_a_failed_node_starts_after_all_others_of_its_priority(make: Make) -> None:
    seen = world(make, make.replacement("a", failed_at=(-5,)), make.replacement("b"))
    assert admit(seen, make.now).start == ("roll-b",)


def test_nodes_in_flight_share_one_topology_value(make: Make) -> None:
    strategy = {"topologyKey": "zone", "maxConcurrent": 3}
    nodes = [make.node("a1", zone="a"), make.node("a2", zone="a"), make.node("b1", zone="b")]
    seen = world(
        make,
        make.replacement("a1", step=Step.DRAINING, strategy=strategy),
        make.replacement("a2", strategy=strategy),
        make.replacement("b1", strategy=strategy),
        nodes=nodes,
    )
    decisions = admit(seen, make.now)
    assert decisions.start == ("roll-a2",)
    assert decisions.waiting == {"roll-b1": WaitReason.TOPOLOGY}


def master(make: Make, name: str, *, ready: bool = True) -> Node:
    """Return a control-plane node."""
    conditions = (NodeCondition("Ready", "True" if ready else "Unknown"),)
    node = make.node(name)
    metadata = msgspec.structs.replace(node.metadata, labels={CONTROL_PLANE_LABEL: ""})
    return msgspec.structs.replace(node, metadata=metadata, status=NodeStatus(conditions))


@pytest.mark.rule("OP-21")
def test_no_control_plane_node_starts_while_another_is_not_ready(make: Make) -> None:
    """One of three members is not Ready; without a second member the quorum is lost."""
    nodes = [master(make, "m1"), master(make, "m2"), master(make, "m3", ready=False)]
    seen = world(make, make.replacement("m1"), make.replacement("m2"), nodes=nodes)
    decisions = admit(seen, make.now)
    assert decisions.start == ()
    assert decisions.waiting == {
        "roll-m1": WaitReason.CONTROL_PLANE,
        "roll-m2": WaitReason.CONTROL_PLANE,
    }
    well = world(make, *seen.replacements, nodes=[master(make, f"m{n}") for n in (1, 2, 3)])
    assert admit(well, make.now).start == ("roll-m1",)


def test_a_control_plane_node_that_is_not_ready_may_start_itself(make: Make) -> None:
    nodes = [master(make, "m1"), master(make, "m2"), master(make, "m3", ready=False)]
    seen = world(make, *(make.replacement(node.metadata.name) for node in nodes), nodes=nodes)
    assert admit(seen, make.now).start == ("roll-m3",)


def test_control_plane_nodes_start_one_by_one_and_do_not_block_workers(make: Make) -> None:
    strategy = {"maxConcurrent": 4}
    nodes = [*(master(make, f"m{n}") for n in (1, 2, 3)), make.node("w1"), make.node("w2")]
    names = [node.metadata.name for node in nodes]
    seen = world(make, *(make.replacement(n, strategy=strategy) for n in names), nodes=nodes)
    decisions = admit(seen, make.now)
    assert decisions.start == ("roll-m1", "roll-w1", "roll-w2")
    assert set(decisions.waiting.values()) == {WaitReason.CONTROL_PLANE}
    assert admit(start(make, seen, decisions.start), make.now).start == ()


def test_a_control_plane_node_in_flight_blocks_those_of_other_rollouts(make: Make) -> None:
    strategy = {"maxConcurrent": 4}
    seen = world(
        make,
        make.replacement("m1", rollout="other", step=Step.DRAINING, strategy=strategy),
        make.replacement("m2", strategy=strategy),
        rollouts=[make.rollout(), make.rollout("other")],
        nodes=[master(make, "m1"), master(make, "m2")],
    )
    assert admit(seen, make.now).waiting == {"roll-m2": WaitReason.CONTROL_PLANE}


def test_the_control_plane_is_not_guarded_when_the_spec_says_so(make: Make) -> None:
    strategy = {"maxConcurrent": 2, "controlPlane": "Ignore"}
    nodes = [master(make, "m1"), master(make, "m2"), master(make, "m3", ready=False)]
    names = ("m1", "m2")
    seen = world(make, *(make.replacement(n, strategy=strategy) for n in names), nodes=nodes)
    assert admit(seen, make.now).start == ("roll-m1", "roll-m2")


def test_workers_do_not_wait_for_the_control_plane(make: Make) -> None:
    nodes = [master(make, "m1", ready=False), make.node("w1")]
    assert admit(world(make, make.replacement("w1"), nodes=nodes), make.now).start == ("roll-w1",)


@pytest.mark.rule("OP-06")
def test_a_node_in_flight_is_not_started_a_second_time(make: Make) -> None:
    strategy = {"maxConcurrent": 5}
    seen = world(
        make,
        make.replacement("a", rollout="first", step=Step.DRAINING, strategy=strategy),
        make.replacement("a", strategy=strategy),
        make.replacement("b", strategy=strategy),
        rollouts=[make.rollout(), make.rollout("first")],
    )
    decisions = admit(seen, make.now)
    assert decisions.waiting == {"roll-a": WaitReason.NODE_IN_FLIGHT}
    assert decisions.start == ("roll-b",), "it does not block others"


def test_the_next_node_waits_until_the_last_one_has_settled(make: Make) -> None:
    done = make.replacement("a", step=Step.DONE, done=-10, strategy={"settleSeconds": 30})
    decisions = admit(world(make, done, make.replacement("b")), make.now)
    assert decisions.waiting == {"roll-b": WaitReason.SETTLING}
    assert decisions.recheck_after == 20
    assert admit(world(make, done, make.replacement("b")), make.at(20)).start == ("roll-b",)


def test_a_deleted_node_needs_no_time_to_settle(make: Make) -> None:
    gone = make.replacement(
        "a", step=Step.DONE, reason="NodeGone", done=0, strategy={"settleSeconds": 30}
    )
    assert admit(world(make, gone, make.replacement("b")), make.now).start == ("roll-b",)


def drained_one(make: Make, **fields: Any) -> NodeReplacement:
    owners = (OwnerKey("default", "ReplicaSet", "web", "uid-web"),)
    return make.replacement(
        "a", step=Step.DONE, started=-60.5, done=-5, status={"evicted_owners": owners}, **fields
    )


def pod(make: Make, owner: str = "uid-web", created: float = -10) -> PendingPod:
    return PendingPod("default/web-1", owner, make.at(created))


@pytest.mark.parametrize(
    ("policy", "owner", "created", "waits"),
    [
        ("Evicted", "uid-web", -10, True),
        ("Evicted", "uid-web", -61, True),  # the same second as the start
        ("Evicted", "uid-web", -70, False),  # was Pending before the eviction
        ("Evicted", "uid-other", -10, False),
        ("Any", "uid-other", -70, True),
        ("Ignore", "uid-web", -10, False),
    ],
)
@pytest.mark.rule("N-6")
def test_pending_pods_block_the_next_node_by_policy(
    make: Make, policy: str, owner: str, created: float, *, waits: bool
) -> None:
    waiting = make.replacement("b", strategy={"pendingPods": policy})
    decisions = admit(
        world(make, drained_one(make), waiting, pending=[pod(make, owner, created)]), make.now
    )
    assert decisions.waiting == ({"roll-b": WaitReason.PENDING_PODS} if waits else {})


def test_pods_that_a_finished_rollout_evicted_block_no_node(make: Make) -> None:
    seen = world(
        make,
        drained_one(make, rollout="finished"),
        make.replacement("b"),
        rollouts=[make.rollout(), make.rollout("finished")],
        pending=[pod(make)],
    )
    assert admit(seen, make.now).start == ("roll-b",)


@pytest.mark.rule("N-6")
def test_a_long_wait_for_pending_pods_fails_the_attempt(make: Make) -> None:
    strategy = {"pendingPodsTimeoutSeconds": 60}
    waiting = make.replacement("b", reason=WaitReason.PENDING_PODS, since=0, strategy=strategy)
    seen = world(make, drained_one(make), waiting, pending=[pod(make)])
    assert admit(seen, make.at(45)).recheck_after == 15
    decisions = admit(seen, make.at(60))
    assert decisions.expired == ("roll-b",)
    assert decisions.start == ()


def test_the_time_for_pending_pods_begins_when_they_become_the_reason(make: Make) -> None:
    strategy = {"pendingPodsTimeoutSeconds": 60}
    waiting = make.replacement("b", reason=WaitReason.MAX_CONCURRENT, since=-500, strategy=strategy)
    seen = world(make, drained_one(make), waiting, pending=[pod(make)])
    assert admit(seen, make.now).waiting == {"roll-b": WaitReason.PENDING_PODS}


def test_a_replacement_without_a_uid_waits_for_it_and_holds_its_place(make: Make) -> None:
    by_hand = make.replacement("a", rollout="", nodeUID="", replacement={"priority": 1})
    decisions = admit(world(make, by_hand, make.replacement("b")), make.now)
    assert decisions.start == ()
    assert decisions.waiting == {"roll-b": WaitReason.HIGHER_PRIORITY}


# Budgets that several nodes share

PAIR = {"maxConcurrent": 2}


def over(*budgets: str) -> frozenset[str]:
    return frozenset(budgets)


def busy_nodes(make: Make, busy: str, *waiting: str, **fields: Any) -> ClusterSnapshot:
    """One node in flight, and others that wait for the second slot."""
    return world(
        make,
        make.replacement(busy, step=Step.DRAINING, strategy=PAIR),
        *(make.replacement(name, strategy=PAIR) for name in waiting),
        **fields,
    )


@pytest.mark.rule("OP-09")
@pytest.mark.parametrize(
    ("budgets", "chosen"),
    [
        ({}, "b"),  # no budget is known: the usual order
        ({"a": over("x"), "b": over("x"), "c": over("y")}, "c"),
        ({"a": over("x"), "b": over("y"), "c": over()}, "b"),  # no budget is shared: the first one
        ({"a": over("x"), "b": over("x"), "c": over("x"), "d": over("x")}, "b"),
        ({"a": over("x", "y"), "b": over("x", "y"), "c": over("x"), "d": over("y")}, "c"),
        ({"b": over("x"), "c": over("x")}, "b"),  # the budgets of the node in flight are not known
    ],
)
def test_the_candidate_that_shares_fewest_budgets_starts(
    make: Make, budgets: dict[str, frozenset[str]], chosen: str
) -> None:
    seen = busy_nodes(make, "a", "b", "c", "d", budgets=budgets)
    decisions = admit(seen, make.now)
    assert decisions.start == (f"roll-{chosen}",)
    first, *others = [f"roll-{name}" for name in "bcd" if name != chosen]
    assert decisions.waiting == {
        first: WaitReason.MAX_CONCURRENT,
        **dict.fromkeys(others, WaitReason.QUEUED),
    }


def test_nodes_that_start_together_share_few_budgets(make: Make) -> None:
    budgets = {"a": over("x"), "b": over("x"), "c": over("y"), "d": over("y")}
    seen = world(make, *(make.replacement(n, strategy=PAIR) for n in "abcd"), budgets=budgets)
    assert admit(seen, make.now).start == ("roll-a", "roll-c")


def test_budgets_do_not_change_the_order_of_retries_and_topologies(make: Make) -> None:
    budgets = {"a": over("x"), "b": over("x")}
    zoned = PAIR | {"topologyKey": "zone"}
    seen = world(
        make,
        make.replacement("a", step=Step.DRAINING, strategy=PAIR),
        make.replacement("b", strategy=zoned),
        make.replacement("c", strategy=zoned, failed_at=(-5,)),
        make.replacement("d", strategy=zoned),
        nodes=[*(make.node(name) for name in "abc"), make.node("d", zone="z")],
        budgets=budgets,
    )
    decisions = admit(seen, make.now)
    assert decisions.start == ("roll-b",)
    assert decisions.tie_candidates == ()


def test_budgets_do_not_change_the_order_of_rollouts(make: Make) -> None:
    seen = world(
        make,
        make.replacement("a", step=Step.DRAINING, strategy=PAIR),
        make.replacement("b", rollout="other", strategy=PAIR),
        make.replacement("c", strategy=PAIR),
        rollouts=[make.rollout(), make.rollout("other")],
        budgets={"a": over("x"), "b": over("x")},
    )
    assert admit(seen, make.now).start == ("other-b",)


def test_only_a_few_candidates_are_compared(make: Make) -> None:
    names = [f"n{number:03}" for number in range(100)]
    seen = busy_nodes(make, "a", *names)
    decisions = admit(seen, make.now)
    assert decisions.tie_candidates == tuple(names[:MAX_TIE_CANDIDATES])
    assert decisions.busy_nodes == ("a", "n000")


@pytest.mark.parametrize(
    ("busy", "waiting"), [(0, 3), (1, 1), (2, 5)], ids=["alone", "no choice", "no slot"]
)
def test_budgets_that_decide_nothing_are_not_looked_up(make: Make, busy: int, waiting: int) -> None:
    limit = {"maxConcurrent": 2 if busy else 1}
    seen = world(
        make,
        *(make.replacement(f"f{n}", step=Step.DRAINING, strategy=limit) for n in range(busy)),
        *(make.replacement(f"w{n}", strategy=limit) for n in range(waiting)),
    )

    def never(*_: object) -> dict[str, frozenset[str]]:
        raise AssertionError("budgets were looked up")

    assert admit_with_budgets(seen, make.now, never) == admit(seen, make.now)


def drain_all(make: Make, apart: bool) -> tuple[int, int]:
    """Drain eight nodes, two at a time; return the minutes, and the minutes with a waiting node.

    Each application has two pods, on two consecutive nodes, and a budget that allows one
    disruption: of two nodes that share a budget, one is drained and the other waits.
    """
    names = [f"n{number}" for number in range(8)]
    apps = {name: over(f"app-{number // 2}") for number, name in enumerate(names)}
    todo = {name: make.replacement(name, strategy=PAIR) for name in names}
    minutes = waited = 0
    while todo:
        seen = world(make, *todo.values(), nodes=[make.node(name) for name in names])
        decisions = admit_with_budgets(seen, make.now, lambda *_: apps if apart else {})
        for name in decisions.start:
            node = name.removeprefix("roll-")
            status = reserved_status(todo[node], make.now)
            todo[node] = msgspec.structs.replace(todo[node], status=status)
        minutes += 1
        busy = [name for name, each in todo.items() if each.status.current.in_flight]
        active: set[str] = set()
        for name in busy:
            if active.isdisjoint(apps[name]):
                active |= apps[name]
                del todo[name]
            else:
                waited += 1
    return minutes, waited


def test_nodes_that_share_no_budget_are_drained_in_half_the_time(make: Make) -> None:
    assert drain_all(make, apart=True) == (4, 0)
    minutes, waited = drain_all(make, apart=False)
    assert (minutes > 4, waited > 0) == (True, True)


@settings(max_examples=60)
@given(data=st.data())
def test_two_nodes_with_crossing_budgets_are_both_drained(make: Make, data: st.DataObject) -> None:
    """Every node is drained in the end, with any shared budgets."""
    names = ["a", "b", "c", "d"]
    choice = st.frozensets(st.sampled_from(["x", "y", "z"]))
    budgets = {name: data.draw(choice) for name in names}
    left = {name: make.replacement(name, strategy=PAIR) for name in names}
    for _ in names:
        seen = world(make, *left.values(), budgets=budgets)
        for name in admit(seen, make.now).start:
            node = name.removeprefix("roll-")
            status = reserved_status(left[node], make.now)
            left[node] = msgspec.structs.replace(left[node], status=status)
        busy = sorted(name for name, each in left.items() if each.status.current.in_flight)
        del left[data.draw(st.sampled_from(busy))]
    assert left == {}


@settings(max_examples=60)
@given(data=st.data())
def test_no_other_candidate_shares_fewer_budgets_than_the_started_node(
    make: Make, data: st.DataObject
) -> None:
    """With any shared budgets; of several nodes that share equally few, the first starts."""
    names = ["a", "b", "c", "d", "e", "f"]
    choice = st.frozensets(st.sampled_from(["w", "x", "y", "z"]))
    budgets = {name: data.draw(choice) for name in names}
    (started,) = admit(busy_nodes(make, *names, budgets=budgets), make.now).start
    shared = {name: len(budgets["a"] & budgets[name]) for name in names[1:]}
    fewest = [name for name in names[1:] if shared[name] == min(shared.values())]
    assert started == f"roll-{fewest[0]}"


# Properties over random clusters

ROLLOUTS = ("r0", "r1", "")


@st.composite
def worlds(draw: st.DrawFn, make: Make) -> ClusterSnapshot:
    names = [f"n{i}" for i in range(draw(st.integers(1, 8)))]
    zones = {name: draw(st.sampled_from(["a", "b", ""])) for name in names}
    masters = draw(st.dictionaries(st.sampled_from(names), st.booleans()))
    strategies = {
        rollout: {
            "maxConcurrent": draw(st.integers(1, 4)),
            "topologyKey": draw(st.sampled_from(["", "zone"])),
        }
        for rollout in ROLLOUTS
    }
    replacements = [
        make.replacement(
            node,
            rollout=rollout,
            step=draw(st.sampled_from([Step.WAITING] * 5 + list(Step))),
            attempts=draw(st.integers(0, 1)),
            status={"stalled_since": draw(st.sampled_from([None, None, make.now]))},
            paused=draw(st.sampled_from([False, False, False, True])),
            replacement={"priority": draw(st.integers(0, 2))},
            strategy=strategies[rollout],
        )
        for rollout in ROLLOUTS
        for node in draw(st.lists(st.sampled_from(names), unique=True))
    ]
    allowed = {"maxFailures": draw(st.sampled_from([99, 2]))}
    held = [{"type": "NodeDrained", "status": "False", "reason": "TimeoutHold"}]
    return world(
        make,
        *replacements,
        rollouts=[
            make.rollout("r0", strategy=allowed),
            make.rollout("r1", strategy=allowed, paused=draw(st.booleans())),
        ],
        drains={
            r.metadata.name: make.drain(r, status={"conditions": held})
            for r in replacements
            if r.status.current is Step.DRAINING and draw(st.booleans())
        },
        nodes=[
            master(make, name, ready=masters[name])
            if name in masters
            else make.node(name, zone=zone)
            for name, zone in zones.items()
            if name != "n0"
        ],
        budgets=draw(
            st.dictionaries(st.sampled_from(names), st.frozensets(st.sampled_from(["x", "y", "z"])))
        ),
    )


def start(make: Make, seen: ClusterSnapshot, names: tuple[str, ...]) -> ClusterSnapshot:
    return with_fields(
        seen,
        replacements=[
            msgspec.structs.replace(r, status=reserved_status(r, make.now))
            if r.metadata.name in names
            else r
            for r in seen.replacements
        ],
    )


@settings(max_examples=60)
@given(data=st.data())
def test_the_order_of_the_objects_changes_nothing(make: Make, data: st.DataObject) -> None:
    seen = data.draw(worlds(make))
    shuffled = with_fields(seen, replacements=data.draw(st.permutations(list(seen.replacements))))
    assert admit(shuffled, make.now) == admit(seen, make.now)


@pytest.mark.rule("OP-22")
@settings(max_examples=60)
@given(data=st.data())
def test_a_started_node_never_exceeds_its_limit(make: Make, data: st.DataObject) -> None:
    seen = data.draw(worlds(make))
    for name in admit(seen, make.now).start:
        before = {r.spec.node_name for r in seen.replacements if r.status.occupies_slot}
        closed = {r.spec.node_name for r in seen.replacements if r.status.current.in_flight}
        chosen = next(r for r in seen.replacements if r.metadata.name == name)
        assert chosen.spec.node_name not in closed
        assert len(before) < int(chosen.spec.strategy.max_concurrent)
        seen = start(make, seen, (name,))


@pytest.mark.rule("OP-22")
@settings(max_examples=60)
@given(data=st.data())
def test_stalled_and_failed_nodes_never_exceed_max_failures(
    make: Make, data: st.DataObject
) -> None:
    """Failed and stalled nodes together, also after the next node has released its slot."""
    seen = data.draw(worlds(make))
    by_name = {r.metadata.name: r for r in seen.replacements}
    for name in admit(seen, make.now).stalled:
        assert by_name[name].status.occupies_slot
        rollout = name.split("-")[0]
        mine = [r for r in seen.replacements if r.metadata.name.startswith(f"{rollout}-")]
        given = admit(seen, make.now).stalled
        without = [
            r
            for r in mine
            if r.status.current is Step.FAILED or r.status.is_stalled or r.metadata.name in given
        ]
        assert len(without) <= int(seen.rollouts[f"uid-{rollout}"].spec.strategy.max_failures)


@settings(max_examples=60)
@given(data=st.data())
def test_budgets_change_which_node_starts_but_not_the_reasons_of_others(
    make: Make, data: st.DataObject
) -> None:
    """The same rollouts start as many nodes of the same rank, and each reason is still correct."""
    seen = data.draw(worlds(make))
    plain = admit(with_fields(seen, budgets={}), make.now)
    apart = admit(seen, make.now)

    def ranks(names: tuple[str, ...]) -> list[tuple[str, int]]:
        chosen = [r for r in seen.replacements if r.metadata.name in names]
        return sorted((r.metadata.name.split("-")[0], r.status.counted_attempts) for r in chosen)

    masters = any(node.is_control_plane for node in seen.nodes.values())
    alone = len({r.spec.node_name for r in seen.replacements}) == len(seen.replacements)
    if alone and not masters:
        assert ranks(apart.start) == ranks(plain.start)
    accounted = {*apart.start, *apart.expired, *apart.waiting}
    assert accounted == {*plain.start, *plain.expired, *plain.waiting}


@pytest.mark.rule("OP-22")
@settings(max_examples=60)
@given(data=st.data())
def test_a_second_decision_after_the_starts_starts_no_node(make: Make, data: st.DataObject) -> None:
    seen = data.draw(worlds(make))
    after = start(make, seen, admit(seen, make.now).start)
    assert admit(after, make.now).start == ()


@pytest.mark.rule("OP-21")
@settings(max_examples=60)
@given(data=st.data())
def test_the_control_plane_never_loses_a_second_node(make: Make, data: st.DataObject) -> None:
    seen = data.draw(worlds(make))
    for name in admit(seen, make.now).start:
        chosen = next(r for r in seen.replacements if r.metadata.name == name).spec.node_name
        others = {n for n, node in seen.nodes.items() if node.is_control_plane} - {chosen}
        if chosen in seen.nodes and seen.nodes[chosen].is_control_plane:
            assert all(seen.nodes[other].is_ready for other in others)
            busy = {r.spec.node_name for r in seen.replacements if r.status.current.in_flight}
            assert busy.isdisjoint(others)
        seen = start(make, seen, (name,))


@pytest.mark.rule("OP-05")
@settings(max_examples=60)
@given(data=st.data())
def test_no_node_starts_below_the_highest_unfinished_priority(
    make: Make, data: st.DataObject
) -> None:
    seen = data.draw(worlds(make))
    unfinished = [
        r.spec.replacement.priority
        for r in seen.replacements
        if not r.status.current.is_finished
        and not r.spec.paused
        and not (r.metadata.name.startswith("r1-") and seen.rollouts["uid-r1"].spec.paused)
    ]
    by_name = {r.metadata.name: r for r in seen.replacements}
    for name in admit(seen, make.now).start:
        assert by_name[name].spec.replacement.priority == max(unfinished)


@settings(max_examples=60)
@given(data=st.data())
def test_every_waiting_node_starts_or_has_a_reason(make: Make, data: st.DataObject) -> None:
    seen = data.draw(worlds(make))
    decisions = admit(seen, make.now)
    waiting = {r.metadata.name for r in seen.replacements if r.status.current is Step.WAITING}
    assert {*decisions.start, *decisions.expired, *decisions.waiting} == waiting
    assert not set(decisions.start) & decisions.waiting.keys()


def test_a_rollout_without_obstacles_finishes(make: Make) -> None:
    seen = world(make, *(make.replacement(f"n{i}") for i in range(20)))
    order = []
    for second in range(20):
        (name,) = admit(seen, make.at(second)).start
        order.append(name)
        done = make.replacement(name.removeprefix("roll-"), step=Step.DONE, done=second)
        seen = with_fields(
            seen,
            replacements=[done if r.metadata.name == name else r for r in seen.replacements],
        )
    assert order == sorted(order)
