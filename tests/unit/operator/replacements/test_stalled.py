"""Which nodes are stalled and release their slot."""

from typing import Any, Final

import msgspec
import pytest
from tests.unit.operator.conftest import Make

from navarchos.operator.api.v1alpha1 import DrainPhase, NodeDrain, NodeReplacement, Step
from navarchos.operator.nodes import CONTROL_PLANE_LABEL, Node, NodeCondition, NodeStatus
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission import Decisions, admit
from navarchos.operator.replacements.snapshot import ClusterSnapshot
from navarchos.operator.replacements.stalled import MIN_STALL_TIME
from navarchos.operator.replacements.status import (
    drained_status,
    failed_attempt_status,
    node_gone_status,
    released_status,
    reserved_status,
)

HELD: Final = [{"type": "NodeDrained", "status": "False", "reason": "TimeoutHold"}]


def drain(make: Make, of: NodeReplacement, *, begun: float = -1000, **status: Any) -> NodeDrain:
    """Return a drain with blocked pods by default."""
    facts = {"remaining": 2, "blocked": 2, **status}
    plain = make.drain(of, status=facts)
    known = msgspec.structs.replace(plain.status, start_timestamp=make.at(begun))
    return msgspec.structs.replace(plain, status=known)


def on_hold(make: Make, of: NodeReplacement, **status: Any) -> NodeDrain:
    return drain(make, of, conditions=HELD, **status)


def decide(
    make: Make,
    *replacements: NodeReplacement,
    drains: tuple[NodeDrain, ...] = (),
    seconds: float = 0,
    nodes: list[Node] | None = None,
    **rollout: Any,
) -> Decisions:
    strategy = {"maxFailures": 1, **rollout.pop("strategy", {})}
    seen = ClusterSnapshot(
        replacements=replacements,
        rollouts={"uid-roll": make.rollout(strategy=strategy, **rollout)},
        nodes={
            node.metadata.name: node
            for node in nodes or [make.node(r.spec.node_name) for r in replacements]
        },
        drains={each.metadata.name: each for each in drains},
    )
    return admit(seen, make.at(seconds))


def draining(make: Make, name: str, **facts: Any) -> NodeReplacement:
    found: NodeReplacement = make.replacement(name, step=Step.DRAINING, started=-1000, **facts)
    return found


def stalled(make: Make, name: str, **facts: Any) -> NodeReplacement:
    return draining(make, name, status={"stalled_since": make.now}, **facts)


@pytest.mark.rule("OP-25")
def test_a_drain_on_hold_releases_its_slot(make: Make) -> None:
    held = draining(make, "a")
    decisions = decide(make, held, make.replacement("b"), drains=(on_hold(make, held, blocked=0),))
    assert decisions.stalled == ("roll-a",)
    assert decisions.start == (), "not before `stalledSince` is written"


@pytest.mark.rule("OP-25")
def test_another_node_starts_beside_a_stalled_one(make: Make) -> None:
    decisions = decide(make, stalled(make, "a"), make.replacement("b"), make.replacement("c"))
    assert decisions.start == ("roll-b",)
    assert decisions.waiting == {"roll-c": WaitReason.MAX_CONCURRENT}


@pytest.mark.rule("OP-22")
def test_a_rollout_has_at_most_max_failures_stalled_nodes(make: Make) -> None:
    several = [draining(make, name) for name in "abcd"]
    held = tuple(on_hold(make, each) for each in several)
    assert decide(make, *several, drains=held, strategy={"maxFailures": 2}).stalled == (
        "roll-a",
        "roll-b",
    )
    assert decide(make, *several, drains=held, strategy={"maxFailures": 0}).stalled == ()
    known = [stalled(make, "x"), make.replacement("y", step=Step.FAILED)]
    assert decide(make, *several, *known, drains=held, strategy={"maxFailures": 2}).stalled == ()


def test_a_stalled_node_in_releasing_still_counts_as_stalled(make: Make) -> None:
    """It does not get its slot again, and its node is cordoned until it is released."""
    failed = failed_attempt_status(stalled(make, "a"), "Timeout", "", make.now)
    releasing = msgspec.structs.replace(stalled(make, "a"), status=failed)
    held = draining(make, "b")
    decisions = decide(make, releasing, held, make.replacement("c"), drains=(on_hold(make, held),))
    assert (decisions.stalled, decisions.start) == ((), ())
    assert decisions.waiting == {"roll-c": WaitReason.MAX_CONCURRENT}


def test_a_node_that_starts_again_occupies_a_slot_again(make: Make) -> None:
    status = failed_attempt_status(stalled(make, "a"), "Timeout", "", make.now)
    releasing = msgspec.structs.replace(stalled(make, "a"), status=status)
    released = msgspec.structs.replace(releasing, status=released_status(releasing, make.now))
    assert released.status.stalled_since is None
    assert reserved_status(released, make.now).occupies_slot


