"""Admission at gates: what waits, and what does not."""

from typing import Any

import pytest
from tests.unit.operator.conftest import Make

from navarchos.operator.api.v1alpha1 import GateState, NodeReplacement, Step
from navarchos.operator.gates.decide import GateRecord, Verdict, follow
from navarchos.operator.reasons import WaitReason
from navarchos.operator.replacements.admission import Decisions, admit
from navarchos.operator.replacements.snapshot import ClusterSnapshot

ALERTS = {"name": "g", "alerts": {"url": "http://prometheus"}}
NODES = {"name": "g", "nodes": {"maxUnready": 0}}


def decide(
    make: Make,
    state: GateState | None,
    *replacements: NodeReplacement,
    gate: dict[str, Any] = NODES,
) -> Decisions:
    """Decide with the gate `g` of the rollout `roll` in a state; other rollouts have none."""
    records = {}
    if state is not None:
        records["g"] = follow(GateRecord("g"), Verdict(state, "n", "n is bad"), make.now)
    rollouts = [make.rollout(gates=[gate]), make.rollout("other")]
    return admit(
        ClusterSnapshot(
            replacements=replacements,
            rollouts={rollout.metadata.uid: rollout for rollout in rollouts},
            nodes={r.spec.node_name: make.node(r.spec.node_name) for r in replacements},
            gates={"uid-roll": records},
        ),
        make.now,
    )


@pytest.mark.rule("NP-30")
@pytest.mark.parametrize("state", [GateState.CLOSED, GateState.PENDING, None])
def test_the_first_node_waits_at_the_gate_and_the_others_in_line(
    make: Make, state: GateState | None
) -> None:
    strategy = {"maxConcurrent": 9}
    nodes = [make.replacement(name, strategy=strategy) for name in "ab"]
    decisions = decide(make, state, *nodes)
    assert decisions.start == ()
    assert decisions.waiting == {"roll-a": WaitReason.GATE, "roll-b": WaitReason.QUEUED}
    assert decisions.at_gates == ("uid-roll",)
    assert "gate g is" in decisions.details["roll-a"]


@pytest.mark.rule("NP-30")
def test_nodes_start_at_an_open_gate(make: Make) -> None:
    decisions = decide(make, GateState.OPEN, make.replacement("a"))
    assert (decisions.start, decisions.at_gates) == (("roll-a",), ())


@pytest.mark.rule("NP-30")
def test_a_gate_is_not_the_reason_while_a_node_could_not_start_anyway(make: Make) -> None:
    busy = make.replacement("x", rollout="other", step=Step.DRAINING)
    decisions = decide(make, GateState.CLOSED, busy, make.replacement("a"))
    assert decisions.waiting == {"roll-a": WaitReason.MAX_CONCURRENT}
    assert decisions.at_gates == ()


@pytest.mark.rule("NP-30")
def test_a_closed_gate_delays_no_other_rollout_but_one_that_is_not_known_does(make: Make) -> None:
    high = make.replacement("a", replacement={"priority": 5})
    low = make.replacement("b", rollout="other")
    closed = decide(make, GateState.CLOSED, high, low)
    assert closed.start == ("other-b",)
    assert closed.waiting == {"roll-a": WaitReason.MAX_CONCURRENT}
    pending = decide(make, GateState.PENDING, high, low)
    assert pending.waiting == {"roll-a": WaitReason.GATE, "other-b": WaitReason.HIGHER_PRIORITY}


@pytest.mark.rule("RB-66")
def test_one_result_of_alerts_starts_one_node(make: Make) -> None:
    nodes = [make.replacement(name, strategy={"maxConcurrent": 9}) for name in "ab"]
    decisions = decide(make, GateState.OPEN, *nodes, gate=ALERTS)
    assert decisions.start == ("roll-a",)
    assert decisions.waiting == {"roll-b": WaitReason.GATE}
    assert decisions.at_gates == ("uid-roll",)
