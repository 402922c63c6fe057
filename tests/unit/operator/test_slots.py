"""One count of nodes in flight for all systems: turns, holders, objections."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.unit.operator.conftest import Make, Operator
from tests.unit.operator.replacements.test_admission import master

from navarchos.client import ConnectFailed
from navarchos.clock import SYSTEM_CLOCK
from navarchos.meta import ObjectMeta, OwnerReference
from navarchos.operator.api.v1alpha1 import (
    NODE_DRAINS,
    DrainPhase,
    NodeDrain,
    NodeReplacement,
    Step,
)
from navarchos.operator.preflight.prediction import ClusterState, predict
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission import admit
from navarchos.operator.replacements.reconciler import ADMISSION
from navarchos.operator.replacements.snapshot import ClusterSnapshot
from navarchos.operator.slots import (
    DRAINS,
    Holder,
    Slots,
    SlotsUnknown,
    drain_holders,
    names_of_holders,
    orphaned_nodes,
    replacement_holders,
)
from navarchos.runtime.conditions import find_condition

BY_USER = Holder("NodeDrain", "mine", "created by a user")


def slots() -> Slots:
    return Slots(SYSTEM_CLOCK)


def foreign_drain(name: str, node: str, *, owner: str = "", **fields: Any) -> NodeDrain:
    reference = OwnerReference(
        api_version="example.com/v1", kind=owner, name="it", uid="uid-it", controller=True
    )
    drain = msgspec.convert({"spec": {"nodeName": node, **fields}}, NodeDrain)
    metadata = ObjectMeta(name=name, uid=name, owner_references=(reference,) if owner else ())
    return msgspec.structs.replace(drain, metadata=metadata)


def cluster(make: Make, *replacements: NodeReplacement, **fields: Any) -> ClusterSnapshot:
    names = {r.spec.node_name for r in replacements} | fields.get("holders", {}).keys()
    nodes = fields.pop("nodes", {name: make.node(name) for name in sorted(names)})
    rollouts = fields.pop("rollouts", [make.rollout()])
    by_uid = {rollout.metadata.uid: rollout for rollout in rollouts}
    return ClusterSnapshot(replacements=replacements, rollouts=by_uid, nodes=nodes, **fields)


# Turns


@pytest.mark.rule("RB-12")
@pytest.mark.rule("NP-01")
def test_one_admission_at_a_time_has_the_turn() -> None:
    shared, inside, entered = slots(), threading.Event(), threading.Event()
    order: list[str] = []

    def second() -> None:
        inside.wait()
        entered.set()
        with shared.turn():
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with shared.turn():
        inside.set()
        entered.wait()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


@pytest.mark.rule("NP-01")
def test_a_turn_within_a_turn_is_an_error_and_the_next_turn_is_not() -> None:
    shared = slots()
    with shared.turn(), pytest.raises(RuntimeError, match="has the turn already"), shared.turn():
        pass
    with shared.turn():
        pass


@pytest.mark.rule("NP-01")
def test_a_turn_ends_with_the_exception_of_its_body() -> None:
    shared = slots()
    with pytest.raises(ZeroDivisionError), shared.turn():
        _ = 1 / 0
    with shared.turn():
        pass


@pytest.mark.rule("RB-12")
@pytest.mark.rule("NP-03")
def test_a_turn_begins_with_the_unanswered_writes_of_every_admission() -> None:
    shared, read = slots(), list[str]()
    shared.add_admission("a", lambda: None, confirm=lambda: read.append("a"))
    shared.add_admission("b", lambda: None, confirm=lambda: read.append("b"))
    with shared.turn():
        assert read == ["a", "b"]


@pytest.mark.rule("NP-03")
def test_no_turn_begins_while_a_write_may_have_succeeded_unseen() -> None:
    shared, fails = slots(), [True]

    def confirm() -> None:
        if fails:
            raise ConnectFailed("no response")

    shared.add_admission("a", lambda: None, confirm=confirm)
    with pytest.raises(ConnectFailed), shared.turn():
        raise AssertionError("the turn began")
    fails.clear()
    with shared.turn():
        pass


# Holders and objections


@pytest.mark.rule("IG-75")
@pytest.mark.rule("UP-42")
@pytest.mark.rule("NP-01")
def test_the_holders_of_all_systems_are_one_mapping_and_a_system_can_leave_out_its_own() -> None:
    shared = slots()
    shared.add_source("a", lambda: {"n1": Holder("A", "one"), "n2": Holder("A", "two")})
    shared.add_source("b", lambda: {"n2": Holder("B", "other")})
    assert {node: str(held) for node, held in shared.holders().items()} == {
        "n1": "A one",
        "n2": "A two",
    }
    assert shared.holders(without="a") == {"n2": Holder("B", "other")}


@pytest.mark.rule("IG-75")
@pytest.mark.rule("NP-01")
def test_the_first_objection_counts() -> None:
    shared = slots()
    assert not shared.has_objections
    shared.add_objection("a", lambda node: "a needs it" if node == "n1" else None)
    shared.add_objection("b", lambda _: "b needs it")
    assert (shared.objection("n1"), shared.objection("n2")) == ("a needs it", "b needs it")
    assert shared.has_objections


@pytest.mark.rule("NP-01")
@pytest.mark.parametrize("kind", ["source", "objection"])
def test_a_system_that_fails_to_report_frees_no_slot(kind: str) -> None:
    def fails(*_: object) -> Any:
        raise KeyError("bug")

    shared = slots()
    ask: Callable[[], object] = shared.holders
    if kind == "source":
        shared.add_source("broken", fails)
    else:
        shared.add_objection("broken", fails)
        ask = lambda: shared.objection("n1")  # noqa: E731
    with capture_logs() as logs, pytest.raises(SlotsUnknown, match=r"system='broken'.*bug"):
        ask()
    assert [(line["event"], line["system"]) for line in logs] == [("slots_unknown", "broken")]


@pytest.mark.rule("NP-01")
def test_a_change_of_one_system_reaches_the_admissions_of_the_others() -> None:
    shared, calls = slots(), list[str]()
    watches: dict[str, Callable[[], None]] = {}
    shared.add_source("a", dict, watch=lambda notify: watches.update(a=notify))
    shared.add_admission("a", lambda: calls.append("a"))
    assert not watches, "no other admission has to know"
    shared.add_admission("c", lambda: calls.append("c"), sees=("a",))
    assert not watches
    shared.add_admission("b", lambda: calls.append("b"))
    shared.add_source("late", dict, watch=lambda notify: watches.update(late=notify))
    watches["a"]()
    assert calls == ["b"]
    watches["late"]()
    assert calls == ["b", "a", "c", "b"]


@pytest.mark.rule("RB-12")
@pytest.mark.rule("NP-07")
def test_slots_of_a_kind_that_no_system_handles_are_counted_and_logged_once(
    make: Make,
) -> None:
    drains = [
        foreign_drain("one", "a", owner="NodeReboot"),
        foreign_drain("two", "b", owner="NodeReboot"),
        foreign_drain("known", "c", owner="NodeCheck"),
        foreign_drain("mine", "d"),
    ]
    nodes = {name: make.node(name) for name in "abcd"}
    shared = slots()
    shared.add_source(DRAINS, lambda: drain_holders(drains, nodes))
    shared.add_admission("checks", lambda: None, kinds=("NodeCheck",))
    with capture_logs() as logs:
        assert set(shared.holders()) == set(shared.holders()) == {"a", "b", "c", "d"}
    assert [(line["event"], line["kind"], line["name"]) for line in logs] == [
        ("slot_of_unknown_kind", "NodeReboot", "one")
    ]


@pytest.mark.rule("RB-10")
@pytest.mark.rule("NP-02")
@pytest.mark.parametrize("phase", [None, *DrainPhase])
@pytest.mark.parametrize("paused", [False, True])
def test_a_drain_of_another_owner_holds_its_node_in_every_phase(
    make: Make, phase: DrainPhase | None, paused: bool
) -> None:
    drain = foreign_drain("mine", "a", paused=paused)
    drain = msgspec.structs.replace(
        drain, status=msgspec.structs.replace(drain.status, phase=phase)
    )
    nodes = {"a": make.node("a")}
    assert drain_holders([drain], nodes) == {"a": BY_USER}
    deleting = msgspec.structs.replace(drain.metadata, deletion_timestamp=make.now)
    assert drain_holders([msgspec.structs.replace(drain, metadata=deleting)], nodes)


@pytest.mark.rule("NP-02")
def test_a_node_that_does_not_exist_any_more_holds_no_slot(make: Make) -> None:
    nodes = {"a": make.node("a")}
    gone = foreign_drain("gone", "b")
    former = foreign_drain("former", "a", nodeUID="uid-of-the-former-node")
    assert drain_holders([gone, former], nodes) == {}
    assert drain_holders([foreign_drain("mine", "a", nodeUID="uid-a")], nodes) == {"a": BY_USER}


@pytest.mark.rule("NP-02")
def test_a_drain_of_a_replacement_is_the_slot_of_the_replacement(make: Make) -> None:
    replacement = make.replacement("a", step=Step.DRAINING)
    drain, nodes = make.drain(replacement), {"a": make.node("a")}
    assert drain_holders([drain], nodes) == {}
    assert orphaned_nodes([drain], [replacement], nodes) == frozenset()
    assert orphaned_nodes([drain], [], nodes) == {"a"}
    held = {"a": Holder("NodeReplacement", "roll-a", "of NodeRollout roll")}
    assert replacement_holders([replacement], [drain], nodes) == held
    assert set(replacement_holders([], [drain], nodes)) == {"a"}


@pytest.mark.rule("RB-11")
@pytest.mark.rule("NP-02")
def test_other_systems_count_stalled_replacements(make: Make) -> None:
    stalled = make.replacement("a", step=Step.DRAINING, status={"stalled_since": make.now})
    waiting = make.replacement("b")
    assert set(replacement_holders([stalled, waiting], [], {"a", "b"})) == {"a"}


def test_messages_name_few_holders_and_count_the_others() -> None:
    held = [Holder("NodeDrain", name) for name in "edcba"]
    assert names_of_holders(held[3:]) == "NodeDrain a, NodeDrain b"
    assert names_of_holders(held[:1], 1) == "NodeDrain e and 1 other"
    assert names_of_holders(held, 2) == "NodeDrain a, NodeDrain b, NodeDrain c and 4 others"


# Admission of rollouts


@pytest.mark.rule("IG-75")
@pytest.mark.rule("NP-04")
def test_a_node_that_another_system_holds_occupies_a_slot(make: Make) -> None:
    decisions = admit(cluster(make, make.replacement("a"), holders={"n7": BY_USER}), make.now)
    assert decisions.start == ()
    assert decisions.waiting == {"roll-a": WaitReason.MAX_CONCURRENT}
    message = "1 of 1 nodes in flight: NodeDrain mine (created by a user)"
    assert decisions.details == {"roll-a": message}


@pytest.mark.rule("NP-04")
def test_nodes_of_rollouts_are_counted_and_not_named(make: Make) -> None:
    strategy = {"maxConcurrent": 2}
    seen = cluster(
        make,
        make.replacement("a", step=Step.DRAINING),
        make.replacement("b", strategy=strategy),
        holders={"n7": BY_USER},
    )
    message = "2 of 2 nodes in flight: NodeDrain mine (created by a user) and 1 other"
    assert admit(seen, make.now).details == {"roll-b": message}


@pytest.mark.rule("RB-11")
@pytest.mark.rule("NP-04")
def test_without_other_holders_messages_are_those_of_the_reasons(make: Make) -> None:
    seen = cluster(make, make.replacement("a", step=Step.DRAINING), make.replacement("b"))
    decisions = admit(seen, make.now)
    assert decisions.waiting == {"roll-b": WaitReason.MAX_CONCURRENT}
    assert decisions.details == {}


@pytest.mark.rule("IG-75")
@pytest.mark.rule("NP-04")
def test_the_node_that_another_system_holds_is_not_started(make: Make) -> None:
    strategy = {"maxConcurrent": 5}
    seen = cluster(
        make,
        make.replacement("a", strategy=strategy),
        make.replacement("b", strategy=strategy),
        holders={"a": BY_USER},
    )
    decisions = admit(seen, make.now)
    assert decisions.start == ("roll-b",)
    assert decisions.waiting == {"roll-a": WaitReason.NODE_IN_FLIGHT}
    message = "NodeDrain mine (created by a user) is working on this node"
    assert decisions.details == {"roll-a": message}


@pytest.mark.rule("RB-11")
@pytest.mark.rule("NP-04")
def test_a_held_node_of_another_zone_delays_the_others(make: Make) -> None:
    strategy = {"maxConcurrent": 5, "topologyKey": "zone"}
    nodes = {"a": make.node("a", zone="x"), "n7": make.node("n7", zone="y")}
    seen = cluster(
        make, make.replacement("a", strategy=strategy), holders={"n7": BY_USER}, nodes=nodes
    )
    decisions = admit(seen, make.now)
    assert decisions.waiting == {"roll-a": WaitReason.TOPOLOGY}
    assert decisions.details["roll-a"].endswith(": NodeDrain mine (created by a user)")


@pytest.mark.rule("RB-11")
@pytest.mark.rule("NP-04")
def test_a_held_node_of_the_control_plane_delays_the_others(make: Make) -> None:
    nodes = {name: master(make, name) for name in ("a", "n7")}
    replacement = make.replacement("a", strategy={"maxConcurrent": 5})
    seen = cluster(make, replacement, holders={"n7": BY_USER}, nodes=nodes)
    decisions = admit(seen, make.now)
    assert decisions.waiting == {"roll-a": WaitReason.CONTROL_PLANE}
    assert decisions.details["roll-a"].endswith("NodeDrain mine (created by a user)")
    assert admit(cluster(make, replacement, nodes=nodes), make.now).start == ("roll-a",)


@pytest.mark.rule("NP-05")
@pytest.mark.parametrize("strategy", [{"maxConcurrent": 1}, {"maxConcurrent": 2}])
def test_an_objection_keeps_one_node_waiting_and_no_other(
    make: Make, strategy: Mapping[str, int]
) -> None:
    seen = cluster(
        make,
        *(make.replacement(name, strategy=dict(strategy)) for name in "abcd"),
        objections={"a": "the last one of its group"},
    )
    decisions = admit(seen, make.now)
    assert decisions.start == ("roll-b", "roll-c")[: strategy["maxConcurrent"]]
    assert decisions.waiting["roll-a"] is WaitReason.NODE_NEEDED
    assert decisions.details["roll-a"] == "the last one of its group"


@pytest.mark.rule("NP-05")
def test_a_needed_node_of_a_higher_priority_delays_no_other_rollout(make: Make) -> None:
    seen = cluster(
        make,
        make.replacement("a", rollout="high", replacement={"priority": 9}),
        make.replacement("b"),
        rollouts=[make.rollout(), make.rollout("high")],
        objections={"a": "needed"},
    )
    decisions = admit(seen, make.now)
    assert decisions.start == ("roll-b",)
    assert decisions.waiting == {"high-a": WaitReason.NODE_NEEDED}


@pytest.mark.rule("NP-05")
def test_a_needed_node_does_not_delay_nodes_by_its_topology(make: Make) -> None:
    strategy = {"maxConcurrent": 5, "topologyKey": "zone"}
    nodes = {name: make.node(name, zone="x" if name == "a" else "y") for name in "abc"}
    seen = cluster(
        make,
        make.replacement("a", strategy=strategy),
        make.replacement("b", step=Step.DRAINING, strategy=strategy),
        make.replacement("c", strategy=strategy),
        nodes=nodes,
        objections={"a": "needed"},
    )
    assert admit(seen, make.now).start == ("roll-c",)


@pytest.mark.rule("NP-05")
def test_a_needed_node_in_flight_continues_and_counts(make: Make) -> None:
    seen = cluster(
        make,
        make.replacement("a", step=Step.DRAINING, replacement={"priority": 9}),
        make.replacement("b", strategy={"maxConcurrent": 5}),
        objections={"a": "needed"},
    )
    assert admit(seen, make.now).waiting == {"roll-b": WaitReason.HIGHER_PRIORITY}


@pytest.mark.rule("NP-04")
def test_a_plan_names_the_holder_and_objections_that_the_manager_found(make: Make) -> None:
    rollout = make.rollout(nodes=("a", "b"), strategy={"maxConcurrent": 1})
    needed = make.replacement("a", reason=WaitReason.NODE_NEEDED)
    waiting = [{"type": "Waiting", "status": "True", "message": "the last one of its group"}]
    needed = msgspec.convert(
        msgspec.to_builtins(needed)
        | {"status": {**msgspec.to_builtins(needed.status), "conditions": waiting}},
        NodeReplacement,
    )
    state = ClusterState(
        nodes=[],
        rollouts=[rollout],
        replacements=[needed, make.replacement("b")],
        holders={"n7": Holder("Plan", "system/os")},
    )
    (predicted,) = predict([rollout], state, make.now)
    assert [(node.name, node.starts, node.message) for node in predicted.nodes] == [
        ("a", "NodeNeeded", "the last one of its group"),
        ("b", "MaxConcurrent", "1 of 1 nodes in flight: Plan system/os"),
    ]


# The whole admission, over HTTP


def message_of(operator: Operator, name: str) -> str:
    found = find_condition(operator.replacement(name).status.conditions, "Waiting")
    return found.message if found is not None else ""


@pytest.mark.rule("RB-11")
@pytest.mark.rule("NP-02")
@pytest.mark.rule("NP-04")
def test_a_drain_of_a_user_delays_a_rollout_until_it_is_gone(operator: Operator) -> None:
    for name in ("a", "b"):
        operator.add_node(name)
    drains = operator.client.resource(NODE_DRAINS)
    drains.create({"metadata": {"name": "mine"}, "spec": {"nodeName": "b", "paused": True}})
    operator.add_rollout(nodeNames=[{"name": "a"}])
    operator.settle_in_time()
    assert operator.steps() == {"roll-a": Step.WAITING}
    assert message_of(operator, "roll-a") == (
        "1 of 1 nodes in flight: NodeDrain mine (created by a user)"
    )
    operator.report("mine", DrainPhase.COMPLETED)
    operator.settle_in_time()
    assert operator.steps() == {"roll-a": Step.WAITING}
    drains.delete("mine")
    operator.settle()
    assert operator.steps() == {"roll-a": Step.RESERVED}


@pytest.mark.rule("UP-40")
@pytest.mark.rule("NP-01")
@pytest.mark.rule("NP-05")
def test_a_registered_source_and_an_objection_delay_nodes(operator: Operator) -> None:
    held, needed = {"z": Holder("Plan", "os")}, {"a"}
    operator.slots.add_source("plans", lambda: held)
    operator.slots.add_objection("groups", lambda node: "needed" if node in needed else None)
    for name in ("a", "b", "z"):
        operator.add_node(name)
    operator.add_rollout(nodeNames=[{"name": "a"}, {"name": "b"}])
    operator.settle_in_time()
    assert message_of(operator, "roll-a") == "needed"
    assert message_of(operator, "roll-b") == "1 of 1 nodes in flight: Plan os"
    held.clear()
    operator.settle()
    assert operator.steps() == {"roll-a": Step.WAITING, "roll-b": Step.RESERVED}


@pytest.mark.rule("NP-01")
def test_nothing_starts_while_a_source_fails(operator: Operator) -> None:
    fails = [True]

    def holders() -> Mapping[str, Holder]:
        if fails:
            raise KeyError("bug")
        return {}

    operator.slots.add_source("broken", holders)
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.see()
    with pytest.raises(SlotsUnknown):
        operator.settle()
    assert operator.replacement("mine").status.current is Step.WAITING
    fails.clear()
    operator.settle()
    assert operator.replacement("mine").status.current is Step.RESERVED


@pytest.mark.rule("UP-41")
@pytest.mark.rule("NP-03")
def test_admission_writes_its_starts_within_its_turn(operator: Operator) -> None:
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a")
    operator.see()
    operator.replacements.reconcile(ADMISSION)
    with operator.slots.turn():
        before = len(operator.transport.targets)
        with pytest.raises(RuntimeError, match="has the turn already"):
            operator.replacements.reconcile(ADMISSION)
        assert len(operator.transport.targets) == before


@pytest.mark.rule("IG-75")
@pytest.mark.rule("NP-01")
def test_admission_follows_a_change_of_another_system_within_a_second(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("navarchos.operator.throttle._PER_OBJECT", 1.0)
    held = {"n000": Holder("Plan", "os")}
    operator.slots.add_source("plans", lambda: held)
    operator.begin_with_many(210)
    operator.replacements.reconcile(ADMISSION)
    assert Step.RESERVED not in operator.steps().values()
    held.clear()
    operator.slots.notify("plans")
    after = operator.replacements.reconcile(ADMISSION).requeue_after
    assert after is not None
    assert 0.0 < after < 1.0
    operator.clock.advance(after)
    operator.replacements.reconcile(ADMISSION)
    assert operator.steps()["roll-n000"] is Step.RESERVED


@pytest.mark.rule("NP-01")
def test_other_systems_hear_of_drains_and_replacements(operator: Operator) -> None:
    heard = threading.Event()
    operator.slots.add_admission("checks", heard.set)
    operator.add_node("a")
    operator.see()
    acts: tuple[Callable[[], object], ...] = (
        lambda: operator.client.resource(NODE_DRAINS).create(
            {"metadata": {"name": "mine"}, "spec": {"nodeName": "a"}}
        ),
        lambda: operator.client.resource(NODE_DRAINS).delete("mine"),
        lambda: operator.add_replacement("one", nodeName="a"),
    )
    for act in acts:
        heard.clear()
        act()
        assert heard.wait(10.0)


@pytest.mark.rule("NP-04")
def test_a_gauge_counts_slots_by_kind(operator: Operator) -> None:
    held = {"z": Holder("Plan", "os")}
    operator.slots.add_source("plans", lambda: held)
    operator.add_node("a")
    operator.add_replacement("mine", nodeName="a", strategy={"maxConcurrent": 2})
    operator.settle()
    value = operator.instruments.registry.get_sample_value
    assert value("navarchos_slots", {"kind": "NodeReplacement"}) == 1
    assert value("navarchos_slots", {"kind": "Plan"}) == 1
    held.clear()
    operator.settle()
    assert value("navarchos_slots", {"kind": "Plan"}) is None