def test_a_started_node_occupies_a_slot_even_if_it_was_stalled(make: Make) -> None:
    waiting = make.replacement("a", status={"stalled_since": make.now})
    assert reserved_status(waiting, make.now).occupies_slot


@pytest.mark.parametrize("end", [drained_status, node_gone_status], ids=["drained", "gone"])
def test_a_finished_node_is_not_stalled(make: Make, end: Any) -> None:
    assert end(stalled(make, "a"), make.now).stalled_since is None


@pytest.mark.rule("OP-25")
def test_refused_pods_make_a_node_stalled_after_twice_the_mean_time(make: Make) -> None:
    """A pod that its budget protects for a short time is normal."""
    held = draining(make, "a")
    done = make.replacement("b", step=Step.DONE, started=-500, done=-400)
    drains = (drain(make, held, begun=0),)
    throttled_for = decide(make, held, done, drains=drains, seconds=199)
    assert (throttled_for.stalled, throttled_for.recheck_after) == ((), 1.0)
    assert decide(make, held, done, drains=drains, seconds=200).stalled == ("roll-a",)


def test_the_stall_time_is_at_least_a_minute(make: Make) -> None:
    held, report_delay = draining(make, "a"), MIN_STALL_TIME.total_seconds()
    quick = make.replacement("b", step=Step.DONE, started=-500, done=-499)
    drains = (drain(make, held, begun=0),)
    for others in ((), (quick,)):
        throttled_for = decide(make, held, *others, drains=drains, seconds=report_delay - 1)
        assert (throttled_for.stalled, throttled_for.recheck_after) == ((), 1.0)
        late = decide(make, held, *others, drains=drains, seconds=report_delay)
        assert late.stalled == ("roll-a",)


@pytest.mark.parametrize(
    "facts",
    [{"blocked": 1}, {"remaining": 0, "blocked": 0}],
    ids=["a pod is terminating", "no pod is left"],
)
def test_a_drain_that_makes_progress_is_not_stalled(make: Make, facts: dict[str, Any]) -> None:
    held = draining(make, "a")
    decisions = decide(make, held, drains=(drain(make, held, **facts),))
    assert (decisions.stalled, decisions.recheck_after) == ((), None)


def test_a_finished_drain_is_not_stalled(make: Make) -> None:
    held = draining(make, "a")
    ended = make.drain(held, phase=DrainPhase.FAILED, status={"remaining": 2, "blocked": 2})
    assert decide(make, held, drains=(ended,)).stalled == ()


@pytest.mark.parametrize(
    ("child", "rollout"),
    [({"paused": True}, {}), ({}, {"paused": True}), ({"rollout": ""}, {})],
    ids=["paused", "its rollout is paused", "of no rollout"],
)
def test_paused_nodes_and_nodes_without_a_rollout_keep_their_slot(
    make: Make, child: dict[str, Any], rollout: dict[str, Any]
) -> None:
    held = draining(make, "a", **child)
    assert decide(make, held, drains=(on_hold(make, held),), **rollout).stalled == ()


def test_a_stalled_node_is_not_started_a_second_time(make: Make) -> None:
    twin = make.replacement("a", rollout="")
    assert decide(make, stalled(make, "a"), twin).waiting == {"a": WaitReason.NODE_IN_FLIGHT}


@pytest.mark.rule("OP-05")
def test_a_stalled_node_blocks_lower_priorities(make: Make) -> None:
    high = stalled(make, "a", replacement={"priority": 5})
    assert decide(make, high, make.replacement("b")).waiting == {
        "roll-b": WaitReason.HIGHER_PRIORITY
    }


def test_no_node_of_another_zone_starts_while_a_node_is_stalled(make: Make) -> None:
    nodes = [make.node("a", zone="1"), make.node("b", zone="2")]
    waiting = make.replacement("b", strategy={"topologyKey": "zone"})
    decisions = decide(make, stalled(make, "a"), waiting, nodes=nodes)
    assert decisions.waiting == {"roll-b": WaitReason.TOPOLOGY}


def test_a_stalled_control_plane_node_blocks_the_others(make: Make) -> None:
    ready = NodeStatus(conditions=(NodeCondition("Ready", "True"),))
    nodes = []
    for name in "ab":
        plain = make.node(name)
        metadata = msgspec.structs.replace(plain.metadata, labels={CONTROL_PLANE_LABEL: ""})
        nodes.append(msgspec.structs.replace(plain, metadata=metadata, status=ready))
    decisions = decide(make, stalled(make, "a"), make.replacement("b"), nodes=nodes)
    assert decisions.waiting == {"roll-b": WaitReason.CONTROL_PLANE}
